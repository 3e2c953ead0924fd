"""Anthropic's message batches: requests are sent together, answered in the background, and fetched when that is done.

The requests of each model are a job of leap's own queue, as /v1/batches has them; the records lie on the disk.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ...batch.input.lines import CHAT_URL
from ...batch.journal.line_result import ANTHROPIC
from ...batch.settings import BatchSettings
from ...conversation.media.fetching import UrlAccess
from ...errors import LeapError, LeapSerializationError
from ...protocols.anthropic import batch_body, batch_error, read_messages
from ...protocols.openai.replies import status_of
from ...schemas.json_values import JsonObject, list_at, object_at, text_at
from ..http import STORE, AsciiJSON, read_body
from ..job_queue import JobQueue, answered_by
from ..models.loaded_models import LoadedModels
from ..records import Records, new_id, page_of

MOST_REQUESTS = 10_000
MOST_LISTED = 1000
YEAR = 365 * 86_400
CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
COUNTED = ("processing", "succeeded", "errored", "canceled", "expired")


class MessageBatches:
    """Batches in ``directory``/messages, whose work ``queue`` does. ``urls``: what the pictures of requests may be
    fetched from. ``owner``: whose they are."""

    def __init__(
        self,
        models: LoadedModels,
        queue: JobQueue,
        directory: Path,
        *,
        urls: UrlAccess = UrlAccess.DATA,
        owner: str = "",
    ) -> None:
        self._models, self._queue, self._urls = models, queue, urls
        self.records = Records(directory / "messages", "message batch", owner)

    def routes(self) -> list[Route]:
        return [
            Route("/v1/messages/batches", self.create, methods=["POST"]),
            Route("/v1/messages/batches", self.list_batches),
            Route("/v1/messages/batches/{id}", self.batch),
            Route("/v1/messages/batches/{id}", self.remove, methods=["DELETE"]),
            Route("/v1/messages/batches/{id}/results", self.results),
            Route("/v1/messages/batches/{id}/cancel", self.cancel, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        """Have requests answered, those of each model by a job. One that cannot be used is an error by itself."""
        asked = await read_body(request, _requests)
        check = BatchSettings.of("", "", urls=self._urls, own_clients=False).reader()
        lines: dict[str, list[JsonObject]] = {}
        refused: list[JsonObject] = []
        for custom_id, params in asked:
            try:
                params = object_at(params, "params")
                one = await STORE.run(read_messages, params, urls=self._urls)
                if lost := next((note for note in one.notes if "'leap." in note), None):
                    raise LeapSerializationError(lost)  # nobody reads the notes of a batch
                await STORE.run(check.check, one)
                if (model := text_at(one.model, "model")) not in lines:
                    await self._models.described(model)
                line = {"custom_id": custom_id, "method": "POST", "url": CHAT_URL, "body": batch_body(params, one)}
                lines.setdefault(model, []).append(line)
            except LeapError as error:
                refused.append(batch_error(custom_id, status_of(error)[2], str(error)))
        record: JsonObject = {"id": new_id("msgbatch_"), "created_at": time.time(), "cancelled_at": None, "jobs": []}
        record["total"], record["refused"] = len(asked), refused
        for model, its_lines in lines.items():
            job = await self._submit(self._directory(record["id"]), len(record["jobs"]), model, its_lines)
            record["jobs"].append(job)
        await STORE.run(self.records.write, record)
        return AsciiJSON(await STORE.run(self._described, record, request))

    async def list_batches(self, request: Request) -> Response:
        """The batches, the newest first: those after one's id, or before it."""

        def listed() -> JsonObject:
            page, ends = page_of(self.records.all(), request.query_params, MOST_LISTED, "_id")
            return {"data": [self._described(record, request) for record in page], **ends}

        return AsciiJSON(await STORE.run(listed))

    async def batch(self, request: Request) -> Response:
        """One batch, and how far it is."""
        record = await STORE.run(self.records.get, request.path_params["id"])
        return AsciiJSON(await STORE.run(self._described, record, request))

    async def results(self, request: Request) -> Response:
        """A line for each request of a batch that has ended."""
        record = await STORE.run(self.records.get, request.path_params["id"])
        if (await STORE.run(self._described, record, request))["processing_status"] != "ended":
            raise LeapSerializationError(f"the batch {record['id']!r} has not ended", path="id")
        lines = ((json.dumps(line) + "\n").encode() for line in self._results(record))
        return StreamingResponse(lines, media_type="application/x-jsonl")

    async def cancel(self, request: Request) -> Response:
        """End a batch. What was answered by then can be fetched."""
        record = await STORE.run(self.records.get, request.path_params["id"])
        body = await STORE.run(self._described, record, request)
        if body["processing_status"] == "in_progress":
            record["cancelled_at"] = time.time()
            await STORE.run(self.records.write, record)
            for job in record["jobs"]:
                if job["id"] is not None:
                    await STORE.run(self._queue.cancel, job["id"])
            body = await STORE.run(self._described, record, request)
        return AsciiJSON(body)

    async def remove(self, request: Request) -> Response:
        """Forget a batch that has ended, and its results."""
        record = await STORE.run(self.records.get, request.path_params["id"])
        if (await STORE.run(self._described, record, request))["processing_status"] != "ended":
            raise LeapSerializationError("the batch has not ended", path="id", hint="cancel it first")
        await STORE.run(self.records.remove, record["id"])
        await STORE.run(shutil.rmtree, self._directory(record["id"]), ignore_errors=True)
        return AsciiJSON({"id": record["id"], "type": "message_batch_deleted"})

    async def _submit(self, directory: Path, n: int, name: str, lines: list[JsonObject]) -> JsonObject:
        """Have the requests of one model answered; what the record keeps of it."""
        source, output = directory / f"{n}.jsonl", directory / f"{n}_results.jsonl"

        def write() -> None:
            self.records.make_directory()
            directory.mkdir(mode=0o700, exist_ok=True)
            source.write_text("".join(json.dumps(line) + "\n" for line in lines))

        job: JsonObject = {"id": None, "n": n, "error": None}
        try:
            model = await self._models.described(name)
            await STORE.run(write)
            settings = BatchSettings.of(
                str(source), str(output), format=ANTHROPIC, urls=self._urls, own_clients=False, skip_invalid=True
            )
            settings = answered_by(model, name, settings)
            cwd = model.load_request.cwd or Path.cwd()
            job["id"] = await STORE.run(self._queue.submit, settings, cwd)
        except LeapError as error:
            job["error"] = [status_of(error)[2], str(error).replace(str(source), "the batch")]
        return job

    def _described(self, record: JsonObject, request: Request) -> JsonObject:
        """Anthropic's object. Waits for the disk, and keeps how the batch ended."""
        if "ended_at" not in record:
            states = [self._queue.state(job["id"]) for job in record["jobs"] if job["id"] is not None]
            if all(state is None or state.is_final for state in states):
                ends = [state.finished for state in states if state is not None and state.finished is not None]
                counts = Counter(line["result"]["type"] for line in self._results(record))
                record |= {"ended_at": max(ends, default=time.time()), "counts": dict(counts)}
                self.records.write(record)
            else:
                done = [(state.completed, state.failed) for state in states if state is not None]
                succeeded, errored = (sum(each) for each in zip(*done, strict=True))
                errored += len(record["refused"])
                processing = max(0, record["total"] - succeeded - errored)
                record["counts"] = {"succeeded": succeeded, "errored": errored, "processing": processing}
        ended = "ended_at" in record
        results = f"{request.base_url}v1/messages/batches/{record['id']}/results"
        status = "ended" if ended else "in_progress" if record["cancelled_at"] is None else "canceling"
        return {
            "id": record["id"],
            "type": "message_batch",
            "processing_status": status,
            "request_counts": {name: record["counts"].get(name, 0) for name in COUNTED},
            "created_at": _time(record["created_at"]),
            "expires_at": _time(record["created_at"] + YEAR),  # clients need a time: nothing ends then
            "ended_at": _time(record["ended_at"]) if ended else None,
            "cancel_initiated_at": None if record["cancelled_at"] is None else _time(record["cancelled_at"]),
            "archived_at": None,
            "results_url": results if ended else None,
        }

    def _results(self, record: JsonObject) -> Iterator[JsonObject]:
        """A line for each request; those that a job has not come to say why."""
        yield from record["refused"]
        directory = self._directory(record["id"])
        for job in record["jobs"]:
            answered = set()
            for line in _lines(directory / f"{job['n']}_results.jsonl"):
                answered.add(line["custom_id"])
                yield line
            state = None if job["id"] is None else self._queue.state(job["id"])
            for line in _lines(directory / f"{job['n']}.jsonl"):
                if (id := line["custom_id"]) in answered:
                    continue
                if job["error"] is not None:
                    yield batch_error(id, *job["error"])
                elif state is not None and state.state == "failed":
                    yield batch_error(id, "generation_failed", state.message or "the batch failed")
                else:
                    yield {"custom_id": id, "result": {"type": "expired" if state is None else "canceled"}}

    def _directory(self, id: str) -> Path:
        return self.records.directory / id


def _requests(body: object) -> list[tuple[str, object]]:
    """The requests of a batch by their own ids. Raises LeapSerializationError."""
    requests = list_at(object_at(body, "body").get("requests"), "requests")
    if not 1 <= len(requests) <= MOST_REQUESTS:
        raise LeapSerializationError(f"expected 1 to {MOST_REQUESTS} requests", path="requests")
    asked: dict[str, object] = {}
    for n, each in enumerate(requests):
        each, path = object_at(each, f"requests[{n}]"), f"requests[{n}].custom_id"
        id = text_at(each.get("custom_id"), path)
        if not CUSTOM_ID.fullmatch(id):
            raise LeapSerializationError("expected 1 to 64 letters, digits, - or _", path=path)
        if id in asked:
            raise LeapSerializationError(f"{id!r} is given twice", path=path)
        asked[id] = each.get("params")
    return list(asked.items())


def _lines(path: Path) -> Iterator[JsonObject]:
    with suppress(OSError), path.open(encoding="utf-8") as file:
        for line in file:
            with suppress(ValueError):  # torn, where its job was removed
                yield json.loads(line)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()

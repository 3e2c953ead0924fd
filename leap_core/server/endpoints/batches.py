"""OpenAI's files and batches: kept in a directory, answered in the background, fetched when done.

The work is a job of leap's own queue, so it survives this server; the records lie on the disk, so they do too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Protocol

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from ...batch.input.lines import CHAT_URL, URLS, first_line
from ...batch.settings import BatchSettings
from ...conversation.media.fetching import UrlAccess
from ...errors import LeapError, LeapModelNotFoundError, LeapSerializationError
from ...protocols.openai.embeddings import EMBEDDINGS_URL
from ...protocols.openai.replies import status_of
from ...schemas.json_values import JsonObject, object_at, text_at
from ...system.dataclass import dataclass
from ...system.directories import private_directory
from ...system.files import replace_text
from ..access import refuse_other_origins
from ..http import STORE, AsciiJSON, Refused, read_json
from ..models.abilities import check_name
from ..models.loaded_model import LoadedModel
from ..models.loaded_models import LoadedModels

LARGEST_FILE = 1024**3
PIECE = 1 << 20
ID = re.compile(r"(file|batch|msgbatch)[-_][0-9a-f]{24}|(resp|conv)_[0-9a-f]{48}")


def not_found(what: str, id: str) -> Refused:
    """The answer to an id that nothing has."""
    return Refused(404, "not_found", LeapModelNotFoundError(f"there is no {what} {id!r}"))


def owner_of(api_key: str | None) -> str:
    """Who keeps things in a server of this key, without the key. A server without one is open to all who reach it."""
    return hashlib.blake2b((api_key or "").encode(), digest_size=16).hexdigest()


class Records:
    """JSON objects by their ids, each a file of its own in ``directory`` (mode 0700). Every change is one step. They
    belong to ``owner``, and are not there for another."""

    def __init__(self, directory: Path, what: str, owner: str = "") -> None:
        self.directory, self._what, self._owner = directory, what, owner

    def make_directory(self) -> None:
        """Make the directory and the one around it, for this user alone."""
        for each in (self.directory.parent, self.directory):
            private_directory(each)

    def write(self, record: JsonObject) -> JsonObject:
        """Keep a record, in place of an older one."""
        self.make_directory()
        replace_text(self._path(record["id"]), json.dumps({**record, "owner": self._owner}))
        return record

    def get(self, id: str) -> JsonObject:
        """The record. Raises Refused (404) when there is none."""
        if ID.fullmatch(id):
            with suppress(OSError, ValueError):
                record = dict(json.loads(self._path(id).read_text("utf-8")))
                if record.pop("owner", self._owner) == self._owner:
                    return record
        raise not_found(self._what, id)

    def remove(self, id: str) -> None:
        """Remove the record."""
        with suppress(FileNotFoundError):
            self._path(id).unlink()

    def all(self) -> list[JsonObject]:
        """All records, the newest first. One that cannot be read is passed over."""
        return sorted(self._read(), key=lambda record: (record["created_at"], record["id"]), reverse=True)

    def _read(self) -> Iterator[JsonObject]:
        for path in self.directory.glob("*.json"):
            with suppress(Refused):
                yield self.get(path.stem)

    def _path(self, id: str) -> Path:
        return self.directory / f"{id}.json"


class KeptFiles:
    """Files by id, as OpenAI's file objects. They survive the server."""

    def __init__(self, directory: Path, owner: str = "") -> None:
        self._records = Records(directory, "file", owner)

    def add(self, source: IO[bytes], filename: str, purpose: str) -> JsonObject:
        """Keep what a client sends. Raises Refused when it is too large."""
        id = new_id()
        path = self.path(id)
        self._records.make_directory()
        size = 0
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            while piece := source.read(PIECE):
                size += len(piece)
                if size > LARGEST_FILE:
                    path.unlink()
                    error = LeapSerializationError(
                        f"the file is larger than {LARGEST_FILE // 1024**2} MiB", path="file"
                    )
                    raise Refused(413, "request_too_large", error)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        return self._records.write(_record(id, filename, purpose, size))

    def adopt(self, id: str, filename: str) -> JsonObject | None:
        """Make known the file that a batch has written under this id; None when it has written none."""
        with suppress(OSError):
            size = self.path(id).stat().st_size
            return self._records.write(_record(id, filename, "batch_output", size)) if size else None
        return None

    def get(self, id: str) -> JsonObject:
        """The file's object. Raises Refused (404)."""
        return self._records.get(id)

    def all(self) -> list[JsonObject]:
        """All file objects, the newest first."""
        return self._records.all()

    def remove(self, id: str) -> None:
        """Remove a file. Raises Refused (404)."""
        self.get(id)
        self._records.remove(id)
        with suppress(FileNotFoundError):
            self.path(id).unlink()

    def path(self, id: str) -> Path:
        """Where its bytes lie."""
        if not ID.fullmatch(id):
            raise not_found("file", id)
        return self._records.directory / f"{id}.jsonl"


def new_id(kind: str = "file-") -> str:
    """A fresh id."""
    return kind + secrets.token_hex(12)


def _record(id: str, filename: str, purpose: str, size: int) -> JsonObject:
    return {
        "id": id,
        "object": "file",
        "bytes": size,
        "created_at": int(time.time()),
        "filename": filename,
        "purpose": purpose,
        "status": "processed",
    }


PURPOSES = ("batch", "user_data", "assistants", "fine-tune", "evals", "vision")
MOST_LISTED = 100
WINDOW = "24h"
LINE = re.compile(r"\bline (\d+)\b")
FINAL = ("completed", "failed", "cancelled", "expired")


@dataclass(frozen=True)
class BatchState:
    """How a batch's job is: ``state`` is queued, running, succeeded, failed or cancelled; times in seconds since 1970,
    None where they have not come. ``counted``: its lines were read, so that a failure is one of lines."""

    state: str
    cancelling: bool = False
    started: float | None = None
    finished: float | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    counted: bool = False
    message: str | None = None


class BatchQueue(Protocol):
    """The queue that the work goes to."""

    def submit(self, settings: BatchSettings, cwd: Path) -> str:
        """Have a batch answered; the job's id. Raises LeapError when its lines cannot be used."""
        ...

    def state(self, job: str) -> BatchState | None:
        """How the job is; None when it is not there any more."""
        ...

    def cancel(self, job: str) -> None:
        """Have it end soon."""
        ...

    def counts(self) -> Mapping[str, int]:
        """How many jobs are in each state."""
        ...

    def jobs(self, limit: int, only: Collection[str] | None = None) -> list[JsonObject]:
        """The newest jobs of all kinds, or of these ids: id, kind, state, percent, label, cancelling."""
        ...


class BatchEndpoints:
    """Files and batches in ``directory``, whose work ``queue`` does. ``urls``: what the pictures and sounds of lines
    may be fetched from. ``owner``: whose they are."""

    def __init__(
        self,
        models: LoadedModels,
        queue: BatchQueue,
        directory: Path,
        *,
        urls: UrlAccess = UrlAccess.DATA,
        owner: str = "",
    ) -> None:
        self._models, self._queue, self._urls = models, queue, urls
        self._files = KeptFiles(directory / "files", owner)
        self.records = Records(directory / "batches", "batch", owner)

    def routes(self) -> list[Route]:
        return [
            Route("/v1/files", self.add_file, methods=["POST"]),
            Route("/v1/files", self.list_files),
            Route("/v1/files/{id}", self.file),
            Route("/v1/files/{id}", self.remove_file, methods=["DELETE"]),
            Route("/v1/files/{id}/content", self.content),
            Route("/v1/batches", self.create, methods=["POST"]),
            Route("/v1/batches", self.list_batches),
            Route("/v1/batches/{id}", self.batch),
            Route("/v1/batches/{id}/cancel", self.cancel, methods=["POST"]),
        ]

    async def add_file(self, request: Request) -> Response:
        """Keep a file: a form with ``file`` and ``purpose``."""
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > LARGEST_FILE + 65536:
            error = LeapSerializationError(f"the file is larger than {LARGEST_FILE // 1024**2} MiB", path="file")
            raise Refused(413, "request_too_large", error)
        try:
            async with request.form(max_files=1, max_fields=16, max_part_size=64 * 1024) as form:
                file, purpose = form.get("file"), form.get("purpose")
                if not isinstance(file, UploadFile):
                    raise LeapSerializationError("expected a file", path="file")
                if purpose not in PURPOSES:
                    raise LeapSerializationError(f"{purpose!r} is not one of {', '.join(PURPOSES)}", path="purpose")
                name = file.filename or "file.jsonl"
                return AsciiJSON(await STORE.run(self._files.add, file.file, name, str(purpose)))
        except ClientDisconnect:
            raise LeapSerializationError("the connection ended within the request", path="body") from None
        except HTTPException as error:  # starlette's word for a damaged form
            raise LeapSerializationError(f"the form cannot be read: {error.detail}", path="body") from None

    async def list_files(self, request: Request) -> Response:
        """The files, the newest first; those of a ``purpose`` where one is named."""
        purpose = request.query_params.get("purpose")
        files = await STORE.run(self._files.all)
        return _listed(request, [file for file in files if purpose in (None, file["purpose"])])

    async def file(self, request: Request) -> Response:
        """One file's object."""
        return AsciiJSON(await STORE.run(self._files.get, request.path_params["id"]))

    async def remove_file(self, request: Request) -> Response:
        """Remove a file."""
        id = request.path_params["id"]
        await STORE.run(self._files.remove, id)
        return AsciiJSON({"id": id, "object": "file", "deleted": True})

    async def content(self, request: Request) -> Response:
        """A file's bytes."""
        id = request.path_params["id"]
        await STORE.run(self._files.get, id)
        return FileResponse(self._files.path(id), media_type="application/octet-stream")

    async def create(self, request: Request) -> Response:
        """Have the lines of a file answered."""
        body = object_at(await read_json(request), "body")
        input_id = text_at(body.get("input_file_id"), "input_file_id")
        await STORE.run(self._files.get, input_id)
        endpoint = text_at(body.get("endpoint"), "endpoint")
        if endpoint not in URLS:
            supported = " and ".join(URLS)
            raise LeapSerializationError(f"{endpoint!r} is not supported, only {supported} are", path="endpoint")
        line = await STORE.run(first_line, self._files.path(input_id))
        if line.get("url", endpoint) != endpoint:
            raise LeapSerializationError(f"the lines are for {line['url']!r}", path="endpoint")
        metadata = body.get("metadata")
        record: JsonObject = {
            "id": new_id("batch_"),
            "endpoint": endpoint,
            "input_file_id": input_id,
            "metadata": None if metadata is None else object_at(metadata, "metadata"),
            "completion_window": body.get("completion_window") or WINDOW,
            "created_at": int(time.time()),
            "output_file_id": new_id(),
            "error_file_id": new_id(),
            "job": None,
            "error": None,
        }
        settings = BatchSettings(
            str(self._files.path(input_id)),
            str(self._files.path(record["output_file_id"])),
            format="openai",
            errors=str(self._files.path(record["error_file_id"])),
            urls=self._urls,
            own_clients=False,
        )
        cwd = Path.cwd()
        if endpoint == EMBEDDINGS_URL:
            named = text_at(object_at(line.get("body"), "body").get("model"), "body.model")
            check_name(named)  # the other lines name the same, or the batch is refused
        else:
            name = body.get("model") or object_at(line.get("body", {}), "body").get("model")
            name = None if name is None else text_at(name, "model")
            single = len(self._models.served) == 1 and self._models.offer is None
            model = await self._models.described(None if single else name)
            settings, cwd = answered_by(model, name, settings), model.load_request.cwd or cwd
        try:
            record["job"] = await STORE.run(self._queue.submit, settings, cwd)
        except LeapSerializationError as error:
            message = error.message.replace(settings.source, input_id)  # no path of this machine
            line_number = LINE.search(message)
            record["error"] = {
                "code": status_of(error)[2],
                "message": message,
                "param": None,
                "line": None if line_number is None else int(line_number[1]),
            }
        await STORE.run(self.records.write, record)
        return AsciiJSON(await STORE.run(self._described, record))

    async def list_batches(self, request: Request) -> Response:
        """The batches, the newest first."""

        def described() -> list[JsonObject]:
            return [self._described(record) for record in self.records.all()[:MOST_LISTED]]

        return _listed(request, await STORE.run(described))

    async def batch(self, request: Request) -> Response:
        """One batch, and how far it is."""
        record = await STORE.run(self.records.get, request.path_params["id"])
        return AsciiJSON(await STORE.run(self._described, record))

    async def cancel(self, request: Request) -> Response:
        """End a batch. What was answered by then can be fetched."""
        record = await STORE.run(self.records.get, request.path_params["id"])
        if record["job"] is not None and "final" not in record:
            await STORE.run(self._queue.cancel, record["job"])
        return AsciiJSON(await STORE.run(self._described, record))

    def _described(self, record: JsonObject) -> JsonObject:
        """The batch's object. Waits for the disk, and keeps how the batch ended."""
        if "final" in record:
            return dict(record["final"])
        state = None if record["job"] is None else self._state(record["job"])
        value = _batch(record, state)
        if value["status"] in FINAL:
            for name, title in (("output_file_id", "output"), ("error_file_id", "errors")):
                if self._files.adopt(record[name], f"{record['id']}_{title}.jsonl") is None:
                    value[name] = None
            self.records.write({**record, "final": value})
        return value

    def _state(self, job: str) -> BatchState | None:
        try:
            return self._queue.state(job)
        except LeapError:  # the table of jobs cannot be read just now
            return BatchState("queued")


def loading_of(model: LoadedModel) -> JsonObject:
    """How the server loads a model, as fields of ModelLoadingOptions."""
    names = ("context_size", "cpu_threads", "n_gpu_layers", "chat_template")
    loading = {name: value for name in names if (value := getattr(model.load_request, name)) is not None}
    return {**loading, **(model.load_request.details or {})}


def answered_by(model: LoadedModel, name: str | None, settings: BatchSettings) -> BatchSettings:
    """The settings with a model as the server holds it, and with the adapters behind its ``name``."""
    loading = loading_of(model)
    adapters = model.named_adapters(name)
    answers_to = [model.name, *sorted(model.references)]
    if adapters is not None and name is not None:
        loading["adapters"] = [adapter.to_json() for adapter in adapters]
        answers_to = [name]  # the model alone is another
    return replace(
        settings,
        model=model.load_request.reference,
        loading=loading,
        concurrency=model.options.slots,
        answers_to=tuple(answers_to),
    )


def _batch(record: JsonObject, state: BatchState | None) -> JsonObject:
    """OpenAI's batch object."""
    status = _status(record, state)
    state = state or BatchState("")
    finished = None if state.finished is None else int(state.finished)
    errors = record["error"] or (
        {"code": "failed", "message": state.message, "param": None, "line": None} if status == "failed" else None
    )
    final = status in FINAL
    return {
        "id": record["id"],
        "object": "batch",
        "endpoint": record.get("endpoint", CHAT_URL),
        "errors": None if errors is None else {"object": "list", "data": [errors]},
        "input_file_id": record["input_file_id"],
        "completion_window": record["completion_window"],
        "status": status,
        "output_file_id": record["output_file_id"] if final else None,
        "error_file_id": record["error_file_id"] if final else None,
        "created_at": record["created_at"],
        "in_progress_at": None if state.started is None else int(state.started),
        "expires_at": None,
        "completed_at": finished if status == "completed" else None,
        "failed_at": (finished or record["created_at"]) if status == "failed" else None,
        "cancelled_at": finished if status == "cancelled" else None,
        "request_counts": {"total": state.total, "completed": state.completed, "failed": state.failed},
        "metadata": record["metadata"],
    }


def _status(record: JsonObject, state: BatchState | None) -> str:
    if record["error"] is not None:
        return "failed"
    if state is None:
        return "expired"
    if state.state == "succeeded" or (state.state == "failed" and state.counted):  # its lines failed, not the batch
        return "completed"
    if state.state in ("failed", "cancelled"):
        return state.state
    return "cancelling" if state.cancelling else "in_progress"


def _listed(request: Request, items: list[JsonObject]) -> Response:
    """A page of objects: ``after`` an id, at most ``limit``."""
    limit = request.query_params.get("limit", "20")
    if not limit.isdigit() or not 1 <= int(limit) <= 10_000:
        raise LeapSerializationError("expected a number from 1 to 10000", path="limit")
    ids = [item["id"] for item in items]
    after = request.query_params.get("after")
    begin = ids.index(after) + 1 if after in ids else 0
    page = items[begin : begin + int(limit)]
    return AsciiJSON(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": begin + len(page) < len(items),
        }
    )


class JobEndpoints:
    """The jobs that the page shows: those of ``records``, which this server has made for its clients, or with None all
    of the user, for a server that was started to show them. Pages of other origins are refused."""

    def __init__(self, queue: BatchQueue, records: Sequence[Records] | None) -> None:
        self._queue, self._records = queue, records

    def routes(self) -> list[Route]:
        return [
            Route("/leap/jobs", self.list_jobs),
            Route("/leap/jobs/{id}/cancel", self.cancel_job, methods=["POST"]),
        ]

    async def list_jobs(self, request: Request) -> Response:
        """Jobs of all kinds, unfinished ones first, and how many more there are."""
        refuse_other_origins(request)
        own = await STORE.run(self._own)
        jobs = await STORE.run(self._queue.jobs, MOST_LISTED, own)
        count = sum((await STORE.run(self._queue.counts)).values()) if own is None else len(own)
        return AsciiJSON({"jobs": jobs, "more": max(0, count - len(jobs)) if len(jobs) == MOST_LISTED else 0})

    async def cancel_job(self, request: Request) -> Response:
        """End a job of any kind."""
        refuse_other_origins(request)
        id = request.path_params["id"]
        own = await STORE.run(self._own)
        if own is not None and id not in own:
            raise not_found("job", id)
        await STORE.run(self._queue.cancel, id)
        return AsciiJSON({"cancelling": id})

    def _own(self) -> set[str] | None:
        if self._records is None:
            return None
        return {record["job"] for records in self._records for record in records.all() if record.get("job")}

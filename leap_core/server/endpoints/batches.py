"""OpenAI's files and batches: kept in a directory, answered in the background, fetched when done.

The work is a job of leap's own queue, so it survives this server; the records lie on the disk, so they do too.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from ...batch.input.lines import CHAT_URL, URLS, first_line
from ...batch.settings import BatchSettings
from ...conversation.media.fetching import UrlAccess
from ...errors import LeapSerializationError
from ...protocols.openai.embeddings import EMBEDDINGS_URL
from ...protocols.openai.replies import status_of
from ...schemas.json_values import JsonObject, object_at, text_at
from ..http import STORE, AsciiJSON, Refused, read_json
from ..job_queue import BatchState, JobQueue, answered_by
from ..models.abilities import check_name
from ..models.loaded_models import LoadedModels
from ..records import ID, Records, new_id, not_found, page_of

LARGEST_FILE = 1024**3
PIECE = 1 << 20


class KeptFiles:
    """Files by id, as OpenAI's file objects. They survive the server."""

    def __init__(self, directory: Path, owner: str = "") -> None:
        self.records = Records(directory, "file", owner)

    def add(self, source: IO[bytes], filename: str, purpose: str) -> JsonObject:
        """Keep what a client sends. Raises Refused when it is too large."""
        id = new_id()
        path = self.path(id)
        self.records.make_directory()
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
        return self.records.write(_record(id, filename, purpose, size))

    def adopt(self, id: str, filename: str) -> JsonObject | None:
        """Make known the file that a batch has written under this id; None when it has written none."""
        with suppress(OSError):
            size = self.path(id).stat().st_size
            return self.records.write(_record(id, filename, "batch_output", size)) if size else None
        return None

    def remove(self, id: str) -> None:
        """Remove a file. Raises Refused (404)."""
        self.records.get(id)
        self.records.remove(id)
        with suppress(FileNotFoundError):
            self.path(id).unlink()

    def path(self, id: str) -> Path:
        """Where its bytes lie."""
        if not ID.fullmatch(id):
            raise not_found("file", id)
        return self.records.directory / f"{id}.jsonl"


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
MOST_LISTED = 10_000
WINDOW = "24h"
LINE = re.compile(r"\bline (\d+)\b")
FINAL = ("completed", "failed", "cancelled", "expired")


class BatchEndpoints:
    """Files and batches in ``directory``, whose work ``queue`` does. ``urls``: what the images and audio of lines
    may be fetched from. ``owner``: whose they are."""

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
        files = await STORE.run(self._files.records.all)
        page, ends = page_of(
            [file for file in files if purpose in (None, file["purpose"])], request.query_params, MOST_LISTED
        )
        return AsciiJSON({"object": "list", "data": page, **ends})

    async def file(self, request: Request) -> Response:
        """One file's object."""
        return AsciiJSON(await STORE.run(self._files.records.get, request.path_params["id"]))

    async def remove_file(self, request: Request) -> Response:
        """Remove a file."""
        id = request.path_params["id"]
        await STORE.run(self._files.remove, id)
        return AsciiJSON({"id": id, "object": "file", "deleted": True})

    async def content(self, request: Request) -> Response:
        """A file's bytes."""
        id = request.path_params["id"]
        await STORE.run(self._files.records.get, id)
        return FileResponse(self._files.path(id), media_type="application/octet-stream")

    async def create(self, request: Request) -> Response:
        """Have the lines of a file answered."""
        body = object_at(await read_json(request), "body")
        input_id = text_at(body.get("input_file_id"), "input_file_id")
        await STORE.run(self._files.records.get, input_id)
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
        settings = BatchSettings.of(
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
            message = error.message.replace(settings.input.source, input_id)  # no path of this machine
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

        def listed() -> JsonObject:
            page, ends = page_of(self.records.all(), request.query_params, MOST_LISTED)
            return {"object": "list", "data": [self._described(record) for record in page], **ends}

        return AsciiJSON(await STORE.run(listed))

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
        state = None if record["job"] is None else self._queue.state(record["job"])
        value = _batch(record, state)
        if value["status"] in FINAL:
            for name, title in (("output_file_id", "output"), ("error_file_id", "errors")):
                if self._files.adopt(record[name], f"{record['id']}_{title}.jsonl") is None:
                    value[name] = None
            self.records.write({**record, "final": value})
        return value


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

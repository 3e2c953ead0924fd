"""Files that clients gave, and that batches made: kept in a directory, each with a record of what it is."""

from __future__ import annotations

from ....json_fields import JsonObject
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ....errors import LeapModelNotFoundError, LeapSerializationError
from ....storage.atomic_files import replace_text
from ..sending.http_errors import Refused


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
    belong to ``owner``, and are not there for another; those of earlier revisions have none."""

    def __init__(self, directory: Path, what: str, owner: str = "") -> None:
        self.directory, self._what, self._owner = directory, what, owner

    def make_directory(self) -> None:
        """Make the directory and the one around it, for this user alone."""
        for each in (self.directory.parent, self.directory):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)
            each.chmod(0o700)

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

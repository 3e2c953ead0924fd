"""What a server keeps for its clients by ids, on the disk, and how a client reads a list of it page by page."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import LeapModelNotFoundError, LeapSerializationError
from ..schemas.json_values import JsonObject
from ..system.directories import private_directory
from ..system.files import replace_text
from .http import Refused

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


def new_id(kind: str = "file-") -> str:
    """A fresh id."""
    return kind + secrets.token_hex(12)


def page_of(
    items: Sequence[JsonObject], query: Mapping[str, str], most: int, cursor: str = ""
) -> tuple[list[JsonObject], JsonObject]:
    """The items that a query asks for: beyond the id ``after``, or just ahead of ``before``, at most ``limit``, from 1
    to ``most``; and what an answer says about the page. ``cursor``: what the names of both ids end with. Raises
    LeapSerializationError."""
    limit = query.get("limit", "20")
    if not re.fullmatch(r"\d{1,9}", limit) or not 1 <= int(limit) <= most:
        raise LeapSerializationError(f"expected a number from 1 to {most}", path="limit")
    ids = [item["id"] for item in items]
    after, before = query.get(f"after{cursor}"), query.get(f"before{cursor}")
    begin = ids.index(after) + 1 if after in ids else 0
    if before in ids:
        end = ids.index(before)
        chosen = slice(max(begin, end - int(limit)), end)
    else:
        end = len(ids)
        chosen = slice(begin, begin + int(limit))
    page = ids[chosen]
    ends = {"first_id": page[0] if page else None, "last_id": page[-1] if page else None}
    return list(items[chosen]), {"has_more": end - begin > len(page), **ends}

"""What responses said, so that a request can go on from one by its id, or fetch it again."""

from __future__ import annotations

from ....json_fields import JsonObject
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any

from ....errors import LeapSerializationError
from ..sending.http_errors import Refused
from .kept_files import Records, not_found, owner_of


MOST_KEPT = 1000
"""Responses in memory; the oldest are forgotten."""


class KeptResponses:
    """Responses by their ids, each an object: ``messages`` are the chat messages that it ends, ``body`` the response,
    ``input`` what was asked. ``records`` keeps those that are asked to be kept for good; it waits for the disk."""

    def __init__(self, records: Records | None = None) -> None:
        self._records = records
        self._guard = threading.Lock()
        self._memory: OrderedDict[str, JsonObject] = OrderedDict()

    def keep(self, record: JsonObject, *, durable: bool) -> str | None:
        """Keep a response in memory, or for good where ``durable``; why that could not be done, if it could not."""
        problem = None
        if durable and self._records is not None:
            try:
                self._records.write(record)
                return None
            except OSError as error:
                problem = f"the response is kept in memory only: it cannot be written: {error.strerror or error}"
        with self._guard:
            self._memory[record["id"]] = record
            while len(self._memory) > MOST_KEPT:
                self._memory.popitem(last=False)
        return problem

    def get(self, id: str) -> JsonObject:
        """A response. Raises Refused (404) where it is not kept."""
        with self._guard:
            record = self._memory.get(id)
        if record is None and self._records is not None:
            return self._records.get(id)
        if record is None:
            raise not_found("response", id)
        return record

    def remove(self, id: str) -> None:
        """Forget a response. Raises Refused (404)."""
        self.get(id)
        with self._guard:
            self._memory.pop(id, None)
        if self._records is not None:
            self._records.remove(id)

    def history(self, id: str) -> list[JsonObject]:
        """The messages up to and with this response. Raises LeapSerializationError when it is not kept, or has not
        ended."""
        record: JsonObject = {}
        with suppress(Refused):
            record = self.get(id)
        if not record or "items" in record:
            raise LeapSerializationError(f"there is no response {id!r}", path="previous_response_id")
        if "messages" not in record:
            raise LeapSerializationError(f"the response {id!r} has not ended", path="previous_response_id")
        return list(record["messages"])


def durable_responses(directory: Path, api_key: str | None) -> KeptResponses:
    """Responses of which those that are asked to be kept (``store: true``) lie in this directory, by their random ids,
    for servers of the same key. Nothing else can be named by an id: neither sessions nor files."""
    return KeptResponses(Records(directory, "response", owner_of(api_key)))

"""What responses said, so that a request can go on from one by its id."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ....errors import LeapError, LeapSerializationError, LeapUnavailableError
from ..sending.http_errors import Refused
from .kept_files import Records, owner_of

JsonObject = dict[str, Any]

MOST_KEPT = 1000
"""Responses in memory; the oldest are forgotten."""


class KeptResponses:
    """Chat messages by the id of the response they end with. ``store`` keeps those that are asked to be kept for good,
    ``recall`` finds them again (None: there is none)."""

    def __init__(
        self,
        store: Callable[[str, Sequence[JsonObject], str], object] | None = None,
        recall: Callable[[str], list[JsonObject] | None] = lambda _id: None,
    ) -> None:
        self._store, self._recall = store, recall
        self._guard = threading.Lock()
        self._messages: OrderedDict[str, list[JsonObject]] = OrderedDict()

    def keep(self, id: str, messages: list[JsonObject], *, durable: bool, model: str) -> str | None:
        """Keep a conversation in memory, and for good where ``durable``; why that could not be done, if it could not.
        It waits for the disk."""
        with self._guard:
            self._messages[id] = messages
            while len(self._messages) > MOST_KEPT:
                self._messages.popitem(last=False)
        if durable and self._store is not None:
            try:
                self._store(id, messages, model)
            except LeapError as error:
                return f"the response is kept in memory only: {error.message}"
        return None

    def history(self, id: str) -> list[JsonObject]:
        """The messages up to and with this response. Raises LeapSerializationError when it is not kept."""
        with self._guard:
            messages = self._messages.get(id)
        if messages is None:
            messages = self._recall(id)
        if messages is None:
            raise LeapSerializationError(f"there is no response {id!r}", path="previous_response_id")
        return messages


def durable_responses(directory: Path, api_key: str | None) -> KeptResponses:
    """Responses of which those that are asked to be kept (``store: true``) lie in this directory, by their random ids,
    for servers of the same key. Nothing else can be named by an id: neither sessions nor files."""
    records = Records(directory, "response", owner_of(api_key))

    def store(id: str, messages: Sequence[JsonObject], model: str) -> None:
        try:
            records.write({"id": id, "created_at": int(time.time()), "model": model, "messages": list(messages)})
        except OSError as error:
            raise LeapUnavailableError(f"it cannot be written: {error.strerror or error}") from None

    def recall(id: str) -> list[JsonObject] | None:
        with suppress(Refused):
            return list(records.get(id)["messages"])
        return None

    return KeptResponses(store, recall)

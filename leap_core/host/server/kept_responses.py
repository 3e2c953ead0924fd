"""What responses said, so that a request can go on from one by its id."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...errors import LeapError, LeapSerializationError
from ...messages import messages_from_json

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


def durable_responses(sessions_file: Path) -> KeptResponses:
    """Responses of which those that are asked to be kept (``store: true``) are sessions in this file, by their ids."""

    def store(id: str, messages: Sequence[JsonObject], model: str) -> None:
        from ...sessions.store import SessionStore

        with SessionStore(sessions_file) as sessions:
            session = sessions.create(model=model, name=id)
            sessions.replace(session.id, messages_from_json(list(messages)))

    def recall(id: str) -> list[JsonObject] | None:
        from ...sessions.store import SessionStore

        if not sessions_file.exists():
            return None
        with SessionStore(sessions_file) as sessions:
            session = sessions.get(id)
            history = [] if session is None else sessions.history(session.id)
            return [message.to_json() for message in history] or None

    return KeptResponses(store, recall)

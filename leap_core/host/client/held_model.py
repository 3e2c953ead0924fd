"""A model that the host holds, as long as this process uses it; it is loaded again when the host has unloaded it."""

from __future__ import annotations

from ...json_fields import JsonObject
import threading
from collections.abc import Callable
from typing import Any

from ...errors import LeapError, LeapGenerationError, LeapModelNotFoundError, LeapUnavailableError
from .host_connection import ModelHost
from .http import Answer


LoadAgain = Callable[[ModelHost, JsonObject], tuple[ModelHost, JsonObject]]


class HeldModel:
    """``description``: the model as the host describes it. ``load_again`` has it loaded once more. For any thread."""

    def __init__(self, host: ModelHost, description: JsonObject, load_again: LoadAgain) -> None:
        self.host, self.description = host, description
        self._load_again = load_again
        self._guard = threading.Lock()

    def open(self, path: str, request: JsonObject, *, timeout: float | None) -> Answer:
        """A request to this model. Raises what the host answers, LeapGenerationError when it cannot be loaded again."""
        try:
            return self._open(path, request, timeout)
        except (LeapModelNotFoundError, LeapUnavailableError):  # it went, or its host did, since it was last used
            self._revive()
        return self._open(path, request, timeout)

    def _open(self, path: str, request: JsonObject, timeout: float | None) -> Answer:
        return self.host.open("POST", path, {"model": self.description["key"], **request}, timeout=timeout)

    def _revive(self) -> None:
        try:
            host, description = self._load_again(self.host, self.description)
        except LeapError as error:
            message = f"the model is no longer warm and cannot be loaded again: {error.message}"
            raise LeapGenerationError(message, hint=error.hint) from None
        with self._guard:
            self.host, self.description = host, description

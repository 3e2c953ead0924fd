"""A model for vectors that the host holds, as an EmbeddingRunner."""

from __future__ import annotations

from ...json_fields import JsonObject
import re
import threading
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from ...error_json import error_from_json
from ...errors import LeapError, LeapGenerationError, LeapOptionsError
from ...openai.embeddings import decoded
from ...runner.embedding import EmbeddingKind, EmbeddingRequest, EmbeddingRunner, parts_of
from .held_model import HeldModel
from .http import Answer

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


TEXTS_AT_ONCE = 32
MOST_CHARACTERS = 4_000_000
"""The texts of one request have at most these characters together."""
LOOK_SECONDS = 0.05
NUMBERED = re.compile(r"texts\[(\d+)\]")


class RemoteEmbeddingRunner(EmbeddingRunner):
    """``unload`` only lets go of the model: the host keeps it for others."""

    def __init__(self, model: HeldModel) -> None:
        self._model = model
        self._unloaded = threading.Event()

    @property
    def model_id(self) -> str:
        return str(self._model.description["model"])

    @property
    def fingerprint(self) -> bytes:
        return bytes.fromhex(self._about["fingerprint"])

    @property
    def dimensions(self) -> int:
        return int(self._about["dimensions"])

    @property
    def most_tokens(self) -> int:
        return int(self._about["most_tokens"])

    @property
    def pools(self) -> bool:
        return bool(self._about["pools"])

    @property
    def is_late(self) -> bool:
        return bool(self._about["is_late"])

    @property
    def _about(self) -> JsonObject:
        about: JsonObject = self._model.description["embedding"]
        return about

    def count_tokens(self, texts: Sequence[str], kind: EmbeddingKind | str = EmbeddingKind.DOCUMENT) -> list[int]:
        counts: list[int] = []
        for part in parts_of(texts, TEXTS_AT_ONCE, MOST_CHARACTERS):
            counts += self._ask("/leap/count", {"texts": part, "kind": _value(kind)})["tokens"]
        return counts

    def _embed(self, request: EmbeddingRequest) -> NDArray[float32]:
        import numpy as np

        fields = {"pooling": _value(request.pooling), "dimensions": request.dimensions}
        rows = self._rows(request, fields)
        return np.concatenate(rows) if rows else np.zeros((0, request.dimensions or self.dimensions), np.float32)

    def _embed_tokens(self, request: EmbeddingRequest) -> list[NDArray[float32]]:
        return self._rows(request, {"each_token": True})

    def unload(self) -> None:
        self._unloaded.set()

    def _rows(self, request: EmbeddingRequest, fields: JsonObject) -> list[NDArray[float32]]:
        """The rows of each text."""
        import numpy as np

        fields = {
            **fields,
            "kind": _value(request.kind),
            "prefix": request.prefix,
            "too_long": _value(request.too_long),
        }
        fields = {name: value for name, value in fields.items() if value is not None}
        done: list[NDArray[float32]] = []
        for part in parts_of(request.texts, TEXTS_AT_ONCE, MOST_CHARACTERS):
            answered = self._ask("/leap/embed", {"texts": part, **fields}, request.cancelled)
            if "error" in answered:
                raise _renumbered(error_from_json(answered["error"]), len(done))
            rows = decoded(answered["vectors"])
            rows = rows.reshape(sum(answered["rows"]), -1) if len(rows) else rows.reshape(0, self.dimensions)
            done += np.split(rows, np.cumsum(answered["rows"])[:-1])
            if request.on_progress is not None:
                request.on_progress(len(done))
        return done

    def _ask(self, path: str, request: JsonObject, cancelled: threading.Event | None = None) -> JsonObject:
        """What the host answers. When the call is cancelled or the model unloaded, the connection ends, and with it the
        work there: LeapGenerationError."""
        if self._unloaded.is_set():
            raise LeapGenerationError("the model is unloaded", hint="load it again")
        done = threading.Event()
        with self._model.open(path, request, timeout=None) as answer:
            threading.Thread(target=self._watch, args=(answer, done, cancelled), daemon=True).start()
            try:
                answered: JsonObject = answer.json()
                return answered
            except OSError:
                if cancelled is not None and cancelled.is_set():
                    raise LeapGenerationError("the embedding was cancelled") from None
                if self._unloaded.is_set():
                    raise LeapGenerationError("the model was unloaded during the embedding") from None
                raise self._model.host.lost(LeapGenerationError, "during the embedding") from None
            finally:
                done.set()

    def _watch(self, answer: Answer, done: threading.Event, cancelled: threading.Event | None) -> None:
        """End the connection when the answer is not wanted any more."""
        while not done.wait(LOOK_SECONDS):
            if self._unloaded.is_set() or (cancelled is not None and cancelled.is_set()):
                answer.shut()
                return


def _value(choice: Enum | str | None) -> str | None:
    return choice.value if isinstance(choice, Enum) else choice


def _renumbered(error: LeapError, first: int) -> LeapError:
    """An error about a text, which has its number in the request, with its number in the call."""
    if not isinstance(error, LeapOptionsError) or (match := NUMBERED.fullmatch(error.option)) is None:
        return error
    return LeapOptionsError(f"texts[{int(match[1]) + first}]", error.reason)

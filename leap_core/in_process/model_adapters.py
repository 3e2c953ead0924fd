"""The adapters of one loaded model: read once each, found again by their content."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from ..engine.request import Adapters
from ..errors import LeapModelLoadingError, LeapModelNotFoundError
from ..llama.lora_adapter import LlamaAdapter, content_id
from ..llama.model import LlamaModel
from ..load_check.subject import ADAPTER, MODEL, Subject
from ..load_check.trying import require_sound
from ..models.gguf.header import read_gguf_header
from ..options.adapters import LoraAdapter


def require_sound_adapter(path: Path, model: Path) -> None:
    """Make sure that llama.cpp survives an adapter of a model: by its header, then by a trial in a child process
    unless it was tried before. Raises LeapModelNotFoundError and LeapModelLoadingError."""
    from ..models.gguf.adapter_checks import check_adapter

    if not path.exists():
        raise LeapModelNotFoundError(f"there is no adapter {path}")
    check_adapter(read_gguf_header(path), read_gguf_header(model))
    require_sound(Subject(path, ADAPTER, {MODEL: model}))


class ModelAdapters:
    """Loads adapters for ``model``, with which they are freed. Any thread may call."""

    def __init__(self, model: LlamaModel) -> None:
        self._model = model
        self._guard = threading.Lock()
        self._by_id: dict[bytes, LlamaAdapter] = {}
        self._by_place: dict[tuple[Path, int, int, int], LlamaAdapter] = {}

    def load(self, adapters: Sequence[LoraAdapter]) -> Adapters:
        """The adapters in memory, with their scales; those with the scale 0 are left out, as they change nothing. One
        that is new here is tried in a child process before.

        Raises LeapModelNotFoundError and LeapModelLoadingError.
        """
        return tuple((self._load(each.path), float(each.scale)) for each in adapters if each.scale != 0)

    def _load(self, path: Path) -> LlamaAdapter:
        try:
            status = path.stat()
            place = (path.absolute(), status.st_ino, status.st_size, status.st_mtime_ns)
            if place not in self._by_place:
                require_sound_adapter(path, self._model.path)
            with self._guard:
                adapter = self._by_place.get(place)
                if adapter is None:
                    adapter = self._by_id.get(content_id(path)) or LlamaAdapter(path, self._model)
                    self._by_place[place] = self._by_id[adapter.id] = adapter
                return adapter
        except FileNotFoundError:
            raise LeapModelNotFoundError(f"there is no adapter {path}") from None
        except OSError as error:
            raise LeapModelLoadingError(f"cannot read the adapter {path}: {error.strerror or error}") from None

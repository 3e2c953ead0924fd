"""The adapters of one loaded model: read once each, found again by their content."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from ..engine.request import Adapters
from ..errors import LeapModelLoadingError, LeapModelNotFoundError
from ..llama.adapters import LlamaAdapter, content_id
from ..llama.model import LlamaModel
from ..models.gguf.header import read_gguf_header
from ..options.adapters import LoraAdapter


class ModelAdapters:
    """Loads adapters for ``model``, with which they are freed. Any thread may call."""

    def __init__(self, model: LlamaModel) -> None:
        self._model = model
        self._guard = threading.Lock()
        self._by_id: dict[bytes, LlamaAdapter] = {}
        self._by_place: dict[tuple[Path, int, int, int], LlamaAdapter] = {}

    def load(self, adapters: Sequence[LoraAdapter]) -> Adapters:
        """The adapters in memory, with their scales; those with the scale 0 are left out, as they change nothing.

        Raises LeapModelNotFoundError and LeapModelLoadingError.
        """
        return tuple((self._load(each.path), float(each.scale)) for each in adapters if each.scale != 0)

    def _load(self, path: Path) -> LlamaAdapter:
        try:
            status = path.stat()
            place = (path.absolute(), status.st_ino, status.st_size, status.st_mtime_ns)
            with self._guard:
                adapter = self._by_place.get(place)
                if adapter is None:
                    adapter = self._by_id.get(content_id(path)) or self._read(path)
                    self._by_place[place] = self._by_id[adapter.id] = adapter
                return adapter
        except FileNotFoundError:
            raise LeapModelNotFoundError(f"there is no adapter {path}") from None
        except OSError as error:
            raise LeapModelLoadingError(f"cannot read the adapter {path}: {error.strerror or error}") from None

    def _read(self, path: Path) -> LlamaAdapter:
        from ..models.gguf.adapter_checks import check_adapter

        check_adapter(read_gguf_header(path), read_gguf_header(self._model.path))
        return LlamaAdapter(path, self._model)

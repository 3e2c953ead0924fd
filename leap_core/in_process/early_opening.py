"""A model's weights, read by a thread of its own while the modules that use them are still being imported: llama.cpp
holds no lock of Python's meanwhile, so a second core saves a third of the time to the first token."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ..llama.library import set_variables
from ..options import ModelLoadingOptions
from .gpu_layers import gpu_layers_for

if TYPE_CHECKING:
    from ..llama.model import LlamaModel


class EarlyOpening:
    """Begins at once to open the checked GGUF at ``path``. Who begins it takes the model or closes the opening."""

    def __init__(self, path: Path, options: ModelLoadingOptions) -> None:
        set_variables()  # before anything imports numpy
        self._path, self._options = path, options
        self._model: LlamaModel | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._open, name="leap-open")
        self._thread.start()

    def _open(self) -> None:
        try:
            from ..llama.model import LlamaModel

            options = self._options.with_extras()
            layers = gpu_layers_for(self._path, options)
            self._model = LlamaModel(self._path, n_gpu_layers=layers, use_mmap=options.use_mmap)
        except BaseException as error:
            self._error = error

    def take(self) -> LlamaModel:
        """The model, which is then the caller's to close. Raises what opening it raised."""
        import jinja2.sandbox  # noqa: F401  the model's users import both, and here they cost nothing
        import numpy  # noqa: F401

        self._thread.join()
        model, self._model = self._model, None
        if model is None:
            assert self._error is not None, "a model is taken once"
            raise self._error
        return model

    def close(self) -> None:
        """Free the model if it was not taken."""
        self._thread.join()
        model, self._model = self._model, None
        if model is not None:
            model.close()

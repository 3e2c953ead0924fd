"""A model's voice, ready to speak: frames of codes from hidden states, and sound from frames."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .code_sampler import CodeSampler
from .detokenizer import Detokenizer
from .file_products import FileProducts
from .frame_maker import Frame, FrameMaker
from .layer_stack import MOST_SPEAKERS, LlamaColumnLayers, LlamaDepthLayers, StackModel
from .numpy_layers import NumpyDepthLayers, NumpyDetokenizerLayers
from .repacked_cache import repacked_files
from .repacking import can_repack
from .vocoder import ATTENTION_WINDOW, COLUMNS_A_FRAME, Vocoder
from .waveform import OVERLAP

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


class Speaker:
    """Speaks with the weights of ``vocoder``.

    ``cache``: directory for the files repacked for llama.cpp. Where none can be written there, or None is given,
    numpy computes: exact as well, three times slower, and ``warning`` says why.
    """

    def __init__(self, vocoder: Vocoder, cache: Path | None) -> None:
        self._vocoder = vocoder
        self.fingerprint = vocoder.file.fingerprint
        self.warning: str | None = None
        self._models = self._load(cache)
        self._guard = threading.Lock()
        self._depth_layers: LlamaDepthLayers | None = None
        self._products = FileProducts(MOST_SPEAKERS)
        self._columns: list[LlamaColumnLayers] = []
        self._idle: list[Detokenizer] = []
        self._closed = False
        try:
            self._frame_maker = self._make_frame_maker()
        except BaseException:
            self.close()
            raise

    @property
    def engine(self) -> str:
        """``llama.cpp`` or ``numpy``."""
        return "llama.cpp" if self._models else "numpy"

    @property
    def end_code(self) -> int:
        """The first code of a frame that ends a sound."""
        return self._vocoder.depthformer.end_code

    @property
    def frame_samples(self) -> int:
        """Samples of a frame's sound."""
        return COLUMNS_A_FRAME * self._vocoder.detokenizer.n_fft // OVERLAP

    @property
    def codebooks(self) -> int:
        """Codes of a frame."""
        return self._vocoder.depthformer.codebooks

    def frames(self, hidden: NDArray[float32], samplers: Sequence[CodeSampler], threads: int = 1) -> list[Frame]:
        """See ``FrameMaker.frames``. From one thread at a time."""
        return self._frame_maker.frames(hidden, samplers, threads)

    def embedding(self, frame: Frame) -> NDArray[float32]:
        """See ``FrameMaker.embedding``. From any thread."""
        return self._frame_maker.embedding(frame)

    def borrow_detokenizer(self) -> Detokenizer:
        """A detokenizer for one stream. Hand it back with ``give_back``."""
        with self._guard:
            if self._idle:
                return self._idle.pop()
        if self._models is None:
            return Detokenizer(self._vocoder, NumpyDetokenizerLayers(self._vocoder, ATTENTION_WINDOW))
        layers = LlamaColumnLayers(self._models[1])
        with self._guard:
            self._columns.append(layers)
        return Detokenizer(self._vocoder, layers)

    def give_back(self, detokenizer: Detokenizer) -> None:
        """The stream is over, or given up."""
        detokenizer.reset()
        with self._guard:
            self._idle.append(detokenizer)  # as many as streams ever ran at once: a context takes 10 ms to make

    def close(self) -> None:
        """Free the memory. Nothing may speak any more."""
        with self._guard:
            if self._closed or self._models is None:
                return
            self._closed = True
            for layers in (*self._columns, self._depth_layers):
                if layers is not None:
                    layers.close()
            for model in self._models:
                model.close()
            self._products.close()

    def _make_frame_maker(self) -> FrameMaker:
        vocoder = self._vocoder
        if self._models is None:
            return FrameMaker(vocoder, NumpyDepthLayers(vocoder))
        exact = vocoder.file.type(vocoder.depthformer_name(0, "feed_forward.w1")) == "F32"
        self._depth_layers = LlamaDepthLayers(self._models[0], vocoder.depthformer, exact=exact)
        return FrameMaker(vocoder, self._depth_layers, self._products.product)

    def _load(self, cache: Path | None) -> tuple[StackModel, StackModel] | None:
        if cache is None:
            return None
        if not can_repack(self._vocoder):
            self.warning = "speech is slower than it could be: llama.cpp does not compute with the vocoder's types"
            return None
        try:
            depthformer, detokenizer = repacked_files(self._vocoder, cache)
        except OSError as error:
            self.warning = f"speech is slower than it could be: cannot write {cache}: {error.strerror or error}"
            return None
        first = StackModel(depthformer)
        try:
            return first, StackModel(detokenizer)
        except BaseException:
            first.close()
            raise

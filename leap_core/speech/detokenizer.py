"""Frames of codes become sound: an embedding for each frame, six columns of it through the layers, a spectrum for each
column, and the waveform of their overlap. Streamed in pieces of any size it gives the same samples as at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from .frame_maker import Frame
from .vocoder import COLUMNS_A_FRAME, Vocoder
from .waveform import Waveform

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


class ColumnLayers(Protocol):
    """The detokenizer's layers, with the memory of one stream."""

    def clear(self) -> None:
        """Begin a new stream."""
        ...

    def run(self, rows: NDArray[float32], threads: int = 1) -> NDArray[float32]:
        """Spectra [n, n_fft + 2] of the stream's next columns from their embeddings [n, width]."""
        ...


class Detokenizer:
    """The sound of one stream of frames. Not for several threads at once."""

    def __init__(self, vocoder: Vocoder, layers: ColumnLayers) -> None:
        self._file = vocoder.file
        self._codes = vocoder.detokenizer.codes
        self._layers = layers
        self._waveform = Waveform(vocoder.window())

    def reset(self) -> None:
        """Begin a new stream."""
        self._layers.clear()
        self._waveform.reset()

    def feed(self, frames: Sequence[Frame], threads: int = 1) -> NDArray[float32]:
        """The samples that these frames complete; the first frame of a stream lacks a quarter, which ``end`` gives."""
        import numpy as np

        if not frames:
            return np.zeros(0, np.float32)
        embeddings = np.stack([self._embedding(frame) for frame in frames])
        columns = self._layers.run(np.repeat(embeddings, COLUMNS_A_FRAME, axis=0), threads)
        return self._waveform.feed(columns)

    def end(self) -> NDArray[float32]:
        """The samples still held back. Afterwards a new stream can begin."""
        tail = self._waveform.end()
        self.reset()
        return tail

    def _embedding(self, frame: Frame) -> NDArray[float32]:
        rows = [codebook * self._codes + code for codebook, code in enumerate(frame)]
        mean: NDArray[float32] = self._file.float32_rows("emb.emb.weight", rows).mean(axis=0)
        return mean

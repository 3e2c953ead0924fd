"""Hidden states become the codes of a frame, and codes become columns of a spectrum.

Per frame: z = depth_linear(hidden), cut into one row for each codebook. The row of codebook j, plus the embedding of
the code chosen for codebook j - 1, goes through the layers at position j; their normalised output gives the logits.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ..llama.matrix import Matrix, UnavailableError
from .repacking import MATRIX_TYPES
from .vocoder import COLUMNS_A_FRAME, TensorFile, Vocoder
from .waveform import Waveform

if TYPE_CHECKING:
    from numpy import float32
    from numpy.random import Generator
    from numpy.typing import NDArray


class CodeSampler:
    """Draws the codes of one utterance. Equal settings, seed and logits give equal codes.

    ``temperature`` 0 or below, or ``top_k`` 1, takes the likeliest code; ``top_k`` 0 keeps all. Codes that tie with
    the ``top_k``-th likeliest are kept too.
    """

    def __init__(self, temperature: float = 0.0, top_k: int = 0, seed: int | None = None) -> None:
        self._temperature = temperature
        self._top_k = top_k
        self._seed = secrets.randbits(63) if seed is None else seed
        self._random: Generator | None = None

    def sample(self, logits: NDArray[float32]) -> int:
        """One code; ``logits`` has the shape [codes] and is not changed."""
        import numpy as np

        if self._temperature <= 0.0 or self._top_k == 1:
            return int(logits.argmax())
        scaled = logits.astype(np.float64) / self._temperature
        codes = np.arange(len(scaled))
        if 0 < self._top_k < len(scaled):
            codes = np.flatnonzero(scaled >= np.partition(scaled, -self._top_k)[-self._top_k])
        weights = np.exp(scaled[codes] - scaled[codes].max())
        cumulative = np.cumsum(weights)
        if self._random is None:
            self._random = np.random.Generator(np.random.PCG64(self._seed))
        index = int(np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right"))
        return int(codes[min(index, len(codes) - 1)])


Frame = tuple[int, ...]
"""One code of each codebook: 80 ms of sound."""


class DepthLayers(Protocol):
    """The depthformer's layers, with the memory of one frame for each of several sequences."""

    most_sequences: int

    def begin(self) -> None:
        """Forget the last frame."""
        ...

    def step(self, rows: NDArray[float32], position: int, threads: int = 1) -> NDArray[float32]:
        """The layers' output for one more row of each sequence, RMS-normalised; shape [sequences, width] both."""
        ...


Product = Callable[["NDArray[float32]", int], "NDArray[float32]"]
"""Rows [n, columns] times a matrix [rows, columns] transposed, with so many threads; the result is the next call's to
overwrite."""


def float32_product(file: TensorFile, name: str) -> Product:
    """Products in float32 with a matrix of ``file``, by numpy."""
    transposed = file.float32(name).T
    return lambda rows, threads: rows @ transposed


class FileProducts:
    """ggml's products, of ``most`` rows at most; numpy's in float32 for matrices of float32, and where ggml cannot be
    had."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._matrices: list[Matrix] = []

    def product(self, file: TensorFile, name: str) -> Product:
        """How rows are multiplied with a matrix of ``file``."""
        from gguf import GGMLQuantizationType

        kind = file.type(name)
        if kind == "F32" or kind not in MATRIX_TYPES:
            return float32_product(file, name)
        try:
            matrix = Matrix(GGMLQuantizationType[kind], file.shape(name)[1], file.rows(name), self._most)
        except UnavailableError:
            return float32_product(file, name)
        self._matrices.append(matrix)
        return matrix.times

    def close(self) -> None:
        """Free the memory."""
        for matrix in self._matrices:
            matrix.close()


class FrameMaker:
    """Makes frames of codes with ``layers`` and, by name, with matrices of the vocoder. Not for several threads at
    once."""

    def __init__(
        self, vocoder: Vocoder, layers: DepthLayers, matrix: Callable[[TensorFile, str], Product] = float32_product
    ) -> None:
        self._layers = layers
        self.shape = shape = vocoder.depthformer
        self._file = file = vocoder.file
        self._linear = matrix(file, "depth_linear.weight")
        self._bias = file.float32("depth_linear.bias")
        starts = [f"depth_embeddings.{codebook}." for codebook in range(shape.codebooks)]
        self._norms = [file.float32(start + "embedding_norm.weight") for start in starts]
        self._heads = [matrix(file, start + "to_logits.weight") for start in starts]

    def frames(self, hidden: NDArray[float32], samplers: Sequence[CodeSampler], threads: int = 1) -> list[Frame]:
        """One frame for each row of ``hidden``, shape [sequences, hidden], made with so many threads. A first code of
        ``end_code`` ends a sound; the frame is then all end codes."""
        frames: list[Frame] = []
        for start in range(0, len(samplers), self._layers.most_sequences):
            end = start + self._layers.most_sequences
            frames += self._batch(hidden[start:end], samplers[start:end], threads)
        return frames

    def embedding(self, frame: Frame) -> NDArray[float32]:
        """What the backbone reads of a frame at its next position, shape [hidden]."""
        rows = [codebook * self.shape.codes + code for codebook, code in enumerate(frame)]
        total: NDArray[float32] = self._file.float32_rows("audio_embedding.embedding.weight", rows).sum(axis=0)
        return total

    def _batch(self, hidden: NDArray[float32], samplers: Sequence[CodeSampler], threads: int) -> list[Frame]:
        shape = self.shape
        inputs = (self._linear(hidden, threads) + self._bias).reshape(len(samplers), shape.codebooks, shape.width)
        self._layers.begin()
        chosen: list[list[int]] = [[] for _ in samplers]
        for codebook, (norm, head) in enumerate(zip(self._norms, self._heads, strict=True)):
            rows = inputs[:, codebook]
            if codebook:
                rows = rows + self._file.float32_rows(
                    f"depth_embeddings.{codebook - 1}.embedding.weight", [codes[-1] for codes in chosen]
                )
            normalised = self._layers.step(rows, codebook, threads)
            logits = head(normalised * norm, threads)
            if codebook:
                logits[:, shape.end_code] = -float("inf")  # there only the first codebook's is a code; it is no sound
            for codes, sampler, row in zip(chosen, samplers, logits, strict=True):
                codes.append(sampler.sample(row))
            if not codebook and all(codes[0] == shape.end_code for codes in chosen):
                break
        return [self._frame(codes) for codes in chosen]

    def _frame(self, codes: list[int]) -> Frame:
        end = self.shape.end_code
        return (end,) * self.shape.codebooks if codes[0] == end else tuple(codes)


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

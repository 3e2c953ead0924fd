"""The weights that turn hidden states into sound: LFM2.5-Audio's vocoder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import LeapModelLoadingError
from .shapes import MisshapenError, depthformer_shape, detokenizer_shape
from .vocoder_files import VocoderFiles
from .waveform import hann_window

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

SAMPLE_RATE = 24_000
"""Hz."""
COLUMNS_A_FRAME = 6
"""The detokenizer makes six columns of spectrum from each frame of codes."""
ATTENTION_WINDOW = 30
"""Columns that the detokenizer's attention sees, its own included. The files do not carry it."""
EPSILON = 1e-5
"""All RMS norms add this before the root."""
ROPE_BASE = 1e6


class Vocoder(VocoderFiles):
    """An opened vocoder. ``detokenizer_path``: the file with the detokenizer's layers in the split layout.

    Raises LeapModelLoadingError, naming the file and what is wrong with it.
    """

    def __init__(self, path: Path, detokenizer_path: Path | None = None) -> None:
        super().__init__(path, detokenizer_path)
        try:
            self.depthformer = depthformer_shape(self)
        except MisshapenError as error:
            raise _misshapen(path, error) from None
        try:
            self.detokenizer = detokenizer_shape(self, self.depthformer.codebooks)
        except MisshapenError as error:
            raise _misshapen(self.layers_file.path, error) from None
        if self.detokenizer.codes != self.depthformer.codes - 1:
            raise _misshapen(path, MisshapenError("emb.emb.weight"))

    def window(self) -> NDArray[float32]:
        """The window of the inverse Fourier transform, shape [n_fft]."""
        if "istft.window" in self.file:
            return self.file.float32("istft.window")
        return hann_window(self.detokenizer.n_fft)


def _misshapen(path: Path, error: MisshapenError) -> LeapModelLoadingError:
    return LeapModelLoadingError(
        f"{path} is no usable vocoder: the shape of {str(error)!r} does not fit the other tensors",
        hint="download or copy it again",
    )

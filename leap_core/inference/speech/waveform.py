"""Spectra become sound: the inverse short-time Fourier transform, one column after the other.

Each column is a spectrum of ``n_fft`` samples; columns overlap by three quarters. What the first and last columns alone
cover is left out ("same" padding), so that n columns give n * hop samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import float32, float64
    from numpy.typing import NDArray

OVERLAP = 4
LARGEST_LOG_MAGNITUDE = 20.0
"""Damaged weights must not become infinities."""


def hann_window(n_fft: int) -> NDArray[float32]:
    """The periodic Hann window, as LFM2.5-Audio's files hold it."""
    import numpy as np

    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n_fft) / n_fft)).astype(np.float32)


class Waveform:
    """The sound of one stream. ``window``: shape [n_fft]."""

    def __init__(self, window: NDArray[float32]) -> None:
        import numpy as np

        self._window: NDArray[float64] = window.astype(np.float64)
        self._n_fft = len(window)
        self.hop = self._n_fft // OVERLAP
        self.reset()

    def reset(self) -> None:
        """Begin a new stream."""
        import numpy as np

        self._sum = np.zeros(self._n_fft)
        self._weight = np.zeros(self._n_fft)
        self._to_drop = (self._n_fft - self.hop) // 2

    def feed(self, columns: NDArray[float32]) -> NDArray[float32]:
        """Add columns of shape [n, n_fft + 2]: log-magnitudes, then phases in radians. Returns the samples that are
        complete."""
        import numpy as np

        bins = self._n_fft // 2 + 1
        magnitude = np.exp(np.minimum(columns[:, :bins], LARGEST_LOG_MAGNITUDE))
        phase = columns[:, bins:]
        spectrum = magnitude * np.cos(phase) + 1j * (magnitude * np.sin(phase))
        pieces = np.fft.irfft(spectrum, self._n_fft, axis=1) * self._window
        samples = np.concatenate([self._add(piece) for piece in pieces]) if len(pieces) else np.zeros(0)
        return self._without_padding(samples)

    def end(self) -> NDArray[float32]:
        """The samples still held back; the stream is over, and ``reset`` begins another."""
        import numpy as np

        kept = self._n_fft - self.hop - (self._n_fft - self.hop) // 2
        weight = self._weight[:kept]
        is_empty = not weight.any()
        tail = np.zeros(0) if is_empty else self._sum[:kept] / np.maximum(weight, 1e-11)
        samples = self._without_padding(tail)
        self.reset()
        return samples

    def _add(self, piece: NDArray[float64]) -> NDArray[float64]:
        """Overlap one windowed column; returns the ``hop`` samples that no later column reaches."""
        import numpy as np

        self._sum += piece
        self._weight += self._window**2
        ready = self._sum[: self.hop] / np.maximum(self._weight[: self.hop], 1e-11)
        for buffer in (self._sum, self._weight):
            buffer[: -self.hop] = buffer[self.hop :]
            buffer[-self.hop :] = 0.0
        return ready

    def _without_padding(self, samples: NDArray[float64]) -> NDArray[float32]:
        import numpy as np

        dropped = min(self._to_drop, len(samples))
        self._to_drop -= dropped
        return samples[dropped:].astype(np.float32)

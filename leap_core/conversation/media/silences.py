"""Long sound cut at silences: into pieces that fit into one prompt each, or into its phrases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...system.dataclass import dataclass
from .audio import LEAST_SECONDS, RATE

if TYPE_CHECKING:
    from numpy import float32, float64
    from numpy.typing import NDArray

SHORTEST, LONGEST = 20.0, 30.0
"""Seconds of a piece, between which the quietest moment is looked for."""
FRAME = RATE // 50
PAUSE_FRAMES = 10
"""A pause is judged over 0.2 s: shorter ones are parts of words."""
SILENCE = 1e-4
"""Root mean square below which there is nothing to hear (-80 dB of full scale)."""

LONGEST_PAUSE = 0.4
"""Seconds of quiet within a phrase; longer ones part two."""
SHORTEST_SOUND = 0.06
"""Seconds of sound that can be said; shorter ones are clicks."""
MARGIN = 0.1
"""Seconds of quiet that a phrase keeps on each side, for its soft beginning and end."""
QUIETEST = 80.0
"""Decibels below full scale that count as no sound at all, as SILENCE does."""
LEAST_CONTRAST = 10.0
"""Decibels between the loud and the quietest part of a sound that has pauses."""
THRESHOLD = 0.35
"""How far above the quietest part speech begins, as a share of the contrast."""


@dataclass(frozen=True)
class Piece:
    """Samples ``start`` to ``end`` of the whole. ``is_silent``: it has no audible sound."""

    start: int
    end: int
    is_silent: bool = False

    @property
    def seconds(self) -> tuple[float, float]:
        """Start and end in seconds."""
        return self.start / RATE, self.end / RATE


def cut_at_silences(samples: NDArray[float32], *, longest: float = LONGEST) -> list[Piece]:
    """Pieces that cover all samples (mono, 16 kHz) in order, each at most ``longest`` seconds long; a cut is in the
    quietest pause of the last third of what a piece may hold."""
    import numpy as np

    longest = max(longest, 1.0)
    shortest = longest * SHORTEST / LONGEST
    loudness = _loudness(samples)
    edges = [0]
    while len(samples) - edges[-1] > longest * RATE:
        first, last = int(edges[-1] + shortest * RATE) // FRAME, int(edges[-1] + longest * RATE) // FRAME
        window = loudness[first : max(first + 1, last - PAUSE_FRAMES)]
        edges.append((first + int(np.argmin(window)) + PAUSE_FRAMES // 2) * FRAME)
    least = int(LEAST_SECONDS * RATE)
    if len(edges) > 1 and len(samples) - edges[-1] < least:
        edges[-1] -= least  # what is left would be too short to be heard
    edges.append(len(samples))
    return [
        Piece(start, end, bool(np.sqrt(np.mean(np.square(samples[start:end], dtype=np.float64))) < SILENCE))
        for start, end in zip(edges, edges[1:], strict=False)
        if end > start
    ]


def cut_into_phrases(samples: NDArray[float32], *, longest: float = LONGEST) -> list[Piece]:
    """The phrases in a sound (mono, 16 kHz), in order, each trimmed to what is said and at most ``longest`` seconds
    long. A sound without any speech, or without any pause, gives what ``cut_at_silences`` does."""
    pieces = []
    for start, end in _spoken(samples):
        for piece in cut_at_silences(samples[start:end], longest=longest):
            pieces.append(Piece(start + piece.start, start + piece.end, piece.is_silent))
    return pieces or cut_at_silences(samples, longest=longest)


def _spoken(samples: NDArray[float32]) -> list[tuple[int, int]]:
    """Where something is said, in samples."""
    import numpy as np

    frames = len(samples) // FRAME
    if frames <= PAUSE_FRAMES:
        return []
    squares = np.square(samples[: frames * FRAME].reshape(frames, FRAME), dtype=np.float64).mean(axis=1)
    levels = 10 * np.log10(np.maximum(squares, 10 ** (-QUIETEST / 10)))
    quietest = 10 * np.log10(max(float(_loudness(samples)[:-PAUSE_FRAMES].min()), 10 ** (-QUIETEST / 10)))
    contrast = float(np.percentile(levels, 99)) - quietest
    if contrast < LEAST_CONTRAST:
        return []
    edges = np.flatnonzero(np.diff(np.r_[False, levels > quietest + THRESHOLD * contrast, False].astype(np.int8)))
    runs = [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
    joined: list[tuple[int, int]] = []
    for first, last in runs:
        if joined and (first - joined[-1][1]) * FRAME < LONGEST_PAUSE * RATE:
            joined[-1] = joined[-1][0], last
        else:
            joined.append((first, last))
    margin = int(MARGIN * RATE)
    return [
        (max(0, first * FRAME - margin), min(len(samples), last * FRAME + margin))
        for first, last in joined
        if (last - first) * FRAME >= SHORTEST_SOUND * RATE
    ]


def _loudness(samples: NDArray[float32]) -> NDArray[float64]:
    """Mean square of the pause that begins at each frame of 20 ms."""
    import numpy as np

    frames = len(samples) // FRAME
    squares = np.square(samples[: frames * FRAME].reshape(frames, FRAME), dtype=np.float64).mean(axis=1)
    sums = np.concatenate([[0.0], np.cumsum(squares)])
    ends = np.minimum(np.arange(frames) + PAUSE_FRAMES, frames)
    means: NDArray[float64] = (sums[ends] - sums[:frames]) / np.maximum(ends - np.arange(frames), 1)
    return means

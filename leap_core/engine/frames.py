"""Frames of sound among the tokens of a request: what the scheduler asks of a speaker, and the positions they fill.

A frame is one code of each codebook. The model makes it from its hidden state instead of its logits, and reads it back
as one row of embeddings at the next position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

from .prompt_segments import Embeddings, GivenRows

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

Frame = tuple[int, ...]


class FrameSource(Protocol):
    """Makes frames from hidden states. Used by the thread of the compute loop."""

    fingerprint: bytes
    """Names the weights that frames are read with."""

    def frames(self, hidden: NDArray[float32], samplers: Sequence[Any], threads: int) -> list[Frame]:
        """One frame for each row of ``hidden``, shape [requests, width], drawn with that request's sampler and made
        with so many threads."""
        ...

    def embedding(self, frame: Frame) -> NDArray[float32]:
        """The row that the model reads, shape [width]."""
        ...


class FrameTurn(Protocol):
    """Decides what comes next, a token or a frame."""

    wants_frame: bool

    def take_token(self, token: int) -> None:
        """A token was sampled."""
        ...

    def take_frame(self, codes: Frame) -> Frame:
        """A frame was made; returns it as the model has to read it."""
        ...


class FrameSound(Protocol):
    """Sound of a request's frames."""

    def add(self, frame: Frame, *, last: bool) -> None:
        """A frame was made; after the ``last`` one comes a token."""
        ...

    def make(self, threads: int) -> None:
        """Make the sound that is due, with so many threads."""
        ...


@dataclass(eq=False)
class Speech:
    """What a request speaks with. ``rows``: the frames that it made, by their positions in the target."""

    source: FrameSource
    turn: FrameTurn
    sampler: Any
    sound: FrameSound
    rows: dict[int, NDArray[float32]] = field(default_factory=dict)


def frame_key(frame: Frame, fingerprint: bytes) -> int:
    """The number that stands for a frame among the keys of positions: negative, so that it never equals a token."""
    content = b"".join(code.to_bytes(4, "little") for code in frame)
    return -1 - int.from_bytes(blake2b(content, key=fingerprint[:64], digest_size=7).digest(), "little")


@dataclass(frozen=True, eq=False)
class FrameRows(Embeddings):
    """Frames of an earlier answer in a prompt. They have the keys that they had when they were made, so that memory
    which holds them is found again."""

    frames: tuple[Frame, ...] = ()

    @staticmethod
    def of(frames: Sequence[Frame], source: FrameSource) -> FrameRows:
        """The rows of ``frames``, of which there is at least one."""
        import numpy as np

        rows = GivenRows(np.stack([source.embedding(frame) for frame in frames]))
        return FrameRows(len(frames), source.fingerprint, rows, tuple(frames))

    def position_keys(self) -> list[int]:
        return [frame_key(frame, self.content_key) for frame in self.frames]

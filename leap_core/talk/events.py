"""What happens in a spoken conversation. Times are seconds of sound since the microphone was opened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ..media.audio import MOST_SECONDS, RATE, wav_of_integers
from ..media.silences import cut_at_silences
from ..messages import Audio, ChatMessage, ChatMessageRole

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


class TalkState(str, Enum):
    """``idle``: nobody speaks. ``listening``: the user does. ``responding``: the model answers, or plays its answer."""

    IDLE = "idle"
    LISTENING = "listening"
    RESPONDING = "responding"


@dataclass(frozen=True)
class StateChange:
    """The talk is in another state from now on."""

    state: TalkState
    at: float


@dataclass(frozen=True)
class Utterance:
    """What the user said from ``start`` to ``end``: mono samples at 16 kHz."""

    start: float
    end: float
    samples: NDArray[float32]

    @property
    def seconds(self) -> float:
        return len(self.samples) / RATE

    def parts(self) -> list[Audio]:
        """The sound as parts of a message; more than a model hears at once is cut at its pauses."""
        pieces = cut_at_silences(self.samples, longest=MOST_SECONDS)
        return [Audio(wav_of_integers(self.samples[piece.start : piece.end])) for piece in pieces]

    def message(self) -> ChatMessage:
        """The utterance as the user's message."""
        return ChatMessage(ChatMessageRole.USER, self.parts())


@dataclass(frozen=True)
class Interrupted:
    """The user spoke while the answer sounded, and it was stopped after ``heard`` seconds."""

    at: float
    heard: float


TalkEvent = StateChange | Utterance | Interrupted

"""Long sound through a model that hears, piece by piece."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import LeapSerializationError
from ..media.audio import LEAST_SECONDS, RATE, as_wav, at_model_rate, samples_of_wav, wav_of_integers
from ..media.silences import LONGEST, Piece, cut_at_silences, cut_into_phrases
from ..messages import Audio, ChatMessage, ChatMessageRole, Text
from ..options import GenerationOptions
from ..responses import Chunk

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from ..runner.contract import Generation, ModelRunner

PROMPT = "Perform ASR."
"""The system prompt with which LFM2-Audio was trained to write down what it hears."""
MOST_TOKENS = 512
"""One piece has at most these, three times what fast speech of 30 s needs: a model that repeats itself ends."""
AT_ONCE = 2
"""Pieces that are worked on together: while one is encoded, the other is written down."""


@dataclass(frozen=True)
class Transcribed:
    """What was said from ``start`` to ``end`` (seconds); an empty text for silence."""

    start: float
    end: float
    text: str

    def to_json(self) -> dict[str, Any]:
        """Start, end and text."""
        return {"start": round(self.start, 3), "end": round(self.end, 3), "text": self.text}


@dataclass(frozen=True)
class Recording:
    """Mono samples at 16 kHz, cut into pieces."""

    samples: NDArray[float32]
    pieces: tuple[Piece, ...]

    @property
    def seconds(self) -> float:
        return len(self.samples) / RATE

    def wav(self, piece: Piece) -> bytes:
        """A piece as WAV."""
        return wav_of_integers(self.samples[piece.start : piece.end])


def read_recording(data: bytes, *, longest: float = LONGEST, phrases: bool = False) -> Recording:
    """Sound of any format that ``media.audio.as_wav`` reads, cut into pieces of at most ``longest`` seconds; with
    ``phrases`` into what is said between two pauses.

    Raises LeapSerializationError for what is no sound, is damaged, or shorter than a tenth of a second.
    """
    samples = at_model_rate(*samples_of_wav(as_wav(data).data))
    if len(samples) < LEAST_SECONDS * RATE:
        raise LeapSerializationError(
            f"the sound is too short: {len(samples) / RATE:.3f} s, and at least {LEAST_SECONDS:g} s are needed"
        )
    cut = cut_into_phrases if phrases else cut_at_silences
    return Recording(samples, tuple(cut(samples, longest=longest)))


def transcribe(
    runner: ModelRunner,
    recording: Recording,
    *,
    prompt: str = PROMPT,
    options: GenerationOptions | None = None,
) -> Generator[Transcribed, None, None]:
    """The text of each piece, in order, as it is ready. Closing the iterator stops what still runs.

    ``options`` default to the likeliest text of at most 512 tokens. Raises LeapUnsupportedMediaError for a model that
    cannot hear, and what ``ModelRunner.start`` raises.
    """
    options = options or GenerationOptions()
    options = replace(
        options,
        temperature=0.0 if options.temperature is None else options.temperature,
        max_tokens=options.max_tokens or MOST_TOKENS,
    )
    running: deque[tuple[Piece, Generation | None]] = deque()
    ahead = iter(recording.pieces)
    try:
        while True:
            while len(running) < AT_ONCE and (piece := next(ahead, None)) is not None:
                running.append((piece, None if piece.is_silent else _begin(runner, recording, piece, prompt, options)))
            if not running:
                return
            piece, generation = running.popleft()
            try:
                text = "" if generation is None else _text(generation)
            except BaseException:
                running.appendleft((piece, generation))
                raise
            yield Transcribed(*piece.seconds, text)
    finally:
        for _, generation in running:
            if generation is not None:
                with suppress(Exception):
                    generation.close()


def _begin(
    runner: ModelRunner, recording: Recording, piece: Piece, prompt: str, options: GenerationOptions
) -> Generation:
    system = [ChatMessage(ChatMessageRole.SYSTEM, Text(prompt))] if prompt else []
    question = ChatMessage(ChatMessageRole.USER, Audio(recording.wav(piece)))
    return runner.start([*system, question], (), options)


def _text(generation: Generation) -> str:
    return "".join(response.text for response in generation if isinstance(response, Chunk)).strip()

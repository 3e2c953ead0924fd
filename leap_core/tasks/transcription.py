"""Speech to text of any length: cut at silences, recognised piece by piece, written as text, JSON, SRT or WebVTT."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..conversation.media.audio import LEAST_SECONDS, RATE, as_wav, at_model_rate, samples_of_wav, wav_of_integers
from ..conversation.media.silences import LONGEST, Piece, cut_at_silences, cut_into_phrases
from ..conversation.messages import Audio, ChatMessage, ChatMessageRole, Text
from ..conversation.options import GenerationOptions
from ..conversation.responses import Chunk
from ..errors import LeapSerializationError
from ..system.dataclass import dataclass

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from ..conversation.generator import Generation
    from ..conversation.runner import ModelRunner

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
    runner: ModelRunner, recording: Recording, *, prompt: str = PROMPT, options: GenerationOptions | None = None
) -> Generator[Transcribed, None, None]:
    """The text of each piece, in order, as it is ready. Closing the iterator stops what still runs.

    ``options`` default to the likeliest text of at most 512 tokens. Raises LeapUnsupportedMediaError for a model that
    has no audio input, and what ``ModelRunner.start`` raises.
    """
    options = options or GenerationOptions()
    options = replace(
        options,
        temperature=0.0 if options.temperature is None else options.temperature,
        max_tokens=options.max_tokens or MOST_TOKENS,
    )
    if all(piece.is_silent for piece in recording.pieces):  # a model that cannot hear is an error also then
        first_second = Piece(0, min(len(recording.samples), RATE))
        runner.get_prompt_tokens_size(_messages(recording, first_second, prompt))
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
    return runner.start(_messages(recording, piece, prompt), (), options)


def _messages(recording: Recording, piece: Piece, prompt: str) -> list[ChatMessage]:
    system = [ChatMessage(ChatMessageRole.SYSTEM, Text(prompt))] if prompt else []
    return [*system, ChatMessage(ChatMessageRole.USER, Audio(recording.wav(piece)))]


def _text(generation: Generation) -> str:
    return "".join(response.text for response in generation if isinstance(response, Chunk)).strip()


FORMATS = ("text", "json", "srt", "vtt")
TIMED = ("json", "srt", "vtt")
"""Formats that say when a phrase was said."""


def write(pieces: Sequence[Transcribed], format: str, *, seconds: float, model: str) -> str:
    """A whole transcript; ``seconds`` is the length of the sound. Ends with a line end."""
    return _WRITERS[format](pieces, seconds, model)


def as_json(pieces: Iterable[Transcribed], seconds: float, model: str) -> dict[str, Any]:
    """OpenAI's verbose transcription: the text, its language-free facts, and a segment for each piece."""
    segments = [{"id": n, **piece.to_json()} for n, piece in enumerate(pieces)]
    text = " ".join(segment["text"] for segment in segments if segment["text"])
    return {"task": "transcribe", "model": model, "duration": round(seconds, 3), "text": text, "segments": segments}


def _plain_text(pieces: Sequence[Transcribed], seconds: float, model: str) -> str:
    return "".join(f"{piece.text}\n" for piece in pieces if piece.text)


def _json(pieces: Sequence[Transcribed], seconds: float, model: str) -> str:
    return json.dumps(as_json(pieces, seconds, model), ensure_ascii=False, indent=2) + "\n"


def _srt(pieces: Sequence[Transcribed], seconds: float, model: str) -> str:
    """SubRip: numbered from 1, a comma before the milliseconds."""
    blocks = [
        f"{n}\n{_time(piece.start, ',')} --> {_time(piece.end, ',')}\n{_one_block(piece.text)}\n"
        for n, piece in enumerate((piece for piece in pieces if piece.text), 1)
    ]
    return "\n".join(blocks)


def _vtt(pieces: Sequence[Transcribed], seconds: float, model: str) -> str:
    """WebVTT, https://www.w3.org/TR/webvtt1/: what could be read as a tag is escaped."""
    blocks = [
        f"{_time(piece.start, '.')} --> {_time(piece.end, '.')}\n{_escaped(_one_block(piece.text))}\n"
        for piece in pieces
        if piece.text
    ]
    return "\n".join(["WEBVTT\n", *blocks])


def _time(seconds: float, point: str) -> str:
    milliseconds = round(seconds * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{milliseconds // 1000:02}{point}{milliseconds % 1000:03}"


def _one_block(text: str) -> str:
    """Empty lines would end the block."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("-->", "--&gt;").replace(">", "&gt;")


_WRITERS: dict[str, Callable[[Sequence[Transcribed], float, str], str]] = {
    "text": _plain_text,
    "json": _json,
    "srt": _srt,
    "vtt": _vtt,
}

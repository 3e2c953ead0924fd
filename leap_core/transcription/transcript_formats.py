"""Transcripts as text, JSON, SRT and WebVTT."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .recognition import Transcribed

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


def _text(pieces: Sequence[Transcribed], seconds: float, model: str) -> str:
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
    "text": _text,
    "json": _json,
    "srt": _srt,
    "vtt": _vtt,
}

"""What a prompt needs of its media, whether the model has a projector or none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...engine.prompt_segments import Segment
from ...errors import LeapSerializationError, LeapUnsupportedMediaError
from ...messages import ChatMessageContent, Image
from ...options import GenerationOptions

MOST_MEDIA = 64
"""One prompt may hold these."""
SEES = re.compile(r"(?<![a-z])vl(?![a-z])", re.IGNORECASE)
HEARS = re.compile(r"audio", re.IGNORECASE)


@dataclass(frozen=True)
class MediaSegments:
    """One medium in a prompt. ``key`` differs from every other's, ``warnings`` are for the user."""

    key: bytes
    segments: tuple[Segment, ...]
    warnings: tuple[str, ...] = ()


class ReadsMedia(Protocol):
    """Makes segments of a prompt out of pictures and sound, or says why not."""

    def read(self, part: ChatMessageContent, options: GenerationOptions) -> MediaSegments: ...


def check_count(parts: Sequence[ChatMessageContent]) -> None:
    """Refuse a prompt with more media than any sensible one has."""
    if len(parts) > MOST_MEDIA:
        raise LeapSerializationError(
            f"the messages hold {len(parts)} pictures and sounds; at most {MOST_MEDIA} are taken"
        )


class NoProjector:
    """Takes the place of the projector of a model that has none: every picture and every sound is refused."""

    def __init__(self, model_id: str, path: Path) -> None:
        self._model_id, self._path = model_id, path

    def read(self, part: ChatMessageContent, options: GenerationOptions) -> MediaSegments:
        """Raises LeapUnsupportedMediaError."""
        is_image = isinstance(part, Image)
        medium, sense = ("picture", "see") if is_image else ("sound", "hear")
        if (SEES if is_image else HEARS).search(self._path.name):
            raise LeapUnsupportedMediaError(
                f"{self._model_id} needs its projector to {sense}, and no file like mmproj-{self._path.stem}.gguf lies "
                f"beside {self._path}",
                hint=f"`leap download {self._model_id}` gets it, or give the file with --mmproj (mm_proj_path)",
            )
        example = "LFM2.5-VL-450M" if is_image else "LFM2.5-Audio-1.5B"
        raise LeapUnsupportedMediaError(
            f"the message contains a {medium}, and {self._model_id} reads text only",
            hint=f"load a model that can {sense}, such as {example}",
        )

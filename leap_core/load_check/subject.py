"""What is tried: a file, the kind it is, and what it needs beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..models.names.file_names import parts_of

MODEL, PROJECTOR, ADAPTER, AUDIO_DECODER, AUDIO_TOKENIZER = (
    *("model", "multimodal_projector", "adapter"),
    *("audio_decoder", "audio_tokenizer"),
)
KINDS = (MODEL, PROJECTOR, ADAPTER, AUDIO_DECODER, AUDIO_TOKENIZER)


@dataclass(frozen=True)
class Subject:
    """A file to try. ``beside``: files that it is tried with, by kind, such as the model of a projector or an adapter;
    they have been found sound before."""

    path: Path
    kind: str = MODEL
    beside: Mapping[str, Path] = field(default_factory=dict)

    def files(self) -> list[Path]:
        """The file, all parts of a split one included, and those beside it."""
        names = [path.name for path in self.path.parent.iterdir()] if self.path.parent.is_dir() else []
        parts = [self.path.parent / name for name in parts_of(self.path.name, names)]
        return [*parts, *self.beside.values()]

"""What a model says aloud in the lines of a batch: a WAV a line beside the results, whole or not at all."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from ...messages import Speech
from ...responses import Complete
from ...storage.atomic_files import replacing

UNHEARD = "the model spoke, and no directory was named for what it says"
SAFE = re.compile(r"[\w-][\w.-]{0,99}")


@dataclass(frozen=True)
class SpokenLines:
    """Writes to ``directory``, which is made when the first line speaks; None keeps no sound."""

    directory: Path | None = None

    def take(self, complete: Complete, custom_id: str, key: str) -> tuple[Complete, str | None]:
        """The answer without its sound, and the file that has it. Raises OSError where it cannot be written."""
        message = complete.full_message
        speech = next((part for part in message.content if isinstance(part, Speech)), None)
        if speech is None:
            return complete, None
        silent = replace(message, content=tuple(part for part in message.content if not isinstance(part, Speech)))
        complete = replace(complete, full_message=silent)
        if self.directory is None:
            return replace(complete, warnings=(*complete.warnings, UNHEARD)), None
        path = self.directory / f"{custom_id if SAFE.fullmatch(custom_id) else key}.wav"
        _write(path, speech.data)
        return complete, str(path)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, mode=0o600) as file:
        file.write(data)

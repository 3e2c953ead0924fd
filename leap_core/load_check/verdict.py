"""What a trial found, and where it is kept: small JSON files in the cache directory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..storage.atomic_files import replacing

SOUND, REFUSED, CRASH, HANG, MEMORY = "sound", "refused", "crash", "hang", "memory"
"""Runs; llama.cpp says no; ends the process; computes beyond the limit; needs more memory than the limit."""
KEPT = (SOUND, CRASH, HANG)
"""The others may end otherwise tomorrow: memory may be free, a missing file may be there."""
MOST_KEPT = 4000


@dataclass(frozen=True)
class Verdict:
    """``outcome``: one of those above. ``stage``: what was being done when it ended, such as "computing".
    ``message``: the reason, for a person; empty for a sound file. ``template``: what is wrong with the model's chat
    template, which takes nothing from the model but its chat; None when it renders, or there is none. ``facts``: what
    was seen, such as ``seconds`` and ``memory_bytes``."""

    outcome: str
    stage: str = ""
    message: str = ""
    template: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_sound(self) -> bool:
        return self.outcome == SOUND


class Verdicts:
    """The verdicts in one directory. What cannot be read or written there is as if it had never been."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def get(self, key: str) -> Verdict | None:
        """The verdict under this key, or None."""
        with suppress(OSError, ValueError, TypeError):
            return Verdict(**json.loads(self._file(key).read_bytes()))
        return None

    def put(self, keys: tuple[str, ...], verdict: Verdict) -> None:
        """Keep a verdict under each of the keys; one that may change is not kept, and an older one is forgotten."""
        with suppress(OSError):
            if verdict.outcome not in KEPT:
                for key in keys:
                    self._file(key).unlink(missing_ok=True)
                return
            self.directory.mkdir(parents=True, exist_ok=True)
            for key in keys:
                self._write(key, json.dumps(asdict(verdict)))
            self._forget_oldest()

    def _write(self, key: str, text: str) -> None:
        with replacing(self._file(key), mode=0o600, durable=False) as file:
            file.write(text.encode("utf-8", "backslashreplace"))

    def _forget_oldest(self) -> None:
        with os.scandir(self.directory) as entries:
            files = [(entry.stat().st_mtime, entry.path) for entry in entries]
        if len(files) > MOST_KEPT:
            for _, path in sorted(files)[: len(files) - MOST_KEPT * 3 // 4]:
                Path(path).unlink(missing_ok=True)

    def _file(self, key: str) -> Path:
        return self.directory / f"{key}.json"

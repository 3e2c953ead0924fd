"""The parent's side of a trial: what is tried within which limits, and the verdict that its end gives.

The child (``system/child``) answers with ``{"stage": …, "facts": …}`` before each step, and its result is facts.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from ...system.child import answers_of
from ...system.dataclass import dataclass
from ...system.directories import make_directory
from ...system.files import replacing
from ..gguf.file_names import parts_of

LEAST_CPU_SECONDS, CPU_SECONDS_PER_GB = 20, 60
LEAST_SECONDS, SLOWEST_DISK = 120, 5_000_000
"""A file is read at this many bytes a second at least."""
LEAST_MEMORY = 6 * 1024**3
MEMORY_PER_BYTE = 3
"""The file mapped, its matrices rearranged for this processor, and room."""


@dataclass(frozen=True)
class Limits:
    """``cpu_seconds``: processor time of all threads. ``seconds``: on the clock, for what waits without computing.
    ``memory_bytes``: of addresses, mapped files included."""

    cpu_seconds: int
    seconds: float
    memory_bytes: int

    @staticmethod
    def of(size: int) -> Limits:
        """For files of ``size`` bytes together. A sound file takes a tenth of it on a slow machine."""
        return Limits(
            cpu_seconds=LEAST_CPU_SECONDS + size * CPU_SECONDS_PER_GB // 10**9,
            seconds=LEAST_SECONDS + size / SLOWEST_DISK,
            memory_bytes=LEAST_MEMORY + MEMORY_PER_BYTE * size,
        )


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


SOUND, REFUSED, CRASH, HANG, MEMORY = "sound", "refused", "crash", "hang", "memory"
"""Runs; llama.cpp says no; ends the process; computes beyond the limit; needs more memory than the limit."""
KEPT = (SOUND, CRASH, HANG)
"""The others may end otherwise tomorrow: memory may be free, a missing file may be there."""
MOST_KEPT = 4000


@dataclass(frozen=True)
class TrialVerdict:
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

    def get(self, key: str) -> TrialVerdict | None:
        """The verdict under this key, or None."""
        with suppress(OSError, ValueError, TypeError):
            return TrialVerdict(**json.loads(self._file(key).read_bytes()))
        return None

    def put(self, keys: tuple[str, ...], verdict: TrialVerdict) -> None:
        """Keep a verdict under each of the keys; one that may change is not kept, and an older one is forgotten."""
        with suppress(OSError):
            if verdict.outcome not in KEPT:
                for key in keys:
                    self._file(key).unlink(missing_ok=True)
                return
            make_directory(self.directory)
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


TASK = "leap_core.inference.trial.trials:try_file"
TEMPLATE_STAGE = "rendering its chat template"
ASSERTION = re.compile(
    r"GGML_ASSERT\(.*\) failed|terminate called .*|.*what\(\): .*|GGML_ABORT.*|fatal error.*|(?:CUDA|ROCm) error: .*"
)
SOURCE_PATH = re.compile(r"^/\S*/(?=[^/\s]+:\d+: )")
"""Messages of llama.cpp hold paths of the machine that compiled it."""


def run_child(
    subject: Subject, limits: Limits, variables: Mapping[str, str] | None, stop: threading.Event | None = None
) -> TrialVerdict:
    """Try the file. ``stop``: set to end early, which counts as refused. Raises OSError when no process can start."""
    request = {
        "task": TASK,
        "kind": subject.kind,
        "path": os.path.abspath(subject.path),
        "beside": {kind: os.path.abspath(path) for kind, path in subject.beside.items()},
        "cpu_seconds": limits.cpu_seconds,
        "memory_bytes": limits.memory_bytes,
    }
    answers, code, words = answers_of(request, limits.seconds, variables, stop)
    if stop is not None and stop.is_set() and code is None:
        return TrialVerdict(REFUSED, message="the trial was stopped")
    return _verdict(answers, words, code, limits)


def _verdict(answers: list[Any], last_words: str, code: int | None, limits: Limits) -> TrialVerdict:
    stage, facts, error, result = "", dict[str, Any](), None, None
    for answer in answers:
        stage = answer.get("stage", stage)
        facts |= answer.get("facts", {})
        error = answer.get("error", error)
        result = answer.get("result", result)
    facts |= result or {}
    template = facts.pop("template_problem", None)
    if code == 0 and result is not None:
        return TrialVerdict(SOUND, stage, template=template, facts=facts)
    if error is not None:
        return TrialVerdict(MEMORY if error.get("memory") else REFUSED, stage, error["message"], facts=facts)
    outcome, reason = _end(code, last_words, limits)
    if not stage:  # this says nothing of the file
        return TrialVerdict(REFUSED, stage, f"cannot try it: {reason}", facts=facts)
    if stage == TEMPLATE_STAGE:  # the model itself has run
        return TrialVerdict(SOUND, stage, template=reason, facts=facts)
    return TrialVerdict(outcome, stage, reason, facts=facts)


def _end(code: int | None, last_words: str, limits: Limits) -> tuple[str, str]:
    if code is None:
        return HANG, f"it does not end within {limits.seconds:.0f} seconds"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        if name == "SIGXCPU":
            return HANG, f"it computes for more than {limits.cpu_seconds} seconds"
        if name == "SIGKILL":
            return MEMORY, "the system killed the process, which probably took too much memory"
        return CRASH, f"llama.cpp ends the process with {name}{assertion(last_words)}"
    return CRASH, f"the process ends with code {code}{assertion(last_words)}"


def assertion(last_words: str) -> str:
    """What the process wrote of its end: ggml's failed assertion, C++'s exception, or the last line."""
    claims = ASSERTION.findall(last_words) or [line for line in last_words.splitlines() if line.strip()][-1:]
    claims = [SOURCE_PATH.sub("", claim) for claim in claims]
    return f" ({'; '.join(claim.strip() for claim in claims[-2:])[:300]})" if claims else ""

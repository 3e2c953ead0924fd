"""The parent's side of a trial: start the child, wait within the limits, and read from its end what happened.

The child (leap_core.load_check.trial_process) gets one line of JSON on standard input and answers with lines of JSON:
``{"stage": …}`` before each step, and at the end ``{"facts": …}`` or ``{"error": …}``. It ends when its standard input
closes, so it does not outlive the process that waits for it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..background.child_environment import child_environment
from ..background.process_groups import CREATION_FLAGS, OF_A_SESSION
from ..storage.directories import packages_directory
from .child_limits import Limits
from .subject import Subject
from .verdict import CRASH, HANG, MEMORY, REFUSED, SOUND, Verdict

MODULE = "leap_core.load_check.trial_process"
LAST_WORDS = 4096
TEMPLATE_STAGE = "rendering its chat template"
ASSERTION = re.compile(r"GGML_ASSERT\(.*\) failed|terminate called .*|.*what\(\): .*|GGML_ABORT.*|fatal error.*")
SOURCE_PATH = re.compile(r"^/\S*/(?=[^/\s]+:\d+: )")
"""Messages of llama.cpp hold paths of the machine that compiled it."""


def run_child(
    subject: Subject, limits: Limits, variables: Mapping[str, str] | None, stop: threading.Event | None = None
) -> Verdict:
    """Try the file. ``stop``: set to end early, which counts as refused. Raises OSError when no process can start."""
    request = {
        "kind": subject.kind,
        "path": os.path.abspath(subject.path),
        "beside": {kind: os.path.abspath(path) for kind, path in subject.beside.items()},
        "cpu_seconds": limits.cpu_seconds,
        "memory_bytes": limits.memory_bytes,
    }
    with tempfile.TemporaryFile() as words, tempfile.TemporaryFile() as answers:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=answers,
            stderr=words,
            cwd=packages_directory(),  # not where a stranger's modules may lie
            env=child_environment(variables),
            start_new_session=OF_A_SESSION,
            creationflags=CREATION_FLAGS,
        )
        try:
            in_time = _wait(process, json.dumps(request).encode() + b"\n", limits.seconds, stop)
        finally:
            with suppress(OSError):
                process.kill()
            process.wait()
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
        if stop is not None and stop.is_set() and not in_time:
            return Verdict(REFUSED, message="the trial was stopped")
        answers.seek(0)
        words.seek(max(0, words.seek(0, os.SEEK_END) - LAST_WORDS))
        last_words = words.read().decode("utf-8", "replace")
        return _verdict(answers.read(), last_words, process.returncode if in_time else None, limits)


def _wait(process: subprocess.Popen[bytes], request: bytes, seconds: float, stop: threading.Event | None) -> bool:
    """Hand over the request and wait for the end; False when it did not come in time."""
    assert process.stdin is not None
    with suppress(OSError):  # it may have ended before
        process.stdin.write(request)
        process.stdin.flush()
    left = seconds
    step = seconds if stop is None else 0.1
    while left > 0 and not (stop is not None and stop.is_set()):
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(step, left))
            return True
        left -= step
    return False


def _verdict(answers: bytes, last_words: str, code: int | None, limits: Limits) -> Verdict:
    stage, facts, error, finished = "", dict[str, Any](), None, False
    for line in answers.splitlines():
        with suppress(ValueError):
            answer = json.loads(line)
            stage = answer.get("stage", stage)
            facts |= answer.get("facts", {})
            error = answer.get("error", error)
            finished = finished or answer.get("finished", False)
    template = facts.pop("template_problem", None)
    if code == 0 and finished:
        return Verdict(SOUND, stage, template=template, facts=facts)
    if error is not None:
        return Verdict(MEMORY if error.get("memory") else REFUSED, stage, error["message"], facts=facts)
    outcome, reason = _end(code, last_words, limits)
    if not stage:  # this says nothing of the file
        return Verdict(REFUSED, stage, f"cannot try it: {reason}", facts=facts)
    if stage == TEMPLATE_STAGE:  # the model itself has run
        return Verdict(SOUND, stage, template=reason, facts=facts)
    return Verdict(outcome, stage, reason, facts=facts)


def _end(code: int | None, last_words: str, limits: Limits) -> tuple[str, str]:
    if code is None:
        return HANG, f"it does not end within {limits.seconds:.0f} seconds"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        if name == "SIGXCPU":
            return HANG, f"it computes for more than {limits.cpu_seconds} seconds"
        if name == "SIGKILL":
            return MEMORY, "the system killed the process, which probably took too much memory"
        return CRASH, f"llama.cpp ends the process with {name}{_assertion(last_words)}"
    return CRASH, f"the process ends with code {code}{_assertion(last_words)}"


def _assertion(last_words: str) -> str:
    """What the process wrote of its end: ggml's failed assertion, C++'s exception, or the last line."""
    claims = ASSERTION.findall(last_words) or [line for line in last_words.splitlines() if line.strip()][-1:]
    claims = [SOURCE_PATH.sub("", claim) for claim in claims]
    return f" ({'; '.join(claim.strip() for claim in claims[-2:])[:300]})" if claims else ""

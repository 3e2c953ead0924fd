"""Work that may end its process, in a process of its own: what goes in, and what comes out of it.

The child (``child_process``) gets one line of JSON on standard input and answers with lines of JSON:
``{"progress": …}`` as it goes, at the end ``{"result": …}`` or ``{"error": …}``. It ends when its standard input
closes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import LeapError, LeapModelLoadingError
from ...system.directories import packages_directory
from ...system.processes import CREATION_FLAGS, OF_A_SESSION, child_environment

MODULE = "leap_core.models.conversion.child_process"
LOOK_SECONDS = 0.1
LAST_WORDS = 300


class Stopped(LeapError):
    """The work was given up because someone asked for it."""


def run_in_child(
    task: str,
    request: Mapping[str, Any],
    *,
    on_progress: Callable[[Any], object] = lambda progress: None,
    stop: threading.Event | None = None,
    variables: Mapping[str, str] | None = None,
) -> Any:
    """Do a task of ``child_process``; its result. Raises Stopped once ``stop`` is set, LeapModelLoadingError for what
    the child refuses, or ends over."""
    stop = threading.Event() if stop is None else stop
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            cwd=packages_directory(),
            env=child_environment(variables),
            start_new_session=OF_A_SESSION,
            creationflags=CREATION_FLAGS,
        )
        assert process.stdin is not None and process.stdout is not None
        ended = threading.Event()
        watcher = threading.Thread(target=_end_when_stopped, args=(process, stop, ended), daemon=True)
        watcher.start()
        answer: dict[str, Any] = {}
        try:
            with suppress(OSError):
                process.stdin.write(json.dumps({"task": task, **request}).encode() + b"\n")
                process.stdin.flush()
            for line in process.stdout:
                with suppress(ValueError):
                    message = json.loads(line)
                    if "progress" in message:
                        on_progress(message["progress"])
                        if stop.is_set():
                            _kill(process)
                    answer |= message
        finally:
            ended.set()
            watcher.join()
            _kill(process)
            code = process.wait()
            process.stdout.close()
            with suppress(OSError):
                process.stdin.close()
        if stop.is_set():  # whatever the child answered before it noticed
            raise Stopped("stopped")
        if "result" in answer:
            return answer["result"]
        if "error" in answer:
            raise LeapModelLoadingError(answer["error"], hint=answer.get("hint"))
        words.seek(0)
        last = words.read().decode("utf-8", "replace").strip().splitlines()[-1:]
        raise LeapModelLoadingError(
            f"llama.cpp ended with code {code}: {''.join(last)[:LAST_WORDS] or 'no reason given'}"
        )


def _end_when_stopped(process: subprocess.Popen[bytes], stop: threading.Event, ended: threading.Event) -> None:
    while not ended.wait(LOOK_SECONDS):
        if stop.is_set():
            _kill(process)
            return


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        process.kill()


@dataclass(frozen=True)
class Measured:
    """``perplexity``: e to the mean of minus the log probability of the text's tokens. ``kl_divergence``: the mean
    over positions of how far the distribution is from the source's, in nats; 0 for the source itself.
    ``top1_agreement``: at how many of the positions (0 to 1) both find the same token likeliest."""

    path: Path
    tokens: int
    perplexity: float
    kl_divergence: float
    top1_agreement: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"path": str(self.path)}


def measure(
    models: Sequence[Path],
    text: str,
    *,
    threads: int = 1,
    on_window: Callable[[int, int], object] = lambda done, total: None,
    stop: threading.Event | None = None,
    variables: Mapping[str, str] | None = None,
) -> list[Measured]:
    """Read ``text`` with each model and compare them with the first, in a child process. At most 16,384 tokens are
    read, in windows of 512. Raises LeapModelLoadingError for models of different vocabularies, and Stopped."""
    request = {"models": [str(path) for path in models], "text": text, "threads": threads}
    result = run_in_child("measure", request, on_progress=lambda step: on_window(*step), stop=stop, variables=variables)
    return [Measured(path, result["tokens"], **each) for path, each in zip(models, result["models"], strict=True)]

"""Conversions in a child process (``system/child``), which answers with ``{"progress": …}`` as it goes."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...errors import LeapError, LeapModelLoadingError
from ...system.child import child_for, kill, killed_when
from ...system.dataclass import dataclass

QUANTIZE, MEASURE = (f"leap_core.models.conversion.child_tasks:{name}" for name in ("quantize_file", "measure_cost"))
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
    """Do a task; its result. Raises Stopped once ``stop`` is set, LeapModelLoadingError for what
    the child refuses, or ends over."""
    stop = threading.Event() if stop is None else stop
    answer: dict[str, Any] = {}
    with (
        tempfile.TemporaryFile() as words,
        child_for({"task": task, **request}, stdout=subprocess.PIPE, stderr=words, variables=variables) as process,
    ):
        assert process.stdout is not None
        with killed_when(stop.is_set, process):
            for line in process.stdout:
                with suppress(ValueError):
                    message = json.loads(line)
                    if "progress" in message:
                        on_progress(message["progress"])
                        if stop.is_set():
                            kill(process)
                    answer |= message
        code = process.wait()
        if stop.is_set():  # whatever the child answered before it noticed
            raise Stopped("stopped")
        if "result" in answer:
            return answer["result"]
        if "error" in answer:
            raise LeapModelLoadingError(answer["error"]["message"], hint=answer["error"].get("hint"))
        words.seek(0)
        last = words.read().decode("utf-8", "replace").strip().splitlines()[-1:]
        raise LeapModelLoadingError(
            f"llama.cpp ended with code {code}: {''.join(last)[:LAST_WORDS] or 'no reason given'}"
        )


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
    result = run_in_child(MEASURE, request, on_progress=lambda step: on_window(*step), stop=stop, variables=variables)
    return [Measured(path, result["tokens"], **each) for path, each in zip(models, result["models"], strict=True)]

"""How far the prompts of a runner are read, reported while somebody waits for the first response."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ..system.dataclass import dataclass
from .generator import Functions, Generation, MaybeOptions, Messages
from .responses import MessageResponse
from .runner import ModelRunner, PassingRunner

if TYPE_CHECKING:
    from .generator import PromptProgress

FIRST_SECONDS, SECONDS = 2.0, 0.2
"""A prompt is reported when its first response is awaited for so long, and then so often."""
Report: TypeAlias = "Callable[[Generation, PromptReading | None], object]"
"""Gets the reading of one of several generations, and None when its prompt is read or given up. Called from threads of
its own, but never after the generation's first response is delivered."""


@dataclass(frozen=True)
class PromptReading:
    """``done`` of ``total`` tokens are read, of which ``speed`` are computed in a second (0 as long as that is not
    known). Prompts are computed in steps: the last one ended ``since`` seconds ago."""

    done: int
    total: int
    speed: float
    since: float


def seconds_left(prompts: Collection[PromptReading]) -> float | None:
    """Until all of them are read; None as long as that is not known."""
    speed, left = sum(each.speed for each in prompts), sum(each.total - each.done for each in prompts)
    return max(0.0, left / speed - min(each.since for each in prompts)) if speed else None


class ReportingRunner(PassingRunner):
    """``runner``, whose generations report how far their prompts are read."""

    def __init__(self, runner: ModelRunner, report: Report) -> None:
        super().__init__(runner)
        self._report = report

    def start(self, messages: Messages, functions: Functions = (), options: MaybeOptions = None) -> Generation:
        return ReportingGeneration(self._runner.start(messages, functions, options), self._report)

    def start_text(self, text: str | Sequence[int], options: MaybeOptions = None) -> Generation:
        return ReportingGeneration(self._runner.start_text(text, options), self._report)


class ReportingGeneration(Generation):
    """``generation``, with its prompt reported."""

    def __init__(self, generation: Generation, report: Report) -> None:
        self._generation, self._report = generation, report
        self._begun = False

    @property
    def prompt_tokens(self) -> int | None:  # type: ignore[override]
        return self._generation.prompt_tokens

    @property
    def progress(self) -> PromptProgress | None:
        return self._generation.progress

    def __next__(self) -> MessageResponse:
        if self._begun:
            return self._generation.__next__()
        self._begun = True
        done = threading.Event()
        watching = threading.Thread(target=self._watch, args=(done,), name="leap-prompt-progress", daemon=True)
        watching.start()
        try:
            return self._generation.__next__()
        finally:
            done.set()
            watching.join()

    def _watch(self, done: threading.Event) -> None:
        began, told, step = time.monotonic(), False, None
        while not done.wait(SECONDS):
            now = self._generation.progress
            is_read = now is None or now.processed >= now.total
            if now is not None and (step is None or step.processed != now.processed):
                step = now
            if time.monotonic() - began < FIRST_SECONDS:
                continue
            if now is not None and step is not None and not is_read:
                speed = (step.processed - step.cached) / step.seconds if step.seconds else 0.0
                self._report(self, PromptReading(now.processed, now.total, speed, now.seconds - step.seconds))
            elif told:
                self._report(self, None)
            told = not is_read
        if told:
            self._report(self, None)

    def stop(self) -> None:
        self._generation.stop()

    def close(self) -> None:
        self._generation.close()

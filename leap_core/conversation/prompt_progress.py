"""How far the prompts of a runner are read, reported while somebody waits for the first response."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from ..system.dataclass import dataclass
from .generator import Functions, Generation, MaybeOptions, Messages, PassingGeneration, PromptProgress
from .responses import MessageResponse
from .runner import ModelRunner, PassingRunner

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

    @staticmethod
    def of(now: PromptProgress, step: PromptProgress) -> PromptReading:
        """The reading ``now``; ``step``: as it was when the last step had ended."""
        speed = (step.processed - step.cached) / step.seconds if step.seconds else 0.0
        return PromptReading(now.processed, now.total, speed, now.seconds - step.seconds)


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


class ReportingGeneration(PassingGeneration):
    """``generation``, with its prompt reported."""

    def __init__(self, generation: Generation, report: Report) -> None:
        super().__init__(generation)
        self._report = report
        self._begun = False

    def _read(self) -> MessageResponse:
        if self._begun:
            return super()._read()
        self._begun = True
        done = threading.Event()
        watching = threading.Thread(target=self._watch, args=(done,), name="leap-prompt-progress", daemon=True)
        watching.start()
        try:
            return super()._read()
        finally:
            done.set()
            watching.join()

    def _watch(self, done: threading.Event) -> None:
        began, told, step = time.monotonic(), False, PromptProgress(0, 0, 0, 0.0)
        while not done.wait(SECONDS):
            now = self.progress
            is_read = now is None or now.processed >= now.total
            if now is not None and now.processed != step.processed:
                step = now
            if time.monotonic() - began >= FIRST_SECONDS and (told or not is_read):
                told = True
                self._report(self, None if now is None or is_read else PromptReading.of(now, step))
        if told:
            self._report(self, None)

"""The wrappers of a runner, in the one order in which they are put around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from .prompt_progress import Report, ReportingRunner
from .runner import ModelRunner, PrioritizedRunner

Wrap: TypeAlias = "Callable[[ModelRunner], ModelRunner]"


def wrapped(
    runner: ModelRunner,
    *,
    log: Wrap | None = None,
    priority: int | None = None,
    report: Report | None = None,
    escalate: Wrap | None = None,
    fold: Wrap | None = None,
) -> ModelRunner:
    """The runner within the wrappers that are given, from the inside out. One that is wrapped already gets outer ones
    only."""
    if log is not None:  # next to the model: an entry is what this model was asked, and several jobs share it
        runner = log(runner)
    if priority is not None:  # each job's own, over a model that jobs share; below it nothing makes requests by itself
        runner = PrioritizedRunner(runner, priority)
    if report is not None:  # of one reader, who sees each model's own reading: an escalating one hides the near one's
        runner = ReportingRunner(runner, report)
    if escalate is not None:  # over two whole models, each with its log and its priority
        runner = escalate(runner)
    if fold is not None:  # outermost: one answer of it is several generations of all the rest
        runner = fold(runner)
    return runner

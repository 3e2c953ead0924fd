"""A logged request run once more, with the change that would have helped, and both times."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..errors import LeapGenerationError, LeapOptionsError
from ..system.dataclass import dataclass
from .messages import ChatMessage
from .prompt_log import Entry, request_of
from .request import Request
from .request_causes import PENALTY, Cause, alternative_system, more_penalty
from .request_facts import RequestFacts
from .responses import GenerationFinishReason
from .runner import ModelRunner
from .streams import last_of

ALONE = ("queue", "preempted", "loading", "other-work", "slot-lost")
"""Causes that are gone when the request runs alone on a model that is loaded."""
MORE = 8
"""Times the tokens that were allowed to an answer that was cut."""
SYSTEM = ("clock", "id", "counter", "billing-header", "system-changed")

OpenRunner = Callable[[int | None], ModelRunner]
"""Loads the entry's model, with a context of so many tokens where one is given."""


@dataclass(frozen=True)
class Run:
    """``seconds`` of a run, and why it ended."""

    seconds: float
    ended: str

    def to_json(self) -> dict[str, Any]:
        """The fields as an object."""
        return {"seconds": round(self.seconds, 3), "ended": self.ended}


def replay(entry: Entry, cause: Cause, open_runner: OpenRunner) -> tuple[Run, Run]:
    """The request of ``entry`` as it was, and with the change that ``cause`` asks for. Raises LeapOptionsError where
    the change is not leap's to make, or the log does not hold all of the request."""
    facts = RequestFacts.from_json(entry.facts)
    asked = request_of(replace(entry, error=None))
    options = asked.options
    was = Run(entry.seconds + facts.loading, entry.error or entry.finish or "")
    if cause.context_size:
        with open_runner(cause.context_size) as runner:
            return was, _timed(runner, asked)
    if cause.name == "repetition" and more_penalty(entry.options):
        with open_runner(None) as runner:
            return was, _timed(runner, asked, repetition_penalty=PENALTY)
    if cause.name == "answer-cut" and options.max_tokens is not None:
        with open_runner(None) as runner:
            return was, _timed(runner, asked, max_tokens=MORE * options.max_tokens)
    if cause.name in ALONE:
        with open_runner(None) as runner:
            return was, _timed(runner, asked)
    departure = facts.departure
    if cause.name not in SYSTEM or departure is None or entry.system is None:
        raise LeapOptionsError("entry", f"{entry.id}: this change is not one that a replay can make: {cause.change}")
    changed, without, moved = alternative_system(entry.system, departure)
    rest, steady = asked.messages[1:], ChatMessage("system", without)
    with open_runner(None) as runner:
        before = _timed(runner, replace(asked, messages=[ChatMessage("system", changed), *rest]))
        primed = replace(options, max_tokens=1, json_schema_constraint=None)
        last_of(runner.start([steady, *rest], (), primed))  # in memory, as the request before left it
        after = [steady, ChatMessage("user", f"{entry.prompt}\n\n{moved}")]
        return before, _timed(runner, replace(asked, messages=after))


def _timed(runner: ModelRunner, asked: Request, **changed: Any) -> Run:
    """The request with ``changed`` options."""
    began = time.monotonic()
    try:
        complete = last_of(replace(asked, options=replace(asked.options, **changed)).start(runner))
    except LeapGenerationError as error:
        return Run(time.monotonic() - began, error.message)
    reason = complete.finish_reason
    return Run(time.monotonic() - began, "" if reason is GenerationFinishReason.STOP else reason.value)

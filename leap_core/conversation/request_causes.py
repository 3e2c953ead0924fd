"""Why a request took as long as it did, or ended as it did: known causes, the costliest first.

Nothing is named that is not in the facts and did not cost a noticeable part of the time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import field
from os.path import commonprefix
from typing import Any

from ..system.dataclass import dataclass
from .request_facts import PROMPT_TOO_LONG, UNFIT, Departure, RequestFacts
from .responses import GenerationFinishReason

KEPT = ("adapter", "slot-lost")
"""Causes for which nothing of the prompt changed."""
LEAST_SECONDS, LEAST_SHARE = 0.2, 0.15
"""A cause is named if it cost at least so many seconds, and such a share of the whole time."""
LEAST_TOKENS, LEAST_OF_PROMPT = 64, 0.2
"""A prefix that was not reused is named if it would have saved so many tokens, and such a share of the prompt."""
OTHER_WORK = "other-work"
"""Named only where it cost more than all other causes together: a busy machine makes them all slower."""
BUSY = 0.4
"""The share of the time that threads have to wait for a processor, for other work to be named."""


@dataclass(frozen=True)
class Cause:
    """``text`` says what happened, ``change`` the one thing that would help. ``seconds``: what it cost, about.
    ``context_size``: a context that would do, where it is too small; 0 where the model allows none."""

    name: str
    text: str
    change: str
    seconds: float = 0.0
    context_size: int = 0

    def to_json(self) -> dict[str, Any]:
        """The fields as an object."""
        return {"name": self.name, "text": self.text, "change": self.change, "seconds": round(self.seconds, 2)}


@dataclass(frozen=True)
class RequestEnd:
    """How a request ended: ``seconds`` after it was asked, by ``finish`` or with an ``error``, which is only shown.
    ``options``: those that it asked for. ``served``: by ``leap serve``."""

    seconds: float
    finish: str | None = None
    error: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    served: bool = False


def causes_of(facts: RequestFacts, end: RequestEnd) -> list[Cause]:
    """The causes in order: first what spoiled the answer, then what cost time, the most expensive first."""
    prefix = _of_prefix(facts)
    unread = 0.0 if prefix is None else prefix.seconds
    others = list(_of_time(facts, unread, served=end.served))
    known = unread + sum(cause.seconds for cause in others if cause.name != OTHER_WORK)
    slow = [cause for cause in others if _matters(cause.seconds, end.seconds)]
    slow = [cause for cause in slow if cause.name != OTHER_WORK or cause.seconds > known]
    slow += [] if prefix is None else [prefix]
    return [*_of_end(facts, end), *sorted(slow, key=lambda cause: -cause.seconds)]


def _matters(lost: float, seconds: float) -> bool:
    return lost >= LEAST_SECONDS and lost >= LEAST_SHARE * seconds


PENALTY = 1.1
REPLY_TOKENS = 256
"""Tokens for an answer that has no limit."""


def _of_end(facts: RequestFacts, end: RequestEnd) -> Iterator[Cause]:
    ended = end.finish or facts.failure
    if facts.failure == PROMPT_TOO_LONG or ended == GenerationFinishReason.EXCEED_CONTEXT.value:
        yield _context_too_small(facts, end.options.get("max_tokens") or REPLY_TOKENS)
    elif ended == GenerationFinishReason.REPETITION.value:
        text = f"the answer repeated itself and was stopped after {facts.answer_tokens} tokens"
        penalty = f"--repetition-penalty {PENALTY}, or " if more_penalty(end.options) else ""
        yield Cause("repetition", text, f"ask with {penalty}a higher temperature")
    elif facts.failure == GenerationFinishReason.MAX_TOKENS.value:
        text = f"the answer was cut after {facts.answer_tokens} tokens, before it fitted its constraint"
        yield Cause("answer-cut", text, "ask with a higher --max-tokens, or with --complete-json")
    elif ended == UNFIT:
        change = "describe the wanted shape in the prompt, or use a larger model"
        yield Cause("constraint", end.error or "the answer does not fit its constraint", change)


def more_penalty(options: Mapping[str, Any]) -> bool:
    """Whether a request may have a higher penalty of repetition than it asked for."""
    return bool((options.get("repetition_penalty") or 1.0) < PENALTY)


def _context_too_small(facts: RequestFacts, answer: int) -> Cause:
    """A larger context helps only where the model allows one that holds the prompt. ``answer``: its tokens."""
    at_least = "more than " if facts.at_least else ""
    too_long = facts.failure == PROMPT_TOO_LONG
    what = f"the prompt has {at_least}{facts.prompt_tokens} tokens" if too_long else "prompt and answer filled it"
    text = f"the context is too small: {what}, it holds {facts.context_size}"
    least = max(facts.prompt_tokens + facts.answer_tokens, facts.context_size) + 1
    trained = facts.trained_context
    if 0 < trained < least:
        shorter = "shorten the prompt" if too_long else "shorten the prompt, or ask for a shorter answer"
        return Cause("context-too-small", text, f"{shorter}: the model allows no context above {trained}")
    least = max(least, facts.prompt_tokens + answer) * (2 if facts.at_least else 1)
    least = min(least, trained or least)
    change = f"load the model with --context-size {least} or more, or shorten the prompt"
    return Cause("context-too-small", text, change, context_size=least)


def _of_time(facts: RequestFacts, unread: float, *, served: bool) -> Iterator[Cause]:
    """``unread``: seconds that would not have been computed at all."""
    behind = [
        f"{facts.running} running" if facts.running else "",
        f"{facts.waiting} waiting" if facts.waiting else "",
        f"{facts.ahead_tokens} tokens of prompts to read" if facts.ahead_tokens else "",
    ]
    listed = ", ".join(filter(None, behind)) or "other requests"
    yield Cause(
        "queue",
        f"it waited {facts.queued:.1f} s for a slot, behind {listed}",
        "load the model with more --slots, or give the other requests a lower priority",
        facts.queued,
    )
    yield Cause(
        "preempted",
        f"it gave its slot {_times(facts.preempted)} to a request of a higher level, and waited {facts.swapped:.1f} s",
        "ask with a higher priority, or load the model with more --slots",
        facts.swapped if facts.preempted else 0.0,
    )
    yield Cause(
        "loading",
        f"the model was loaded first, which took {facts.loading:.1f} s",
        "start leap serve with a longer --keep-alive" if served else "keep it warm: leap load MODEL",
        facts.loading,
    )
    yield Cause(
        "repairs",
        f"the answer did not fit its shape and was made again {_times(facts.repairs)}, {facts.repairing:.1f} s",
        "describe the wanted shape in the prompt, or use a larger model",
        facts.repairing if facts.repairs else 0.0,
    )
    yield Cause(
        "masks",
        f"the masks of its schema or grammar took {facts.masks:.1f} s",
        "simplify the schema: fewer alternatives, and bounds on lengths",
        facts.masks,
    )
    if facts.others is not None and facts.others >= BUSY:
        yield Cause(
            OTHER_WORK,
            f"other work on the machine kept it waiting for a processor {facts.others:.0%} of the time",
            "end the other work, or ask when the machine is idle",
            facts.others * max(0.0, facts.reading + facts.writing - facts.swapped - unread),
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _of_prefix(facts: RequestFacts) -> Cause | None:
    """Why less of the prompt was reused than an earlier one could give, if that is so."""
    departure = facts.departure
    if departure is None:
        return None
    unread = facts.prompt_tokens - facts.cached
    kept = departure.position - facts.cached
    lost = min(unread, kept + (0 if departure.ended else departure.shared))
    if lost < LEAST_TOKENS or lost < LEAST_OF_PROMPT * facts.prompt_tokens:
        return None
    seconds = facts.reading * lost / max(1, unread)
    if departure.other_adapter:
        text = f"{departure.position} tokens of its prompt were computed with another adapter"
        return Cause("adapter", text, "ask with one adapter throughout, or none", seconds)
    long_kept = kept >= max(LEAST_TOKENS, lost / 2)
    if long_kept and departure.in_slots - facts.cached < LEAST_TOKENS:
        text = f"its slot was lost: {departure.position} tokens were in memory before, and {facts.cached} were left"
        change = "load the model with more --slots, or with --prompt-cache"
        return Cause("slot-lost", text, change, seconds)
    before_state = facts.by_states and long_kept
    if departure.ended or (departure.shared < LEAST_TOKENS and not before_state):
        return None
    name, what, change = _kind(departure)
    if name not in MARKED and not _is_change(departure, name, before_state=before_state):
        return None
    text = f"{what}: the prefix {_departed(departure, facts.prompt_tokens)}"
    if before_state:
        text += f"; the memory of this model goes back only to kept states, here to token {facts.cached}"
    return Cause(name, text, change, seconds)


MARKED = ("billing-header", "tools-reordered", "thinking-removed")
"""Causes that are known by what is at the departure, whatever follows."""


def _is_change(departure: Departure, name: str, *, before_state: bool) -> bool:
    """Whether something was changed that was said before, and not another thing said. ``before_state``: the end of what
    is the same is lost."""
    if (
        departure.role != "system" and departure.message >= departure.messages
    ):  # what is asked now, or a prompt that is one text
        return departure.edited and name in ("clock", "id", "counter")
    return departure.edited or before_state or departure.messages > 2 or name != "system-changed"


def _departed(departure: Departure, tokens: int) -> str:
    start = departure.before[-16:]
    start = start if len(departure.before) <= len(start) else start.partition(" ")[2] or start
    had, got = (_shortened(f"{start}{text}") for text in (departure.had, departure.got))
    return f'departed at token {departure.position} of {tokens}, in {departure.place}: had "{had}", got "{got}"'


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 56 else f"{line[:55]}…"


def alternative_system(system: str, departure: Departure) -> tuple[str, str, str]:
    """The system prompt with something new at the place of the departure, which the words before it name; without the
    line or sentence that it is in; and that line."""
    before, got = departure.before.rsplit("\n", 1)[-1], departure.got
    place = system.find(before + got)
    place = place + len(before) if place >= 0 else max(0, system.find(got))
    new = f"{system[:place]}{time.time_ns()} {system[place:]}"
    starts = [system.rfind(mark, 0, place) + len(mark) for mark in ("\n", ". ") if mark in system[:place]]
    ends = [found + 1 for mark in ("\n", ". ") if (found := system.find(mark, place)) >= 0]
    start, end = max(starts, default=0), min(ends, default=len(system))
    return new, system[:start] + system[end:].lstrip(" "), system[start:end].strip()


def departed(facts: RequestFacts) -> str | None:
    """Where the prefix departed and why, without what was said; None where no reuse was lost by it."""
    cause, departure = _of_prefix(facts), facts.departure
    if cause is None or departure is None:
        return None
    place = f"departed at token {departure.position} in {departure.place}" if cause.name not in KEPT else "not reused"
    return f"{place} ({cause.name})"


def course_of(facts: RequestFacts, end: RequestEnd) -> dict[str, str]:
    """How it went, by what was done; what did not happen is left out."""
    departure, computed = facts.departure, facts.prompt_tokens - facts.cached
    level = f" (level {facts.level})" if facts.level else ""
    course = {
        "loaded": f"{facts.loading:.2f} s" if facts.loading >= 0.1 else "",
        "waited": f"{facts.queued:.2f} s for a slot{level}" if facts.queued >= 0.01 else "",
        "read": f"{facts.prompt_tokens} tokens, {facts.cached} of them from the cache, in {facts.reading:.2f} s",
        "prefix": "" if departure is None or departure.ended else _departed(departure, facts.prompt_tokens),
        "preempted": f"{_times(facts.preempted)}, and waited {facts.swapped:.2f} s" if facts.preempted else "",
        "wrote": f"{facts.answer_tokens} tokens in {facts.writing:.2f} s",
        "masks": f"{facts.masks:.2f} s" if facts.masks >= 0.01 else "",
        "repairs": f"{facts.repairs}, in {facts.repairing:.2f} s" if facts.repairs else "",
        "searches": f"{facts.searches} for tools" if facts.searches else "",
        "ended": end.error or end.finish or "",
    }
    if not facts.prompt_tokens or facts.failure == PROMPT_TOO_LONG:  # a model elsewhere, or one that failed
        course |= {"read": "", "wrote": ""}
    if computed and facts.reading:
        course["read"] += f" ({computed / facts.reading:.0f} tokens/s)"
    return {name: text for name, text in course.items() if text}


BILLING = re.compile(r"\bx-[\w-]*billing[\w-]*:", re.IGNORECASE)
THINKING = re.compile(r"<think>|<\|begin_of_thought\|>|\[THINK\]|<\|channel\|>analysis|<reasoning>", re.IGNORECASE)
MONTHS = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
CLOCK = re.compile(
    rf"\d{{1,2}}:\d{{2}}(?::\d{{2}})?|\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.]\d{{2,4}}"
    rf"|\b(?:{MONTHS}\.? \d{{1,2}}|\d{{1,2}}(?:\.|st|nd|rd|th)?(?: of)? {MONTHS})\b"
    r"|\b\d{1,2}\.?(?: de| of)? [^\W\d_]{3,12}\.?,?(?: de)? \d{4}\b|\d{1,2} ?[月日時时点]|\b\d{1,2} ?[ap]\.?m\b"
    r"|\b20\d{6}(?:T?\d{4,6}Z?)?\b|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b"
    r"|\b(?:mon|tue|wed|thu|fri|sat|sun)\b|\b1\d{9}(?:\d{3}){0,3}\b|\b\d+ (?:seconds?|minutes?|hours?|days?) ago\b",
    re.IGNORECASE,
)
ID = re.compile(r"\b[A-Za-z0-9_-]{8,}|\b(?!\d+[A-Za-z]{1,3}\b)(?=\w*\d)(?=\w*[A-Za-z])\w{4,}")
NEAR = 48
LEADS_TO_DATE = re.compile(r"[^\d\n!?;:{}]{0,24}")
NUMBER = re.compile(r"\d[\d.,]*")
MOVE = "send what changes at the end of the last message, or not at all"


def _kind(departure: Departure) -> tuple[str, str, str]:
    """Name, words and change of a prefix that departed."""
    both = f"{departure.before}{departure.had}", f"{departure.before}{departure.got}"
    place = len(commonprefix(both))  # tokens that differ may begin alike
    if any(BILLING.search(text) for text in both):
        return "billing-header", "a billing header changes with each request", "turn the header off in the client"
    if departure.media:
        return "picture", "a picture was encoded anew", "send the same bytes of a picture in each request"
    if departure.tools_had and sorted(departure.tools_had) == sorted(departure.tools_got):
        return "tools-reordered", "the tools come in another order", "send the tools in the same order each time"
    if departure.tools_had or departure.tools_got:
        added = sorted(set(departure.tools_got) - set(departure.tools_had))
        gone = sorted(set(departure.tools_had) - set(departure.tools_got))
        listed = [f"with {', '.join(added[:3])}"] * bool(added) + [f"without {', '.join(gone[:3])}"] * bool(gone)
        return "tools-changed", f"other tools: {', '.join(listed)}", "declare the same tools in each request"
    if departure.role == "assistant" and THINKING.search(both[0]) and not THINKING.search(departure.got):
        change = "send the reasoning back (reasoning_content), or turn reasoning off"
        return "thinking-removed", "the reasoning of an earlier answer was removed", change
    for name, what, pattern in (
        ("clock", "a clock", CLOCK),
        ("id", "an id", ID),
        ("counter", "a number", NUMBER),
    ):
        if _differs(pattern, *both, place) or (pattern is CLOCK and _dates_follow(departure)):
            return name, f"{what} in {departure.place} changes", MOVE
    if departure.tool:
        return "tools-changed", f"{departure.place} changed", "declare the same tools in each request"
    if departure.role == "system":
        return "system-changed", f"{departure.place} changed", MOVE
    return "history-changed", "what was said before was changed", "add messages at the end, and leave earlier ones"


def _dates_follow(departure: Departure) -> bool:
    """Whether the words that differ lead to two dates or times, as the names of days and months do in any language."""
    dates = [
        found[0] if (found := CLOCK.search(text, 0, NEAR)) and LEADS_TO_DATE.fullmatch(text[: found.start()]) else ""
        for text in (departure.had, departure.got)
    ]
    return dates[0] != dates[1] and all(any(map(str.isdigit, date)) for date in dates)


def _differs(pattern: re.Pattern[str], had: str, got: str, place: int) -> bool:
    """Whether both texts have something of this pattern at ``place``, and not the same."""
    found = [
        {each[0] for each in pattern.finditer(text) if each.start() <= place + 1 and each.end() >= place}
        for text in (had, got)
    ]
    return all(
        any(any(map(str.isdigit, text)) or pattern is CLOCK for text in mine - other)
        for mine, other in (found, found[::-1])
    )

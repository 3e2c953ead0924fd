"""Where a prompt departs from those that were computed before it: what was computed lately, and the comparison.

The comparison takes a millisecond for each thousand tokens, so that the reader's thread makes it, when its answer ends.
"""

from __future__ import annotations

import re
import time
from array import array
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...conversation.request_facts import Departure, RequestFacts
from ...system.dataclass import dataclass
from .request import Request, boundaries_of, common_prefix
from .request_timeline import RUN, STRIDE, Computed, runs_of

MOST_PROMPTS, MOST_POSITIONS = 64, 131_072
"""What is remembered takes a megabyte at most."""
LOOK = 8
"""Every so many of the earlier prompt's runs is tried first; where none is in both, they have little in common."""
LEAST_ALIKE = 0.5
"""The share of what follows a departure that has to be in both prompts, for it to be the same with a change."""
ALIKE = 0.9
"""The share of a prompt that an earlier one has to have for no other to be compared."""
WORTH_COMPARING = 64
"""Positions that a prompt has to compute, for a comparison to be worth its time."""
BEFORE, AFTER = 64, 24
"""Tokens around a departure."""
LONGEST_TEXT, LONGEST_TURN = 160, 20_000
MOST_NAMES = 100
NOTICEABLE = 0.2
"""Seconds in the queue from which on it is said who was before."""
NAME = re.compile(r'"name": ?"([^"]{1,64})"')
BEGUN = re.compile(r'"name": ?(?:"[^"]{0,64})?\Z')


class ComputedLately:
    """The last requests of a scheduler. Used in its thread."""

    def __init__(self) -> None:
        self._all: deque[Computed] = deque()
        self._positions = 0

    def add(self, keys: Sequence[int], variant: bytes) -> None:
        """Remember what was computed."""
        if WORTH_COMPARING <= len(keys) <= MOST_POSITIONS:
            self._all.append(Computed(array("q", keys), variant))
            self._positions += len(keys)
            while len(self._all) > MOST_PROMPTS or self._positions > MOST_POSITIONS:
                self._positions -= len(self._all.popleft().keys)

    def all(self) -> tuple[Computed, ...]:
        """All of it, the newest first."""
        return tuple(reversed(self._all))


@dataclass(frozen=True)
class Words:
    """How a model's tokens read. ``names``: those of the declared tools; ``roles``: those of the messages, in order."""

    text_of: Callable[[Sequence[int]], str]
    eog_tokens: frozenset[int]
    control_tokens: frozenset[int]
    names: Sequence[str] = ()
    roles: Sequence[str] = ()

    def text(self, keys: Sequence[int]) -> str:
        """The text of positions, with a mark for a run of rows."""
        if any(key < 0 for key in keys):
            return self.text_of([key for key in keys if key >= 0]) + "[picture or sound]"
        return self.text_of(keys)

    def turns(self, keys: Sequence[int]) -> list[int]:
        """Where the messages of a prompt begin."""
        return [0, *boundaries_of(keys, self.eog_tokens, self.control_tokens)]


def departure_of(keys: Sequence[int], variant: bytes, earlier: Sequence[Computed], words: Words) -> Departure | None:
    """Where the prompt ``keys`` departs from the earlier one that it is most like; None where it is like none."""
    keys = array("q", keys)
    runs = Counter(runs_of(keys))
    best, most = None, 0
    for each in earlier:
        position = common_prefix(each.keys, keys)
        rows = _rows_alike(keys, each.keys, position)
        first = -(-position // STRIDE)
        tried = each.runs[first:]
        if rows:
            tried = [run for run, key in zip(tried, each.keys[first * STRIDE :: STRIDE], strict=False) if key >= 0]
        shared = 0
        if len(tried) < LOOK or any(run in runs for run in tried[::LOOK]):
            found = [runs.get(run, 0) for run in tried]
            shared = _shared(found, len(keys) - position - rows)
            shared += rows if shared else 0
        alike = position + shared + (each.variant == variant)  # of two that are alike the one that can be reused
        if alike > most:
            best, most = (each, position, shared), alike
        if most > ALIKE * len(keys):
            break
    if best is None:
        return None
    other, position, shared = best
    ended = position >= min(len(other.keys), len(keys) - 1)
    departure = Departure(position, shared, other_adapter=other.variant != variant, ended=ended)
    return departure if ended else _described(departure, keys, other.keys, words)


def _shared(found: Sequence[int], left: int) -> int:
    """Tokens after a departure that are in both prompts, 0 where the two are about different things. ``found``: how
    often each run that was tried is in the new prompt, of which ``left`` tokens come after the departure. A run that
    the new prompt repeats, such as the frame of a declaration, does not show that they are alike."""
    single, absent = found.count(1), found.count(0)
    if single < LEAST_ALIKE * min(single + absent, left / STRIDE):
        return 0
    return STRIDE * (len(found) - absent)


def _rows_alike(keys: Sequence[int], earlier: Sequence[int], position: int) -> int:
    """Rows of images and audio after a departure in one of them that both prompts have."""
    if position >= min(len(keys), len(earlier)) or min(keys[position], earlier[position]) >= 0:
        return 0
    return min(sum(key < 0 for key in each[position:]) for each in (keys, earlier))


def _described(departure: Departure, keys: array[int], earlier: array[int], words: Words) -> Departure:
    position = departure.position
    turns = words.turns(keys)
    turn = bisect_right(turns, position) - 1
    start = turns[turn]
    message, role = _message(turn, len(turns), words.roles)
    tool, had, got = _tools(position - start, keys[start:], earlier[start:], words)
    ends = [place for place in words.turns(earlier) if place > position]
    runs = set(runs_of(earlier[start : ends[0] if ends else len(earlier)]))
    rest = runs_of(keys[position + RUN : turns[turn + 1] if turn + 1 < len(turns) else len(keys)], STRIDE)
    alike = sum(run in runs for run in rest)
    return replace(
        departure,
        before=words.text(keys[max(start, position - BEFORE) : position])[-LONGEST_TEXT:],
        had=words.text(earlier[position : position + AFTER])[:LONGEST_TEXT],
        got=words.text(keys[position : position + AFTER])[:LONGEST_TEXT],
        message=message,
        messages=len(words.roles),
        role=role,
        tool=tool,
        tools_had=had,
        tools_got=got,
        edited=alike > LEAST_ALIKE * len(rest),
        media=keys[position] < 0 or earlier[position] < 0,
    )


def _message(turn: int, turns: int, roles: Sequence[str]) -> tuple[int, str]:
    """Number and role of a turn. A template may begin with a turn of its own, and ends with one that opens the answer;
    without ``roles`` the prompt is one text."""
    if not roles:
        return 0, ""
    message = turn + 1 - max(0, turns - 1 - len(roles))
    if message < 1:
        return 0, "system"
    return message, roles[message - 1] if message <= len(roles) else "assistant"


def _tools(
    position: int, got: Sequence[int], had: Sequence[int], words: Words
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The declared tool in whose declaration a turn departs, empty for none; and the names of all of them, where the
    earlier turn has others, or has them in another order."""
    if not words.names:
        return "", (), ()
    before = words.text(got[: min(position, LONGEST_TURN)])
    names_got, names_had = (_names(turn, words) for turn in (got, had))
    complete = len(NAME.findall(before))
    begun = BEGUN.search(before) is not None
    if complete + begun == 0 or (not begun and NAME.findall(before)[-1] not in words.names):
        return "", (), ()
    at = complete if begun else complete - 1
    tool = names_got[at] if at < len(names_got) else ""
    return (tool, names_had, names_got) if names_had != names_got else (tool, (), ())


def _names(turn: Sequence[int], words: Words) -> tuple[str, ...]:
    end = next((n for n, key in enumerate(turn) if key in words.eog_tokens), len(turn))
    return tuple(NAME.findall(words.text(turn[: min(end, LONGEST_TURN)]))[:MOST_NAMES])


def facts_of(request: Request, words: Words, context_size: int) -> RequestFacts:
    """What is known of a request at its end."""
    course = request.course
    keys, departure = request.prompt.keys, None
    queued = max(0.0, (course.queued or 0.0) - course.prefix_seconds)  # another one read for it in that time
    if course.earlier and len(keys) - request.cached >= WORTH_COMPARING:
        found = departure_of(keys, request.variant, course.earlier, words)
        departure = found and replace(found, in_slots=course.in_slots)
    swapped, stats = max(0.0, request.seconds_waited - (course.queued or 0.0)), request.stats()
    first = stats.time_to_first_token
    behind = course.running + course.waiting if queued >= NOTICEABLE else 0
    return RequestFacts(
        prompt_tokens=len(keys),
        cached=request.cached,
        answer_tokens=request.generated,
        context_size=context_size,
        queued=queued,
        running=course.running if behind else 0,
        waiting=course.waiting if behind else 0,
        ahead_tokens=course.ahead_tokens if behind else 0,
        level=request.level,
        preempted=request.preempted,
        swapped=swapped if request.preempted else 0.0,
        reading=max(0.0, first - queued),
        writing=max(0.0, time.perf_counter() - request.created - first) if first else 0.0,
        masks=request.sampler.mask_seconds,
        others=course.waited_for_processors(),
        departure=departure,
    )

"""The order in which waiting requests get slots, and which running request gives its slot to one of a higher level.

Requests go by priority, then by age. A request rises by a level each RISE_SECONDS that it waits, so that none waits
forever: while requests of a higher level wait too, one of TURN slots goes to a request that rose. Waiting counts until
the request has had slots for GUARD_SECONDS, or one that is preempted in each pause between chats would not rise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...conversation.priority import FIRST, LEVEL
from .request import Request
from .slots import Slot

RISE_SECONDS = 30.0
"""A waiting request rises by a level each so many seconds."""
TURN = 4
GUARD_SECONDS = 10.0
"""A request that got its slot because it rose keeps it for so long at least."""
PAUSE_SECONDS = 0.1
"""Between two preemptions at least."""
SHARE_OF_TIME = 10
"""And so many times as long as the last one took."""


def risen(request: Request, now: float) -> int:
    """The priority of a request, higher by a level for each RISE_SECONDS that it waits."""
    since = request.waiting_since
    levels = 0 if since is None else int((request.aged + now - since) / RISE_SECONDS)
    return min(FIRST, request.priority + LEVEL * levels)


class WaitingOrder:
    """Says who is next."""

    def __init__(self) -> None:
        self._others = TURN
        """Slots given since the last one for a request that rose."""

    def sorted(self, waiting: Iterable[Request], now: float) -> list[Request]:
        """All waiting requests, the next one first; at most one is where it is because it rose."""
        ordered = sorted(waiting, key=lambda each: (-each.priority, each.created))
        if self._others < TURN - 1:
            return ordered
        first = min(ordered, key=lambda each: (-risen(each, now), each.created), default=None)
        if first is not None and risen(first, now) > first.priority:
            ordered.remove(first)
            ordered.insert(0, first)
        return ordered

    def begins(self, request: Request, waiting: Iterable[Request], now: float) -> None:
        """``request`` gets a slot now, and these wait on."""
        rose_to = risen(request, now)
        is_next = request.preempted > 0 and rose_to > request.priority and self._others >= TURN - 1
        if is_next or any(request.priority < each.priority <= rose_to for each in waiting):
            self._others = 0
            request.keeps_slot_until = now + GUARD_SECONDS
        else:
            self._others += 1
        request.leave_queue(now)


class Preemption:
    """Says who gives its slot: one request at a time, with pauses between, so that a crowd of requests spends its time
    on answers and not on saving states."""

    def __init__(self) -> None:
        self._not_before = 0.0
        self.count = 0

    def victim(self, request: Request, running: Sequence[Slot], now: float) -> Slot | None:
        """The slot that ``request`` is to get: of the requests of the lowest priority, if that is lower than its own,
        the one that began last. None where it has to wait."""
        if now < self._not_before:
            return None
        slots = [slot for slot in running if _may_leave(slot, request, now)]
        return max(slots, key=lambda slot: (-_priority(slot), slot.last_used), default=None)

    def note(self, began: float, now: float, *, done: bool = True) -> None:
        """A request gave its slot, or could not, which took from ``began`` to ``now``."""
        self.count += done
        self._not_before = now + max(PAUSE_SECONDS, SHARE_OF_TIME * (now - began))


def _priority(slot: Slot) -> int:
    assert slot.request is not None
    return slot.request.priority


def _may_leave(slot: Slot, other: Request, now: float) -> bool:
    request = slot.request
    if request is None or request.was_computed_anew:
        return False
    return request.priority < other.priority and now >= request.keeps_slot_until

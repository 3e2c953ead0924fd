"""Which cells of its cache llama.cpp gives to each position, followed so that leap knows them beforehand.

llama.cpp has no function that says it. Without the moves that follow from it, equal requests get unequal answers
(``tests/inference/engine/test_same_bits.py`` shows it). An engine that gives out other cells than the pinned one would
round differently beside others; how many cells are free does not depend on their order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

Run = tuple[int, int]
"""A sequence, and how many positions a batch adds to it."""


class Cells:
    """Follows ``llama_kv_cache::find_slot`` for ``size`` cells. ``hybrid``: the model has convolutions, for which
    llama.cpp cuts batches into equal lengths; ``kept_together``: of the last positions of a sequence so many stay in
    one cut; ``window``: of a sequence that is put back only the last so many positions are held (0 for all)."""

    def __init__(self, size: int, *, hybrid: bool, kept_together: int = 0, window: int = 0) -> None:
        self._size = size
        self._window = window
        self._first: dict[int, int] = {}
        """The first position that is held of a sequence, where it is not 0."""
        self._hybrid = hybrid
        self._kept_together = kept_together
        self._users: list[int] = []
        """How many sequences hold each cell; from its end on all are free."""
        self._free: list[int] = []
        """The others that are free, rising."""
        self._held: defaultdict[int, list[int]] = defaultdict(list)
        self._sound: dict[int, int] = {}

    def held(self, sequence: int) -> list[int]:
        """The cells of a sequence by position, from its first on."""
        return self._held[sequence]

    def first(self, sequence: int) -> int:
        """The first position that is held of a sequence."""
        return self._first.get(sequence, 0)

    def end(self, sequence: int) -> int:
        """The position after the last that is held of a sequence."""
        return self.first(sequence) + len(self._held[sequence])

    def sound(self, sequence: int) -> int:
        """Up to which position the cells of a sequence rise."""
        return min(self._sound.get(sequence, self.end(sequence)), self.end(sequence))

    @property
    def room(self) -> int:
        """How many cells are free."""
        return self._size - len(self._users) + len(self._free)

    def place(self, runs: Sequence[Run], *, one_by_one: bool = False) -> dict[int, list[int]]:
        """The cells that a batch will get. ``one_by_one``: it asks for hidden states."""
        total = sum(count for _, count in runs)
        free = self._lowest(total)
        if len(runs) == 1:
            return {runs[0][0]: free}
        if len(runs) == total:
            return {sequence: [cell] for (sequence, _), cell in zip(runs, free, strict=True)}
        if not self._hybrid:
            cuts: Iterator[Sequence[Run]] = iter([runs])
        else:
            cuts = ([run] for run in runs) if one_by_one else self._cuts(runs)
        placed: dict[int, list[int]] = {}
        used = 0
        for cut in cuts:
            for sequence, count in cut:
                placed.setdefault(sequence, []).extend(free[used : used + count])
                used += count
        return placed

    def _cuts(self, runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
        """``llama_batch_allocr::split_equal``."""
        left = list(runs)
        while left:
            length = min(count for _, count in left)
            rests = [count - length for _, count in left]
            taken = next((n for n, rest in enumerate(rests) if 0 < rest < self._kept_together), len(left))
            if not taken:
                yield [left.pop(0)]
                continue
            yield [(sequence, length) for sequence, _ in left[:taken]]
            left = [(s, n - length) for s, n in left[:taken] if n > length] + left[taken:]

    def add(self, placed: dict[int, list[int]]) -> None:
        """Take note that a batch was computed."""
        last = max((cell for cells in placed.values() for cell in cells), default=-1)
        self._users.extend([0] * (last + 1 - len(self._users)))
        for sequence, cells in placed.items():
            held = self._held[sequence]
            if held and cells[0] < held[-1]:
                self._sound[sequence] = min(self._sound.get(sequence, self.end(sequence)), self.end(sequence))
            held.extend(cells)
            for cell in cells:
                self._users[cell] += 1
        del self._free[: bisect_right(self._free, last)]

    @property
    def are_packed(self) -> bool:
        """Whether no cell is free between others, so that the next one is after all of them."""
        return not self._free

    def append(self, runs: Sequence[Run]) -> None:
        """Take note that one position of each sequence was computed while they were packed: the same as ``add`` of
        what ``place`` gives, without its work at every token of an answer."""
        for cell, (sequence, _) in enumerate(runs, len(self._users)):
            self._held[sequence].append(cell)
        self._users.extend([1] * len(runs))

    def cut(self, sequence: int, position: int) -> None:
        """A sequence was cut at ``position``."""
        held = self.held(sequence)
        kept = max(0, position - self.first(sequence))
        freed = held[kept:]
        del held[kept:]
        if not held:
            self._first.pop(sequence, None)
        if self._sound.get(sequence, position) >= position:
            self._sound.pop(sequence, None)
        for cell in freed:
            self._users[cell] -= 1
        self._free.extend(cell for cell in freed if not self._users[cell])
        self._free.sort()
        while self._users and not self._users[-1]:
            self._users.pop()
        while self._free and self._free[-1] >= len(self._users):
            self._free.pop()

    def copy(self, source: int, target: int) -> None:
        """``target`` shares all that ``source`` holds."""
        self.cut(target, 0)
        self._held[target] = list(self.held(source))
        if source in self._first:
            self._first[target] = self._first[source]
        if source in self._sound:
            self._sound[target] = self._sound[source]
        for cell in self.held(source):
            self._users[cell] += 1

    def restore(self, sequence: int, count: int) -> None:
        """A saved sequence of ``count`` positions was put back."""
        self.cut(sequence, 0)
        first = max(0, count - self._window) if self._window else 0
        self.add({sequence: self._lowest(count - first)} if count else {})
        if first:
            self._first[sequence] = first

    def _lowest(self, count: int) -> list[int]:
        free = self._free[:count]
        free.extend(range(len(self._users), len(self._users) + count - len(free)))
        return free

    def out_of_order(self, placed: dict[int, list[int]]) -> int | None:
        """A sequence whose next cells lie below its last, and that can be moved: a copy of what it shares with others
        must leave a quarter of the cells free. None when there is none."""
        for sequence, cells in placed.items():
            held = self._held[sequence]
            if held and cells[0] < held[-1] and sequence not in self._sound:
                shared = sum(self._users[cell] > 1 for cell in held)
                if not shared or self.room - shared >= self._size // 4:
                    return sequence
        return None

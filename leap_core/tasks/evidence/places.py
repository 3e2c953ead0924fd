"""Which of its possible places each value of a document has: mentions are used once and in order, and the values of one
element of a list are together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...schemas.json_schema import pointer, resolved_schema
from ...system.dataclass import dataclass
from .values import EXACT, NO_PLACE, NOT_IN_TEXT, Candidate, TextSource, candidates, folded

ValuePath = tuple[str | int, ...]
NEAR = 48
"""Characters before a value in which its field's name counts as a sign of it."""
A_CLAUSE = 40
"""Characters that the end of a sentence or a line counts as, between values of one element."""
MOST_CANDIDATES = 200


@dataclass(frozen=True)
class Leaf:
    """A value that is neither an object nor a list, with its path and what the schema says of it."""

    path: ValuePath
    value: Any
    schema: Mapping[str, Any]
    is_required: bool = True
    """Whether every document has it."""
    is_optional: bool = False
    """Whether its own object may lack it."""

    @property
    def has_place(self) -> bool:
        """Whether the value is one that a text can say word by word."""
        return not (self.value is None or isinstance(self.value, bool) or self.value == "")

    @property
    def is_choice(self) -> bool:
        """Whether the schema lists the values, so that the text need not have this one."""
        return "enum" in self.schema or "const" in self.schema

    @property
    def name_words(self) -> list[str]:
        """The words of the field's name, in lower case."""
        name = next((part for part in reversed(self.path) if isinstance(part, str)), "")
        words = re.split(r"[\W_]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())
        return [word for word in words if len(word) > 1]

    @property
    def element(self) -> ValuePath:
        """The innermost element of a list that the value belongs to; () for none."""
        return next(
            (self.path[: n + 1] for n in range(len(self.path) - 1, -1, -1) if isinstance(self.path[n], int)), ()
        )


@dataclass(frozen=True)
class Place:
    """Where a value is: code points of the source, ``end`` after the last; None where it has no place."""

    leaf: Leaf
    how: str
    start: int | None = None
    end: int | None = None

    @property
    def pointer(self) -> str:
        """The value's JSON pointer."""
        return pointer(self.leaf.path)


def leaves(
    value: Any,
    schema: Any,
    path: ValuePath = (),
    root: Mapping[str, Any] | None = None,
    is_required: bool = True,
    is_optional: bool = False,
) -> Iterator[Leaf]:
    """The values in a document, in its order, with ``is_required`` and ``is_optional`` of ``Leaf``."""
    schema = schema if isinstance(schema, Mapping) else {}
    root = schema if root is None else root
    schema = resolved_schema(schema, root)
    if isinstance(value, dict):
        properties, required = schema.get("properties", {}), schema.get("required") or ()
        for name, part in value.items():
            field = properties.get(name, schema.get("additionalProperties"))
            yield from leaves(part, field, (*path, name), root, is_required and name in required, name not in required)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from leaves(part, schema.get("items"), (*path, number), root, is_required)
    else:
        yield Leaf(path, value, schema, is_required, is_optional)


def find_places(text: str, document: Any, schema: Any = None) -> list[Place]:
    """The place of each value of a document in a text."""
    finder = _Finder(TextSource(text))
    all_leaves = list(leaves(document, schema))
    elements: dict[ValuePath, list[Leaf]] = {}
    for leaf in all_leaves:
        if leaf.has_place and not leaf.is_choice:
            elements.setdefault(leaf.element, []).append(leaf)
    for element, members in elements.items():
        if element:
            finder.place_together(element, members)
        else:
            finder.place_one_by_one(members)
    for leaf in all_leaves:
        if leaf.has_place and leaf.is_choice:
            finder.place_choice(leaf)
    return [finder.place(leaf) for leaf in all_leaves]


class _Finder:
    """Gives places out, each once."""

    def __init__(self, source: TextSource) -> None:
        self._source = source
        self._found: dict[tuple[type, Any], list[Candidate]] = {}
        self._places: dict[ValuePath, Candidate] = {}
        self._used: list[tuple[int, int]] = []
        self._reached: dict[ValuePath, int] = {}

    def place(self, leaf: Leaf) -> Place:
        """What was found for a leaf."""
        chosen = self._places.get(leaf.path)
        missing = NOT_IN_TEXT if leaf.has_place and not leaf.is_choice else NO_PLACE
        return Place(leaf, missing) if chosen is None else Place(leaf, chosen.how, chosen.start, chosen.end)

    def place_one_by_one(self, members: list[Leaf]) -> None:
        """Values that belong to no list: those with one place first, then after a field's name, then in order."""
        for leaf in sorted(members, key=lambda leaf: len(self._candidates(leaf)) > 1):
            free = self._free(leaf)
            if free:
                self._take(leaf, max(free, key=lambda each: (self._is_named(leaf, each), -each.start)))

    def place_together(self, element: ValuePath, members: list[Leaf]) -> None:
        """The values of one element of a list: after those of the element before, and near to each other."""
        before = self._reached.get(element[:-1], 0)
        options = [(leaf, self._free(leaf)) for leaf in members]
        options = [(leaf, free) for leaf, free in options if free]
        if not options:
            return
        later = [(leaf, [each for each in free if each.start >= before]) for leaf, free in options]
        options = later if all(free for _, free in later) else options
        groups = [
            self._group(anchor, options) for leaf, free in options for anchor in free
            if len(free) == min(len(each) for _, each in options)
        ]  # fmt: skip
        best = min(groups, key=lambda group: self._cost(group, before))
        for leaf, _ in options:
            self._take(leaf, best[leaf.path])
        self._reached[element[:-1]] = max(each.end for each in best.values())

    def place_choice(self, leaf: Leaf) -> None:
        """One of the schema's values where it is word for word: after the field's name, or nearest to its neighbors."""
        near = [each.start for path, each in self._places.items() if path[:-1] == leaf.path[:-1]]
        if exact := [each for each in self._free(leaf) if each.how == EXACT]:
            far = {each: min((abs(each.start - start) for start in near), default=each.start) for each in exact}
            self._take(leaf, min(exact, key=lambda each: (not self._is_named(leaf, each), far[each])))

    def _group(self, anchor: Candidate, options: list[tuple[Leaf, list[Candidate]]]) -> dict[ValuePath, Candidate]:
        """For each value the place that is nearest to the anchor, the same sentence or line first."""
        clause = self._source.clause(anchor.start)

        def distance(each: Candidate) -> tuple[int, int]:
            return abs(self._source.clause(each.start) - clause), max(each.start - anchor.end, anchor.start - each.end)

        taken: list[Candidate] = []
        group: dict[ValuePath, Candidate] = {}
        for leaf, free in sorted(options, key=lambda option: len(option[1])):
            apart = [each for each in free if not any(each.start < t.end and t.start < each.end for t in taken)] or free
            named = [each for each in apart if self._is_named(leaf, each) and distance(each)[0] == 0]
            group[leaf.path] = min(named or apart, key=distance)
            taken.append(group[leaf.path])
        return group

    def _cost(self, group: dict[ValuePath, Candidate], before: int) -> tuple[int, int, int]:
        """Elements come in order; then as close together, and as early, as can be."""
        first, last = min(each.start for each in group.values()), max(each.end for each in group.values())
        clauses = self._source.clause(last - 1) - self._source.clause(first)
        early = sum(each.start < before for each in group.values())
        return early, clauses * A_CLAUSE + last - first + max(0, first - before) // 2, first

    def _candidates(self, leaf: Leaf) -> list[Candidate]:
        key = (type(leaf.value), leaf.value)
        if key not in self._found:
            self._found[key] = candidates(self._source, leaf.value)[:MOST_CANDIDATES]
        return self._found[key]

    def _free(self, leaf: Leaf) -> list[Candidate]:
        """Places that no other value has; where all have been given out, all of them: a text need not repeat itself."""
        found = self._candidates(leaf)
        free = [each for each in found if not any(each.start < end and start < each.end for start, end in self._used)]
        return free or found

    def _take(self, leaf: Leaf, chosen: Candidate) -> None:
        self._places[leaf.path] = chosen
        self._used.append((chosen.start, chosen.end))

    def _is_named(self, leaf: Leaf, candidate: Candidate) -> bool:
        """Whether the field's name comes before a place, on its line."""
        words = leaf.name_words
        before = self._source.text[max(0, candidate.start - NEAR) : candidate.start].rpartition("\n")[2]
        nearest = re.split(r"[,;.]\s", folded(before))[-1]
        return bool(words) and all(word in nearest for word in words)

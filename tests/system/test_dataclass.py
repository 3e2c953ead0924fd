"""leap's ``dataclass`` beside the standard library's: every class of the three packages, and its corners."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
from dataclasses import field

import pytest

from leap_core.system.dataclass import dataclass

PACKAGES = ("leap_core", "leap_cli", "jobs")


def own_classes() -> list[type]:
    """Every dataclass that is defined in the three packages."""
    found = {}
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if module.name.endswith("__main__") or ".ray_" in module.name:
                continue
            try:
                members = vars(importlib.import_module(module.name))
            except ImportError:  # an extra that is not here
                continue
            for value in members.values():
                if isinstance(value, type) and value.__module__ == module.name and is_dataclass(value):
                    found[f"{value.__module__}.{value.__qualname__}"] = value
    return list(found.values())


def is_dataclass(cls: type) -> bool:
    """Whether it is one itself, not by the class that it extends."""
    return "__dataclass_fields__" in vars(cls)


def made_by_the_library(cls: type) -> type:
    """A class of the same fields, whose methods are all the library's."""
    copies = []
    for each in dataclasses.fields(cls):
        known = {name: getattr(each, name) for name in ("init", "repr", "hash", "compare", "kw_only")}
        if each.default is not dataclasses.MISSING:
            known["default"] = each.default
        if each.default_factory is not dataclasses.MISSING:
            known["default_factory"] = each.default_factory
        copies.append((each.name, each.type, field(**known)))
    parameters = cls.__dataclass_params__
    return dataclasses.make_dataclass(cls.__qualname__, copies, frozen=parameters.frozen, eq=parameters.eq)


def parameters_of(cls: type) -> list[tuple[str, object, str]]:
    return [(each.name, each.kind, repr(each.default)) for each in inspect.signature(cls).parameters.values()]


@pytest.mark.slow
def test_every_class_of_leap_is_what_the_library_would_have_made():
    classes = own_classes()
    assert len(classes) > 300
    for cls in classes:
        other, own = made_by_the_library(cls), vars(cls)
        if "_FACTORY" in cls.__init__.__globals__:  # not one that the class wrote itself
            assert parameters_of(cls) == parameters_of(other), cls
            assert cls.__init__.__annotations__.keys() == other.__init__.__annotations__.keys(), cls
        if own.get("__hash__") is None:
            assert (cls.__hash__ is None) == (other.__hash__ is None), cls
        values = {each.name: f"{each.name}!" for each in dataclasses.fields(cls)}
        mine, theirs = cls.__new__(cls), other.__new__(other)
        for name, value in values.items():
            object.__setattr__(mine, name, value)
            object.__setattr__(theirs, name, value)
        if cls.__repr__.__qualname__ == "_repr":
            assert repr(mine) == repr(theirs)
        if other.__dataclass_params__.frozen:
            for name in values:
                with pytest.raises(dataclasses.FrozenInstanceError):
                    setattr(mine, name, 0)
                with pytest.raises(dataclasses.FrozenInstanceError):
                    delattr(mine, name)


@dataclass(frozen=True)
class Place:
    """Two numbers, a list, and what no comparison sees."""

    line: int
    column: int = 1
    words: list[str] = field(default_factory=list, hash=False)
    secret: str = field(default="", repr=False, compare=False)
    length: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", len(self.words))


@dataclass
class Count:
    """A number that changes."""

    number: int
    names: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class Thing:
    """Compares by what it is."""

    number: int = 3


@dataclass(frozen=True)
class Nested(Place):
    """The library's, for it extends one."""

    depth: int = 0


@dataclasses.dataclass(frozen=True)
class OfOthers(Place):
    """Another program's, over a class of leap."""

    note: str = ""


def test_an_object_is_made_shown_compared_copied_and_pickled():
    place = Place(3, words=["a"], secret="s")
    assert repr(place) == "Place(line=3, column=1, words=['a'], length=1)"
    assert place == Place(3, 1, ["a"], "other") and place != Place(4, 1, ["a"]) and place != (3, 1, ["a"], "s", 1)
    assert hash(Place(3, words=["a"])) == hash(Place(3, words=["b"], secret="other")) != hash(Place(4, words=["a"]))
    assert Place(1).words is not Place(1).words
    for same in (copy.deepcopy(place), pickle.loads(pickle.dumps(place)), dataclasses.replace(place)):
        assert same == place and same.secret == "s"
    assert dataclasses.asdict(place)["words"] == ["a"]
    assert Place.__match_args__ == ("line", "column", "words", "secret")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'line'"):
        place.line = 4  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        place.new = 4  # type: ignore[attr-defined]


def test_a_signature_is_the_librarys_before_and_after_the_first_object():
    before = str(inspect.signature(Count))
    assert before == "(number: 'int', names: 'dict[str, int]' = <factory>) -> None"
    Count(1)
    assert str(inspect.signature(Count)) == before
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'number'"):
        Count()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        Count(1, other=2)  # type: ignore[call-arg]


class Loud(Count):
    """Calls the class that it extends."""

    def __init__(self, number: int) -> None:
        super().__init__(number * 2)


def test_two_threads_make_the_first_object_at_once():
    @dataclass
    class First:
        number: int = 3

    class Second(First):
        def __init__(self) -> None:
            super().__init__(4)

    found_by_the_slower_one = vars(First)["__init__"]
    assert First().number == 3
    for made in (First.__new__(First), Second.__new__(Second)):
        found_by_the_slower_one.__get__(made, type(made))(5)
        assert made.number == 5
    assert Second().number == 4 and Loud(2) != Count(4) and Loud(2).number == 4


def test_what_changes_has_no_hash_and_what_compares_by_identity_keeps_its_own():
    count = Count(1)
    count.number = 2
    assert count == Count(2) and Count.__hash__ is None
    assert Thing() != Thing() and hash(Thing()) is not None and repr(Thing(4)) == "Thing(number=4)"


@dataclasses.dataclass(eq=False)
class Extended(Count):
    """Another program's, which compares as leap's class does."""

    note: str = ""


class Marked(Place):
    """No dataclass of its own: what it adds may change."""


def test_classes_that_extend_one():
    assert Extended(1, note="a") == Extended(1, note="b") != Extended(2)
    marked = Marked(1)
    marked.color = "red"  # type: ignore[attr-defined]
    assert marked.color == "red" and marked == Marked(1) and hash(marked) == hash(Marked(1))  # type: ignore[attr-defined]
    with pytest.raises(dataclasses.FrozenInstanceError):
        marked.line = 2  # type: ignore[misc]
    for cls in (Nested, OfOthers):
        made = cls(3, words=["a", "b"])
        assert made.length == 2 and made != Place(3, words=["a", "b"])
        with pytest.raises(dataclasses.FrozenInstanceError):
            made.line = 1  # type: ignore[misc]
    assert Nested(1, depth=2).depth == 2 and OfOthers(1, note="n").note == "n"


def test_an_object_that_holds_itself_is_shown():
    count = Count(1)
    count.names["self"] = count  # type: ignore[assignment]
    assert repr(count) == "Count(number=1, names={'self': ...})"

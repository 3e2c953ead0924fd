"""``dataclass`` of the standard library in a fifth of its time: seventy are made before a warm model is asked.

Fields, defaults, ``replace``, ``asdict`` and matching are the library's own. It compiles up to six methods of a class
from text, at import; here ``__init__`` is compiled when it is first looked up, and the others are written once.
``tests/system/test_dataclass.py`` compares every class of leap with what the library would have made.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, kw_only=False):
        """As ``dataclasses.dataclass``, with these options. A class that extends a dataclass is the library's."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, kw_only=kw_only)
        if any(hasattr(base, "__dataclass_fields__") for base in cls.__bases__):
            return dataclasses.dataclass(cls, frozen=frozen, eq=eq, kw_only=kw_only)
        own = set(cls.__dict__)
        dataclasses.dataclass(cls, init=False, repr=False, eq=False, kw_only=kw_only)
        parameters = cls.__dataclass_params__
        parameters.init = parameters.repr = True
        parameters.eq, parameters.frozen = eq, frozen
        fields = dataclasses.fields(cls)
        methods = {"__init__": _Init(cls), "__repr__": _repr([field.name for field in fields if field.repr])}
        if eq:
            compared = [field for field in fields if field.compare]
            hashed = [field for field in fields if (field.compare if field.hash is None else field.hash)]
            methods |= {"__eq__": _eq(_values(compared)), "__hash__": _hash(_values(hashed)) if frozen else None}
        if frozen:
            methods |= _refusals(cls, frozenset(field.name for field in fields))
        for name, method in methods.items():
            if name not in own:
                setattr(cls, name, method)
        return cls


class _Init:
    """The ``__init__`` of a dataclass, which takes its own place once it is compiled."""

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def __get__(self, instance: object, owner: type) -> Any:
        method = _compiled(self.cls)
        self.cls.__init__ = method  # type: ignore[misc]
        return method.__get__(instance, owner)


class _Factory:
    """What a signature shows where a field's default is made anew for each object."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _compiled(cls: Any) -> Any:
    fields = dataclasses.fields(cls)
    values: dict[str, Any] = {"_FACTORY": _FACTORY, "_set": object.__setattr__}
    positional: list[str] = []
    named: list[str] = []
    body: list[str] = []
    for field in fields:
        name, value = field.name, field.name
        if field.default_factory is not dataclasses.MISSING:
            values[f"_make_{name}"] = field.default_factory
            value, default = f"_make_{name}()", "=_FACTORY"
            if field.init:
                value = f"{value} if {name} is _FACTORY else {name}"
        elif field.default is not dataclasses.MISSING:
            values[f"_default_{name}"] = field.default
            default = f"=_default_{name}"
        else:
            default = ""
        if field.init:
            (named if field.kw_only else positional).append(name + default)
        elif value == name:
            continue  # the class holds its default
        body.append(f"_set(self, {name!r}, {value})" if cls.__dataclass_params__.frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ["self", *positional, *(["*", *named] if named else [])]
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"]), values)
    method = values["__init__"]
    method.__qualname__, method.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    method.__annotations__ = {field.name: field.type for field in fields if field.init} | {"return": None}
    return method


def _values(fields: list[Any]) -> Any:
    """A function from an object to the tuple of what these fields hold."""
    names = [field.name for field in fields]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _repr(names: list[str]) -> Any:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({values})"

    return __repr__


def _eq(values: Any) -> Any:
    def __eq__(self: Any, other: object) -> bool:
        return bool(values(self) == values(other)) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Any) -> Any:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _refusals(cls: Any, names: frozenset[str]) -> dict[str, Any]:
    def __setattr__(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}

"""The row of an option: its type and range, what help says of it, and where it goes.

``GenerationOptions``, ``ModelLoadingOptions`` and ``CacheOptions`` are made of rows; whatever lists options asks them:
the command line, the readers of protocols, bodies of endpoints, tasks, lines of batches, manifests and model hosts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import LeapOptionsError

LARGEST = 2**64 - 1
"""The largest whole number of an option."""
SAME = "="
"""The option's own name, in its row."""


class Endpoint(Enum):
    """What becomes of an option where a model of an endpoint answers; a text in this place names what no endpoint can
    be held to, and such an option is refused there."""

    SENT = "sent"
    LOCAL = "local"
    """Done on this side, or it only permits what an endpoint does anyway."""
    LEAP = "leap"
    """Sent to another leap. Other endpoints do so anyway, and strict ones refuse a field that they do not know."""


class Host(Enum):
    """Where the request to load a model in a host has an option."""

    FIELD = "field"
    DETAIL = "detail"
    APART = "apart"
    """In another form, or not, because it changes no answer."""


class OptionKind:
    """The type and range of an option."""

    value_type: type = str
    """What its text on the command line is read as."""

    def read(self, name: str, value: Any) -> Any:
        """What is kept of a value. Raises LeapOptionsError for one that is outside."""
        raise NotImplementedError

    def to_json(self, value: Any) -> Any:
        """The value as JSON holds it."""
        return value

    def from_json(self, name: str, value: Any) -> Any:
        """The value that JSON means, for ``read`` to check. Raises LeapOptionsError."""
        return value

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the values."""
        return {}


class Number(OptionKind):
    """A finite number of a range; ``above``: its low end is outside."""

    value_type = float

    def __init__(self, low: float, high: float = math.inf, *, above: bool = False) -> None:
        self.low, self.high, self.above = low, high, above

    def read(self, name: str, value: Any) -> Any:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not is_finite(value):
            raise LeapOptionsError(name, f"{value!r} is not a finite number")
        if self.above and value == self.low:
            raise LeapOptionsError(name, f"must be above {self.low:g} (1 means no penalty)")
        if not self.low <= value <= self.high:
            limits = f"{self.low:g} or more" if self.high == math.inf else f"between {self.low:g} and {self.high:g}"
            raise LeapOptionsError(name, f"{value!r} must be {limits}")
        return value

    def schema(self) -> dict[str, Any]:
        low = {"exclusiveMinimum" if self.above else "minimum": self.low, "maximum": self.high}
        return {"type": "number", **{name: limit for name, limit in low.items() if math.isfinite(limit)}}


class Whole(OptionKind):
    """A whole number of a range; ``limit``: whose the high end is. ``word``: a text that the option takes, too."""

    value_type = int

    def __init__(self, low: int = 0, high: int = LARGEST, limit: str = "", *, word: str | None = None) -> None:
        self.low, self.high, self.limit, self.word = low, high, limit, word

    def read(self, name: str, value: Any) -> Any:
        if self.word is not None and value == self.word:
            return value
        if not isinstance(value, int) or isinstance(value, bool):
            raise LeapOptionsError(name, f"{value!r} is not a whole number")
        if value < self.low:
            raise LeapOptionsError(name, f"{value} must be {self.low} or more")
        if value > self.high:
            raise LeapOptionsError(name, f"{value} must be {self.high} or less{self.limit and f' ({self.limit})'}")
        return value

    def from_json(self, name: str, value: Any) -> Any:
        """JSON may write it as 16.0, too."""
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def schema(self) -> dict[str, Any]:
        whole = {"type": "integer", "minimum": self.low, "maximum": self.high}
        return whole if self.word is None else {"anyOf": [whole, {"const": self.word}]}


class Switch(OptionKind):
    """True or false."""

    value_type = bool

    def read(self, name: str, value: Any) -> Any:
        if not isinstance(value, bool):
            raise LeapOptionsError(name, f"{value!r} is not true or false")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


class SwitchOrText(Switch):
    """True or false, or a text that true would look up."""

    def read(self, name: str, value: Any) -> Any:
        if not isinstance(value, (bool, str)):
            raise LeapOptionsError(name, f"{value!r} is not true, false or a text")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": ["boolean", "string"]}


class Words(OptionKind):
    """A text."""

    def read(self, name: str, value: Any) -> Any:
        if not isinstance(value, str):
            raise LeapOptionsError(name, f"{value!r} is not a text")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


class OneOf(OptionKind):
    """One of these texts, or a member of an enumeration that is one."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def read(self, name: str, value: Any) -> Any:
        if value not in self.names:
            raise LeapOptionsError(name, f"{value!r} is not one of {', '.join(self.names)}")
        return self.names[self.names.index(value)]

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.names)}


class Texts(OptionKind):
    """A list of texts that are not empty; ``may_be_empty``: of none, too."""

    def __init__(self, *, may_be_empty: bool = True) -> None:
        self.may_be_empty = may_be_empty

    def read(self, name: str, value: Any) -> Any:
        is_list = isinstance(value, (list, tuple)) and all(isinstance(text, str) and text for text in value)
        if not is_list or not (value or self.may_be_empty):
            raise LeapOptionsError(name, "must be a list of non-empty strings")
        return value

    def to_json(self, value: Any) -> Any:
        return list(value) if value else None

    def schema(self) -> dict[str, Any]:
        fewest = {} if self.may_be_empty else {"minItems": 1}
        return {"type": "array", "items": {"type": "string", "minLength": 1}, **fewest}


class TokenIds(OptionKind):
    """A list of token ids."""

    def read(self, name: str, value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or not all(type(token) is int and token >= 0 for token in value):
            raise LeapOptionsError(name, "must be a list of token ids")
        return value

    def to_json(self, value: Any) -> Any:
        return list(value) if value else None

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "integer", "minimum": 0}}


class Biases(OptionKind):
    """Numbers by token ids."""

    def read(self, name: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise LeapOptionsError(name, "must map token ids to numbers")
        for token, bias in value.items():
            if not isinstance(token, int) or isinstance(token, bool) or token < 0:
                raise LeapOptionsError(name, f"{token!r} is not a token id")
            is_number = isinstance(bias, (int, float)) and not isinstance(bias, bool)
            if not is_number or bias != bias or (isinstance(bias, int) and not is_finite(bias)):
                raise LeapOptionsError(name, f"the bias of token {token} is not a number")
        return value

    def to_json(self, value: Any) -> Any:
        return {str(token): bias for token, bias in value.items()}

    def from_json(self, name: str, value: Any) -> Any:
        try:
            return {int(token): bias for token, bias in value.items()}
        except (ValueError, AttributeError):
            raise LeapOptionsError(name, "expected an object of token ids and numbers") from None

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "propertyNames": {"pattern": "^[0-9]+$"}, "additionalProperties": {"type": "number"}}


class Members(OptionKind):
    """An object: values by names."""

    def read(self, name: str, value: Any) -> Any:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise LeapOptionsError(name, f"{value!r} is not an object")
        return value

    def to_json(self, value: Any) -> Any:
        return dict(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


class Several(OptionKind):
    """A list of values of one type, kept as a tuple; ``what`` names them."""

    def __init__(self, each: type | tuple[type, ...], what: str) -> None:
        self.each, self.what = each, what

    def read(self, name: str, value: Any) -> Any:
        try:
            values = () if isinstance(value, str) else tuple(value)
        except TypeError:
            values = ()
        numbers = [each for each in values if not isinstance(each, str)]
        is_fit = not isinstance(value, str) and all(isinstance(each, self.each) for each in values)
        if not is_fit or (value and not values) or not all(0 <= each < math.inf for each in numbers):
            raise LeapOptionsError(name, f"{value!r} is not a list of {self.what}")
        return values


class FilePath(OptionKind):
    """A path, also as the text that JSON holds."""

    def read(self, name: str, value: Any) -> Any:
        if not isinstance(value, (str, PathLike)):
            raise LeapOptionsError(name, f"{value!r} is not a path")
        return Path(value)

    def to_json(self, value: Any) -> Any:
        return None if value is None else str(value)


class OptionRow:
    """What there is to know about one option. No dataclass: each start of a command makes all of them."""

    kind: OptionKind
    default: Any
    name: str = ""
    text: str = ""
    """What help says of it on the command line."""
    flag: str = ""
    """Its name on the command line, made of its own where it has a text; empty where a command has an option of its own
    for it, or none."""
    heading: str = ""
    """Where help shows it, when not beside the others of its group."""
    common: bool = False
    """``--help`` shows it; where a command has many options, the others are left to ``--help-all``."""
    chat: tuple[str, ...] = ()
    """The fields of a chat request whose value it is; the last that is given counts. Fields of another form than the
    option's are in ``protocols.openai.fields``."""
    responses: str = ""
    """Its field in a request of the Responses API."""
    anthropic: str = ""
    """Its field in a request of the Messages API."""
    ollama: str = ""
    """Its name among the ``options`` of Ollama's requests."""
    endpoint: Endpoint | str = Endpoint.LOCAL
    task: bool = False
    """It wins over a task's own."""
    line: bool = True
    """A line of a batch may have it as a field."""
    model: str = ""
    """What a model has for it where it is left open, by the name there."""
    constraint: bool = False
    """At most one of these is given."""
    extras: bool = True
    """``extras`` may have it."""
    host: Host | None = None
    """How a model host is asked to load so; None where it does not look at it."""
    opens_files: bool = False
    """It names files, or holds options that may."""

    def __init__(self, kind: OptionKind, default: object, about: Mapping[str, Any]) -> None:
        """``about``: the other fields that are not as above."""
        self.kind, self.default = kind, default
        vars(self).update(about)

    def read(self, value: Any) -> Any:
        """What is kept of a value. Raises LeapOptionsError."""
        if value is None and self.default is None:
            return None
        return self.kind.read(self.name, plain_number(value))

    def read_json(self, name: str, value: Any) -> Any:
        """What is kept of a value in a field of this ``name``. Raises LeapOptionsError."""
        return self.kind.read(name, self.kind.from_json(name, value))

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the option, as a request's JSON has it."""
        value = self.kind.schema()
        value = value if self.default is not None else {"anyOf": [value, {"type": "null"}]}
        return {**value, **({"description": self.text} if self.text else {})}


def option(
    kind: OptionKind, default: object = None, *, factory: Callable[[], object] | None = None, **about: Any
) -> Any:
    """A field of a class of options; ``factory`` makes a default that is not shared, ``about`` is what else its row
    says."""
    if factory is None:
        return field(default=default, metadata={"row": OptionRow(kind, default, about)})
    return field(default_factory=factory, metadata={"row": OptionRow(kind, factory(), about)})


def rows_of(options: type) -> dict[str, OptionRow]:
    """The rows of a class of options by their names."""
    rows: dict[str, OptionRow] = {}
    for each in fields(options):
        row = rows[each.name] = each.metadata["row"]
        row.name = each.name
        if row.text and not row.flag:
            row.flag = f"--{row.name.replace('_', '-')}"
        row.chat = tuple(each.name if name == SAME else name for name in row.chat)
        vars(row).update({name: each.name for name, value in vars(row).items() if value == SAME})
    return rows


def keep_checked(options: Any, rows: Mapping[str, OptionRow]) -> None:
    """Check the fields of frozen options, in which None means the default. Raises LeapOptionsError."""
    for name, row in rows.items():
        value = getattr(options, name)
        kept = row.default if value is None else row.read(value)
        if kept is not value:
            object.__setattr__(options, name, kept)


def plain_number(value: object) -> object:
    """A number of Python for one of numpy's, which no JSON can hold; anything else as it is."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()  # type: ignore[attr-defined]
    return value


def is_finite(value: float) -> bool:
    """Whether a float can hold it."""
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer larger than any float
        return False


def suggestion(name: str, names: Iterable[str]) -> str:
    """ "; did you mean 'x'?" where a name is like one of ``names``, else nothing."""
    from difflib import get_close_matches

    near = get_close_matches(name, names, 1)
    return f"; did you mean {near[0]!r}?" if near else ""

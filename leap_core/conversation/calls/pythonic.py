"""Reads and writes calls as LFM2 models write them: a Python list of calls, such as ``[f(a="x"), g(b=[1, 2])]``.

Reading takes what models really write: both kinds of quotes, escapes, line breaks inside strings, True and true, None
and null, numbers in every form, nested lists, tuples, sets and dicts, comments, dotted names, Python's keywords as
names of parameters, and JSON where a value or a whole call is JSON. Nothing is evaluated. Positions in errors count
characters from 0.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from ..messages import LeapFunctionCall

RUN = re.compile(r"[+-]?\s*[\w.]+(?:(?<=\d[eE])[+-]\w*|(?<=\.[eE])[+-]\w*)?")
"""All characters that could belong to a number; whether they are one is asked afterwards, so that no text is read over
and over."""
DIGITS = re.compile(r"(?:\d+(?:_+\d+)*_*)?(?:\.(?:\d+(?:_+\d+)*_*)?)?(?:[eE][+-]?\d+(?:_+\d+)*_*)?")
WITH_BASE = re.compile(r"0(?:[xX]_*[0-9a-fA-F]|[oO]_*[0-7]|[bB]_*[01])\w*")
MOST_DIGITS = 3000
"""Digits of a number, with which it stays below Python's limit when it is written in decimals."""


class WrittenText(str):
    """Digits with zeros before them: a text unless the schema wants a number."""


class UntypedText(str):
    """A value without quotes, as XML elements hold: JSON unless the schema allows a text."""


class WrittenInt(int):
    """An integer with a sign or in another base, which its value loses: a number unless the schema wants a text."""

    written = ""


def read_number(text: str, position: int) -> tuple[int | float | str, int]:
    """The number at ``position``, and the position after it. Raises ValueError with the reason."""
    run = RUN.match(text, position)
    if run is None:
        raise ValueError("expected a number")
    if len(run[0]) > 2 * MOST_DIGITS:
        raise ValueError("the number is too long")
    written = "".join(run[0].split())
    value = _value(written)
    if isinstance(value, int) and str(value) != written:
        value = WrittenInt(value)
        value.written = written
    return value, run.end()


def _value(written: str) -> int | float | str:
    sign = -1 if written.startswith("-") else 1
    body = written.lstrip("+-")
    digits = body.replace("_", "").lower()
    if len(digits) > MOST_DIGITS:
        raise ValueError("the number is too long")
    if WITH_BASE.fullmatch(body):
        try:
            return sign * int(digits, 0)
        except ValueError:
            raise ValueError("expected a number") from None
    if not body[:1].isdigit() and not (body.startswith(".") and body[1:2].isdigit()) or not DIGITS.fullmatch(body):
        raise ValueError("expected a number")
    if digits.isdecimal() and digits.startswith("0") and len(digits) > 1:
        return WrittenText(written)  # a postal code, or the like: as a number it would lose its zeros
    if digits.isdecimal():
        return sign * int(digits)
    value = sign * float(digits)
    if not math.isfinite(value):
        raise ValueError("the number is too large")
    return value


DEEPEST = 100
"""Levels of nesting; a text with more is not a call."""

SPACE = re.compile(r"(?:\s+|#[^\n]*)*")
"""White space, and comments."""
NAME = re.compile(r"\w[\w-]*(?:\.\w[\w-]*)*")
ARGUMENT = re.compile(r"[\w$][\w$.-]*")
KEY = re.compile(r"[^\W\d][\w-]*")
STRING_START = re.compile(r"([rRuU]?)('''|\"\"\"|'|\")")
WORDS: dict[str, bool | None] = {"True": True, "true": True, "TRUE": True, "False": False, "false": False}
WORDS |= {"FALSE": False, "None": None, "null": None, "NULL": None}

ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "/": "/", "\n": ""}
ESCAPES |= {"\\": "\\", "'": "'", '"': '"'}
ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8})|([0-7]{1,3})|N\{([^{}]*)\}|(.))", re.DOTALL
)

NAME_KEYS = ("name", "tool_name")
CALL_KEYS = {*NAME_KEYS, "id", "call_id", "tool_call_id", "type", "index", "function"}
ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")
"""Where models and protocols put a call's arguments: OpenAI's, Llama's, LangChain's, Anthropic's."""


class PythonicSyntaxError(ValueError):
    """``position`` is where reading stopped. ``in_string``: the text ended within a string. ``readable``: the calls of
    the list that can be read all the same, and ``unreadable`` the text of those that cannot; or ``text_after`` the text
    that follows them and is no call."""

    def __init__(self, position: int, reason: str, *, in_string: bool = False) -> None:
        super().__init__(f"syntax error at {position}: {reason}")
        self.position = position
        self.reason = reason
        self.in_string = in_string
        self.readable: list[LeapFunctionCall] = []
        self.unreadable = ""
        self.text_after = ""


def read_value(text: str) -> Any:
    """One value that fills the text: Python's or JSON's spelling. Raises PythonicSyntaxError."""
    reader = Reader(text)
    value = reader.value(0)
    reader.expect_end()
    return value


def write_calls(calls: Sequence[LeapFunctionCall]) -> str:
    """``[f(a="x", b=1), g()]``: arguments sorted by name, Python's spelling of values."""
    return "[" + ", ".join(_write_call(call) for call in calls) + "]"


class Reader:
    """Reads from a position onwards, by recursive descent."""

    def __init__(self, text: str, position: int = 0) -> None:
        self.text = text
        self.position = position

    def sees(self, token: str) -> bool:
        """Whether ``wanted`` comes next, white space aside."""
        self._skip_space()
        return self.text.startswith(token, self.position)

    def calls_until(self, closing: str, depth: int = 0) -> list[LeapFunctionCall]:
        calls: list[LeapFunctionCall] = []
        while True:
            calls += self.some_calls(depth)
            is_separated = self.passes_separator()
            if not is_separated or (self.at_end() if not closing else self.sees(closing)):
                return calls  # a comma may come before the end

    def some_calls(self, depth: int = 0) -> list[LeapFunctionCall]:
        """One call, or the calls of a list or of ``{"tool_calls": […]}``."""
        if self.sees("["):
            if depth > 1:
                raise self.error("lists of calls are nested too deeply")
            self._take("[")
            calls = [] if self.sees("]") else self.calls_until("]", depth + 1)
            self.passes(")")  # one too many, as in [f())]
            self._take("]")
            return calls
        if not self.sees("{"):
            return [self._call()]
        value = self.value(0)
        listed = value.get("tool_calls") if isinstance(value, dict) and len(value) == 1 else None
        items = listed if isinstance(listed, list) and listed else [value]
        return [call_of_object(item, self.position) for item in items]

    def arguments(self) -> dict[str, Any]:
        """An object."""
        value = self.value(0)
        if not isinstance(value, dict):
            raise self.error("the arguments are no object")
        return value

    def passes_separator(self) -> bool:
        """A comma, or a new line; JSON calls may follow each other without."""
        start, is_passed = self.position, self.passes(",") or self.sees("{")
        is_new_line = "\n" in self.text[start : self.position]
        return is_passed or (is_new_line and not self.text.startswith(("]", ")", "}"), self.position))

    def expect_end(self) -> None:
        if not self.at_end():
            raise self.error(f"unexpected {self.text[self.position]!r}")

    def _call(self) -> LeapFunctionCall:
        name = self._match(NAME, "the name of a function")
        self._take("(")
        arguments: dict[str, Any] = {}
        while not self.sees(")"):
            if self.passes("**"):
                self._add_spread(arguments)
            else:
                key = self._string(0) if self._string_ahead() else self._match(ARGUMENT, "the name of an argument")
                self._take("=", ": arguments are given by name")
                self._add(arguments, key, self.value(1))
            if not self.passes(","):
                break
        self._take(")")
        return LeapFunctionCall(name, arguments)

    def _add_spread(self, arguments: dict[str, Any]) -> None:
        spread = self.value(1)
        if not isinstance(spread, dict):
            raise self.error("** needs a dict")
        for key, value in spread.items():
            self._add(arguments, key, value)

    def _add(self, arguments: dict[str, Any], key: str, value: Any) -> None:
        if key in arguments:
            raise self.error(f"{key!r} is given twice")
        arguments[key] = value

    def value(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise self.error(f"nested deeper than {DEEPEST} levels")
        self._skip_space()
        char = self.text[self.position : self.position + 1]
        if char == "[":
            return self._items("[", "]", depth)
        if char == "(":
            return self._parenthesis(depth)
        if char == "{":
            return self._braces(depth)
        if self._string_ahead():
            return self._string(depth)
        if char and (char in "+-." or char.isdigit()):
            return self._number()
        return self._word()

    def _items(self, opening: str, closing: str, depth: int) -> list[Any]:
        self._take(opening)
        items: list[Any] = []
        while not self.sees(closing):
            items.append(self.value(depth + 1))
            if not self.passes(","):
                break
        self._take(closing)
        return items

    def _parenthesis(self, depth: int) -> Any:
        """A tuple, or a value in parentheses."""
        start = self.position
        items = self._items("(", ")", depth)
        last = self.text[start : self.position - 1].rstrip()[-1:]
        return items[0] if len(items) == 1 and last != "," else items

    def _braces(self, depth: int) -> dict[str, Any] | list[Any]:
        """A dict, or a set, which JSON has as a list."""
        start = self.position
        self._take("{")
        value: dict[str, Any] = {}
        while not self.sees("}"):
            key_start = self.position
            try:
                key = self._key(depth)
                is_pair = self.sees(":")
            except PythonicSyntaxError:
                if value:
                    raise
                is_pair = False
            if not is_pair and not value:
                self.position = start
                return self._items("{", "}", depth)
            if not is_pair:
                self.position = key_start
            self._take(":")
            self._add(value, key, self.value(depth + 1))
            if not self.passes(","):
                break
        self._take("}")
        return value

    def _key(self, depth: int) -> str:
        """A key: a string, a bare word, or a number, which JSON can only have as text."""
        if self._string_ahead():
            return self._string(depth)
        word = KEY.match(self.text, self.position)
        if word:
            self.position = word.end()
            return json.dumps(WORDS[word[0]]) if word[0] in WORDS else word[0]
        return json.dumps(self._number())

    def _string_ahead(self) -> bool:
        self._skip_space()
        return STRING_START.match(self.text, self.position) is not None

    def _string(self, depth: int) -> str:
        """A string; several in a row, or with + between them, are one, as in Python."""
        pieces = [self._one_string()]
        while self.passes("+") or (self._string_ahead() and self.text[self.position] in "'\""):
            if not self._string_ahead():
                raise self.error("expected a string after '+'")
            pieces.append(self._one_string())
        return _joined_surrogates("".join(pieces))

    def _one_string(self) -> str:
        start = self.position
        opening = STRING_START.match(self.text, start)
        assert opening is not None
        raw, quote = opening[1] in ("r", "R"), opening[2]
        place = opening.end()
        end, slash = self.text.find(quote, place), self.text.find("\\", place)
        while 0 <= slash < end or (end < 0 <= slash):
            place = slash + 2
            end = self.text.find(quote, place) if 0 <= end < place else end  # no text is searched twice
            slash = self.text.find("\\", place)
        if end < 0:
            self.position = start
            raise self.error("the string does not end", in_string=True)
        body = self.text[opening.end() : end]
        self.position = end + len(quote)
        if raw or any(match[6] is not None and match[6] not in ESCAPES for match in ESCAPE.finditer(body)):
            return body  # one that is none: the model writes backslashes as they are, as in C:\\Users\\test
        try:
            return ESCAPE.sub(_unescaped, body)
        except (KeyError, ValueError):  # the name of no character, or a number beyond the last one
            return body

    def _number(self) -> int | float | str:
        self._skip_space()
        try:
            value, self.position = read_number(self.text, self.position)
        except ValueError as error:
            raise self.error(str(error)) from None
        return value

    def _word(self) -> Any:
        if self.at_end():
            raise self.error("expected a value")
        word = KEY.match(self.text, self.position)
        if word is None or word[0] not in WORDS:
            stranger = word[0] if word else self.text[self.position]
            raise self.error(f"expected a value, found {stranger[:50]!r}")
        self.position = word.end()
        return WORDS[word[0]]

    def _match(self, pattern: re.Pattern[str], meaning: str) -> str:
        self._skip_space()
        match = pattern.match(self.text, self.position)
        if match is None:
            raise self.error(f"expected {meaning}")
        self.position = match.end()
        return match[0]

    def _take(self, token: str, reason: str = "") -> None:
        if not self.passes(token):
            raise self.error(f"expected {token!r}{reason}")

    def passes(self, token: str) -> bool:
        if self.sees(token):
            self.position += len(token)
            return True
        return False

    def at_end(self) -> bool:
        self._skip_space()
        return self.position >= len(self.text)

    def _skip_space(self) -> None:
        match = SPACE.match(self.text, self.position)
        assert match is not None
        self.position = match.end()

    def error(self, reason: str, *, in_string: bool = False) -> PythonicSyntaxError:
        return PythonicSyntaxError(self.position, reason, in_string=in_string)


def call_of_object(value: Any, position: int = 0) -> LeapFunctionCall:
    """The call that an object ``{"name": …, "arguments": {…}}`` means; arguments may be a JSON text. OpenAI's wrapper
    and the other ARGUMENT_KEYS are understood too. Raises PythonicSyntaxError, also for what could be an argument and
    is not where arguments are."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    names = [value[key] for key in NAME_KEYS if key in value] if isinstance(value, dict) else []
    if len(names) != 1 or not isinstance(names[0], str) or not names[0].strip():
        raise PythonicSyntaxError(position, "missing or invalid 'name' field")
    strangers = sorted(value.keys() - CALL_KEYS - set(ARGUMENT_KEYS))
    if strangers:
        raise PythonicSyntaxError(position, f"a call has no field {strangers[0]!r}")
    fields = [key for key in ARGUMENT_KEYS if value.get(key) is not None]
    if len(fields) > 1:
        raise PythonicSyntaxError(position, f"arguments are given twice, as {fields[0]!r} and {fields[1]!r}")
    arguments = value[fields[0]] if fields else {}  # a function without parameters
    if isinstance(arguments, str):
        arguments = read_value(arguments or "{}")
    if not isinstance(arguments, dict):
        raise PythonicSyntaxError(position, f"invalid {fields[0]!r} field")
    return LeapFunctionCall(names[0].strip(), arguments)


def _joined_surrogates(text: str) -> str:
    """Surrogate escapes in pairs are one character; alone they are none."""
    if not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _write_call(call: LeapFunctionCall) -> str:
    arguments = ", ".join(f"{_write_name(key)}={_write(call.arguments[key])}" for key in sorted(call.arguments))
    return f"{call.name}({arguments})"


def _write_name(name: str) -> str:
    return name if ARGUMENT.fullmatch(name) else _write_string(name)


def _write(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_write_string(str(key))}: {_write(value[key])}" for key in sorted(value, key=str))
        return "{" + pairs + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_write, value)) + "]"
    return _write_string(str(value))


def _write_string(text: str) -> str:
    for char, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(char, escape)
    return f'"{text}"'


def _unescaped(match: re.Match[str]) -> str:
    """The character of an escape. Raises KeyError or ValueError for one that is none."""
    short, byte, long, octal, name, char = match.groups()
    if char is not None:
        return ESCAPES[char]
    if name is not None:
        return unicodedata.lookup(name)
    return chr(int(octal, 8) if octal else int(short or byte or long, 16))

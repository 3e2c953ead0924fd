"""Calls whose arguments are elements with a name and a value that has no quotes, as XML and its likes have them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...system.dataclass import dataclass
from ..messages import LeapFunctionCall
from .pythonic import PythonicSyntaxError, UntypedText

NAME, CALL_ID = r"(?P<name>[\w.:/-]+)", r"[\w.-]*"
SPACE = r"\s*"
CDATA, CDATA_END, CDATA_SPLIT = "<![CDATA[", "]]>", "]]]]><![CDATA[>"
"""A section of a value, and what is written in one for its end, as in XML."""


@dataclass(frozen=True)
class Elements:
    """How a call is written: ``head`` with its ``{name}`` and perhaps its number ``{index}`` from 1 or its ``{id}``,
    for each argument ``key``, its value and ``close``, and ``tail``. ``key`` has the ``{key}`` and perhaps a
    ``{type}``, which is one of ``texts`` where the value is a text; ``close`` may have these, too, and ``tail`` the
    name. White space between them is free. A line feed at the end of ``key`` and at the beginning of ``close`` is not
    part of the value."""

    head: str
    key: str
    close: str
    tail: str = ""
    texts: tuple[str, ...] = ()

    def read(self, body: str) -> list[LeapFunctionCall]:
        """The calls of a text that holds nothing else. Raises PythonicSyntaxError."""
        head, key = re.compile(_pattern(self.head)), re.compile(_pattern(self.key))
        following = re.compile(_pattern(self.key).removeprefix(SPACE))  # looked for after white space of any length
        calls, place, end_of_body = list[LeapFunctionCall](), 0, len(body.rstrip())
        unended = set[str]()
        while place < end_of_body:
            match = head.match(body, place)
            if match is None:
                raise PythonicSyntaxError(place, f"expected {self.head.strip()!r}")
            closing = _pattern(self.tail.replace("{name}", match["name"]))
            tail = re.compile(rf"{closing}\s*|\s*\Z") if self.tail.strip() else re.compile(r"\s*")
            arguments, place = dict[str, object](), match.end()
            while (parameter := key.match(body, place)) is not None:
                name = parameter["key"].strip()
                if name in arguments:
                    raise PythonicSyntaxError(place, f"{name!r} is given twice")
                kind = (parameter.groupdict().get("type") or "").strip()
                close = self.close.replace("{key}", name).replace("{type}", kind)
                value, place = self._value(body, parameter.end(), close, following, unended)
                arguments[name] = value if kind in self.texts else UntypedText(value)
            end = tail.match(body, place)
            if end is None:
                raise PythonicSyntaxError(place, f"expected {self.tail.strip()!r}")
            calls.append(LeapFunctionCall(match["name"], arguments))
            place = end.end()
        return calls

    def write(self, calls: Sequence[LeapFunctionCall], spelled: Sequence[Sequence[tuple[str, str, bool]]]) -> list[str]:
        """The texts of calls. ``spelled``: by call and argument its name, the text of its value, and whether that is a
        text."""
        texts = []
        for number, (call, arguments) in enumerate(zip(calls, spelled, strict=True), 1):
            parts = [
                self.key.replace("{key}", name).replace("{type}", self._type(is_text))
                + self._closed(value, self.close.replace("{key}", name).replace("{type}", self._type(is_text)))
                for name, value, is_text in arguments
            ]
            head, tail = (
                text.replace("{name}", call.name).replace("{index}", str(number)).replace("{id}", str(number))
                for text in (self.head, self.tail)
            )
            texts.append(head + "".join(parts) + tail)
        return texts

    def _closed(self, value: str, close: str) -> str:
        """A value and what closes it; a value that holds this text is put into a section that hides it."""
        if close.strip() not in value:
            return value + close
        return f"{CDATA}{value.replace(CDATA_END, CDATA_SPLIT)}{CDATA_END}{close.lstrip()}"

    def _type(self, is_text: bool) -> str:
        return (self.texts or ("",))[0] if is_text else OTHER_TYPES.get((self.texts or ("",))[0], "json")

    def _value(self, body: str, start: int, close: str, key: re.Pattern[str], unended: set[str]) -> tuple[str, int]:
        """The text of a value, and the place after what closes it. Where none does, it ends before the next key.
        ``unended``: the marks before which no section ends any more, so that none is looked for twice."""
        mark = close.strip()
        if mark not in unended and body.startswith(CDATA, start):
            end = body.find(CDATA_END + mark, start)
            if end >= 0:
                value = body[start + len(CDATA) : end].replace(CDATA_SPLIT, CDATA_END)
                return value, end + len(CDATA_END) + len(mark)
            unended.add(mark)
        end = body.find(mark, start)
        after = end + len(mark)
        if end < 0:
            following = key.search(body, start)
            if following is None:
                raise PythonicSyntaxError(len(body), f"expected {mark}", in_string=True)
            after = following.start()
            end = start + len(body[start:after].rstrip())
        value = body[start:end]
        is_framed = body[start - 1] == "\n" and close.startswith("\n")
        return value.removesuffix("\n") if is_framed else value, after


OTHER_TYPES = {"true": "false", "string": "number"}
"""What is written for a value that is no text, by what is written for a text."""


def _pattern(text: str) -> str:
    """What matches a fixed text with its fields; white space in it is free, but for the last line feed."""
    parts = re.split(r"(\{name\}|\{index\}|\{id\}|\{key\}|\{type\}|\s+)", text.strip(" ").rstrip("\n"))
    known = {
        "{name}": NAME,
        "{index}": r"\d*",
        "{id}": CALL_ID,
        "{key}": r"(?P<key>[^>\n\"'<|/][^>\n\"'<|]*)",
        "{type}": r"(?P<type>[^>\n\"'<|]*)",
    }
    pattern = "".join(known.get(part) or (r"\s*" if part.isspace() else re.escape(part)) for part in parts)
    return rf"{SPACE}{pattern}" + (r"\n?" if text.endswith("\n") else "")

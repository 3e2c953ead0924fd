"""How a model writes calls and reasoning, learned from its chat template.

The template renders small conversations that differ in one thing: one call or two, one argument or two, a text or a
number, with reasoning or without. Names and values are words that no template has. The texts between them are the
markers. A format counts only when it reads all that the template has written.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ...conversation.calls import LeapFunction
from ...conversation.calls.dialects import CHANNELS, READINGS, RECIPIENTS, Dialect
from ...conversation.calls.elements import Elements
from ...conversation.calls.fitting import fitted
from ...conversation.calls.parsers import (
    LEARNED,
    PARSERS,
    TAG,
    CallsFound,
    CallStream,
    CallText,
    CallWarning,
    DialectParser,
    JSONFunctionCallParser,
    LeapFunctionCallParser,
    is_tagged,
    parser_for_template,
)
from ...errors import LeapModelLoadingError
from ...schemas.grammar_matcher import REASONING_TAGS
from ...schemas.json_values import JsonObject
from ...system.dataclass import dataclass

if TYPE_CHECKING:
    from .chat_template import ChatTemplate

NAMES, KEYS, VALUES, IDS = (
    ("qznamea", "qznameb"),
    ("qzkeya", "qzkeyb"),
    ("qzvala", "qzvalb"),
    ("qzidaaaa1", "qzidbbbb2", "qzidcccc3"),
)
CONTENT, REASON, NUMBER = "Xwcontent", "Xwreason", 70417
QUESTION = {"role": "user", "content": "Xwquestion"}
INDEX, ID = "{index}", "{id}"
BARE = JSONFunctionCallParser.name
WORD = r"\w+"
NO_THOUGHT = re.compile("|".join(rf"{re.escape(start)}\s*{re.escape(end)}" for start, end in REASONING_TAGS))
SEGMENT = re.compile(r"<[^<>\n]*>?|\[/?[A-Z][A-Z_ ]*\]|\s+|[{}\[\](),\"']|[^\s<{}\[\](),\"']+")
"""A marker, or a part of one, or a text between two."""
MARKER = re.compile(r"<[^<>\n]+>|\[/?[A-Z][A-Z_ ]*\]|[\w{}\[\](),\"'.:]*[^\w\s{}\[\](),\"'.:]\S*")
ARGUMENTS = re.compile(rf'\{{\s*"{KEYS[0]}"\s*:\s*"{VALUES[0]}"\s*\}}')
PYTHON = re.compile(rf"\{{'{KEYS[0]}': '{VALUES[0]}'\}}")
"""Arguments that a template has written out without JSON's filter: it wants them as texts."""
PAST = re.compile(rf'"{VALUES[0]}"\s*\}}')
PYTHONIC = re.compile(rf"{NAMES[0]}\s*\(\s*{KEYS[0]}\s*=\s*[\"']{VALUES[0]}[\"']\s*\)")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": name,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": ["string", "integer", "boolean"]} for key in KEYS},
                "required": [],
            },
        },
    }
    for name in NAMES
]
PROBES: Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]] = {
    "one": [(NAMES[0], {KEYS[0]: VALUES[0]})],
    "two": [(NAMES[0], {KEYS[0]: VALUES[0]}), (NAMES[1], {KEYS[0]: VALUES[1]})],
    "three": [(NAMES[0], {}), (NAMES[1], {KEYS[0]: VALUES[1]}), (NAMES[0], {KEYS[0]: VALUES[0]})],
    "pair": [(NAMES[0], {KEYS[0]: VALUES[0], KEYS[1]: VALUES[1]})],
    "none": [(NAMES[0], {})],
    "number": [(NAMES[0], {KEYS[0]: NUMBER})],
    "boolean": [(NAMES[0], {KEYS[0]: True, KEYS[1]: VALUES[1]})],
}


MOST_KEPT = 64
MOST_WRITTEN = 4_000
"""Characters of what a template writes for a small reply; a longer text is not read."""
MOST_SECONDS = 3.0
"""Processor time of this thread after which no further conversation is rendered; usual templates take 1 to 70 ms."""


@dataclass(frozen=True)
class ReplyFormat:
    """``parser``: what reads and writes the calls. ``is_known``: whether the template shows that the model writes them
    so; else they are JSON without markers, which has to be the whole reply."""

    parser: LeapFunctionCallParser
    is_known: bool = True


_kept: dict[bytes, ReplyFormat] = {}


def format_of_template(template: ChatTemplate | None, source: str, special_tokens: Collection[str]) -> ReplyFormat:
    """The format of a model's replies: as the table of dialects has it, unless the template writes other calls; else as
    it is learned."""
    digest = blake2b("\0".join([source, *sorted(special_tokens)]).encode("utf-8", "replace")).digest()
    form = _kept.get(digest)
    if form is None:
        form = _format(template, source, special_tokens)
        if len(_kept) >= MOST_KEPT:
            _kept.clear()
        _kept[digest] = form
    return form


def name_of_format(source: str, special_tokens: Collection[str]) -> str | None:
    """The line for users about a template's calls; None for one that takes no functions, or is none."""
    from .chat_template import ChatTemplate

    try:
        template = ChatTemplate(source, bos_text="", eos_text="", special_texts=special_tokens)
    except LeapModelLoadingError:
        return None
    if not template.renders_functions:
        return None
    form = format_of_template(template, source, special_tokens)
    return form.parser.name if form.is_known else "only JSON: the chat template does not show how they are written"


def _format(template: ChatTemplate | None, source: str, special_tokens: Collection[str]) -> ReplyFormat:
    parser = parser_for_template(source, special_tokens)
    is_lfm = parser.name == "lfm" and parser.start_marker in source
    if template is not None and not is_lfm and parser.name not in (CHANNELS.name, RECIPIENTS.name):
        with suppress(Exception):  # what a template writes may be anything, and is no reason not to load its model
            return _probed(Probe(template, special_tokens), parser)
    return ReplyFormat(parser_for_template(source, special_tokens), parser.name != BARE)


def _probed(probe: Probe, parser: LeapFunctionCallParser) -> ReplyFormat:
    is_known, reads = parser.name != BARE, probe.reads(parser)
    if reads is not True and (learned := probe.learn()) is not None:
        is_known, parser = True, DialectParser(learned)
    elif reads is False and parser.name in PARSERS:  # of the tokens of the vocabulary, and not of the template
        is_known = False
    is_known = is_known or reads is True
    if not parser.reasoning:
        parser.reasoning, dropped = probe.reasoning()
        parser.dropped += dropped
    return ReplyFormat(parser, bool(is_known))


class Probe:
    """Asks one template. ``special_tokens``: texts that are tokens of the model."""

    def __init__(self, template: ChatTemplate, special_tokens: Collection[str] = ()) -> None:
        self._template, self._special = template, special_tokens
        self._ends = time.thread_time() + MOST_SECONDS
        self._plain = self._rendered(content=CONTENT)
        self._as_text = False
        self._around = list[str]()
        self._replies = self._blocks()

    def _written(self, messages: list[JsonObject], **given: Any) -> str:
        if time.thread_time() > self._ends:
            raise LeapModelLoadingError("the chat template takes too long for small conversations")
        return self._template.probed(messages, **given)

    def _rendered(self, **fields: Any) -> str:
        message = {"role": "assistant", "content": "", **fields}
        for content in ("", None):
            given = [QUESTION, message if message["content"] else {**message, "content": content}]
            text = self._written(given, add_generation_prompt=False, tools=TOOLS)
            if text:
                return text
        return ""

    def _of_calls(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
        spelled = [
            {
                "id": IDS[n],
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(given) if self._as_text else given},
            }
            for n, (name, given) in enumerate(calls)
        ]
        return self._rendered(tool_calls=spelled)

    def _blocks(self) -> dict[str, str]:
        """What the template writes for the calls of each of PROBES, without what is around an answer."""
        if CONTENT not in self._plain:
            return {}
        for self._as_text in (False, True):
            one = self._of_calls(PROBES["one"])
            if one and (self._as_text or not PYTHON.search(one)):
                break
        before = len(_shared(self._plain, one))
        after = len(_shared(self._plain.partition(CONTENT)[2], one[before:], at_end=True))
        texts = {name: self._of_calls(calls) for name, calls in PROBES.items()}
        opened = self._written([QUESTION], tools=TOOLS)
        start, _, end = self._plain[min(before, len(_shared(self._plain, opened))) :].partition(CONTENT)
        self._around = [*_marked(NO_THOUGHT.sub("", start)), *_marked(end[: len(end) - after])]
        ends = one[len(one) - after :] if after else ""
        return {
            name: NO_THOUGHT.sub("", text[before : len(text) - after])
            for name, text in texts.items()
            if len(text) - before - after <= MOST_WRITTEN
            and text.startswith(one[:before])
            and text.endswith(ends)
            and _names(text[before:]) == _names_of(PROBES[name])
        }

    def reads(self, parser: LeapFunctionCallParser) -> bool | None:
        """Whether a parser reads the calls that the template writes; None where it writes none."""
        found = {name: _calls_in(text, parser) for name, text in self._replies.items()}
        return None if "one" not in found else all(found[name] == list(PROBES[name]) for name in found)

    def learn(self) -> Dialect | None:
        """How the template writes calls; None where no format reads them all."""
        if "one" not in self._replies:
            return None
        for numbered in (False, True):
            for dialect in self._candidates(numbered):
                if self._is_mark(dialect.start) and self.reads(DialectParser(dialect)):
                    return dialect
        return None

    def _is_mark(self, text: str) -> bool:
        """Whether a text is none that an answer may have."""
        return is_tagged(text) or text in self._special

    def _candidates(self, numbered: bool) -> Iterator[Dialect]:
        """``numbered``: digits are numbers of calls."""
        texts = {name: _with_index(text, numbered) for name, text in self._replies.items()}
        one, two = texts["one"], texts.get("two")
        name, given, last = NAMES[0], ARGUMENTS.search(one), PAST.search(two or "")
        if given is not None:
            start, end = _object_around(one, given)
            if start <= one.find(name) < end:
                places = _objects_of(two)
                between = two[places[0][1] : places[1][0]] if two and len(places) == 2 else None
                frame = _frame(one[:start], between, one[end:])
                inner = one[start : given.start()], one[given.end() : end]
                yield from self._framed(frame, inner, "objects", "framed")
                return
            before = one[: given.start()]
            if name in before:
                second = two.find(NAMES[1], last.end()) if two and last else -1
                between = two[last.end() : second] if two and last and second >= 0 else None
                frame = _frame(before.partition(name)[0], between, one[given.end() :])
                yield from self._framed(frame, (name + before.partition(name)[2], ""), "framed")
            return
        if (call := PYTHONIC.search(one)) is not None:
            between, found, _ = (two or "").partition(")")[2].partition(NAMES[1])
            frame = _frame(one[: call.start()], between if found else None, one[call.end() :])
            yield from self._framed(frame, ("", ""), "pythonic")
            return
        if "pair" in texts and "none" in texts and KEYS[0] in one and VALUES[0] in one:
            yield from self._tagged(texts)

    def _framed(self, frame: Frame, inner: tuple[str, str], *readings: str) -> Iterator[Dialect]:
        head, tail = frame.head + inner[0], inner[1] + frame.tail
        head = head.replace("{", "{{").replace("}", "}}").replace(NAMES[0], "{name}")
        head = head.replace("{{index}}", INDEX).replace("{{id}}", ID)
        for reading in readings:
            read = None if reading == "objects" and frame.end else READINGS[reading]
            is_json = reading != "pythonic"
            yield (
                replace(frame.dialect(), head=head, tail=tail, read=read, is_json=is_json)
                if is_json
                else replace(frame.dialect(), read=read, is_json=False)
            )

    def _tagged(self, texts: Mapping[str, str]) -> Iterator[Dialect]:
        """Elements: what is before a key, between it and its value, and after the value."""
        one, pair, two = texts["one"], texts["pair"], texts.get("two", "")
        before, _, rest = one.partition(NAMES[0])
        opened, _, rest = rest.partition(KEYS[0])
        assigned, _, closed = rest.partition(VALUES[0])
        middle = pair.partition(VALUES[0])[2].partition(KEYS[1])[0]
        cuts = [len("".join(SEGMENT.findall(middle)[:n])) for n in range(len(SEGMENT.findall(middle)) + 1)]
        for cut in reversed(cuts):
            close, key = middle[:cut], middle[cut:]
            if not (closed.startswith(close) and opened.endswith(key) and close.strip() and (key + assigned).strip()):
                continue
            second = two.partition(VALUES[0])[2].partition(NAMES[1])[0]
            between = second[len(close) :] if second.startswith(close) else None
            frame = _frame(before, between, closed[len(close) :])
            key, kind = self._key_of(key + KEYS[0] + assigned, texts.get("number", ""))
            elements = Elements(
                frame.head + "{name}" + opened[: len(opened) - len(middle[cut:])],
                key.replace(KEYS[0], "{key}"),
                re.sub(rf"\b{kind}\b", "{type}", close.replace(KEYS[0], "{key}"))
                if kind
                else close.replace(KEYS[0], "{key}"),
                frame.tail.replace(NAMES[0], "{name}"),
                (kind,) if kind else (),
            )
            yield replace(frame.dialect(), read=READINGS["elements"], is_json=False, elements=elements)

    def _key_of(self, key: str, number: str) -> tuple[str, str]:
        """The text of a key and all up to its value, and the word in it that says that the value is a text."""
        words = re.split(r"(\w+)", key)
        pattern = "".join(f"({WORD})" if n % 2 and word != KEYS[0] else re.escape(word) for n, word in enumerate(words))
        found = re.search(rf"{pattern}{NUMBER}", number)
        own = [word for n, word in enumerate(words) if n % 2 and word != KEYS[0]]
        other = [mine for mine, its in zip(own, found.groups(), strict=True) if mine != its] if found else []
        return (key.replace(other[0], "{type}"), other[0]) if len(other) == 1 else (key, "")

    def reasoning(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What begins and ends reasoning where that is not usual, and texts around the answer."""
        text = self._rendered(content=CONTENT, reasoning_content=REASON, thinking=REASON, reasoning=REASON)
        before, found, rest = text.partition(REASON)
        after, answer, _ = rest.partition(CONTENT)
        ends = SEGMENT.findall(after.strip())
        if not (found and answer and ends and len(after) <= MOST_WRITTEN):
            return (), tuple(self._around)
        start = before[len(_shared(self._plain, text)) :].strip()
        if not start:  # it is there without reasoning, too
            last = next((each for each in reversed(SEGMENT.findall(before)) if each.strip()), "")
            start = last if set(re.findall(WORD, last)) & set(re.findall(WORD, after)) else ""
        end = ends[0] if MARKER.fullmatch(ends[0]) else after.strip()
        if start and not (self._is_mark(start) and self._is_mark(end)):
            return (), tuple(self._around)
        tags = {start, end, *(tag for pair in REASONING_TAGS for tag in pair)}
        around = [each for each in (*self._around, *_marked("".join(ends[1:]))) if each not in tags]
        is_usual = not start or (start, end) == REASONING_TAGS[0]
        return () if is_usual else (start, end), tuple(dict.fromkeys(around))


@dataclass(frozen=True)
class Frame:
    """What is around calls: of a dialect ``start``, ``opening``, ``separator``, ``closing`` and ``end``, of each call
    ``head`` and ``tail``."""

    start: str
    opening: str
    head: str
    tail: str
    separator: str | None
    closing: str
    end: str

    def dialect(self) -> Dialect:
        return Dialect(
            *(LEARNED, (), self.start, self.end),
            opening=self.opening,
            separator=self.separator,
            closing=self.closing,
        )


def _marked(text: str) -> list[str]:
    """The texts to leave out of an answer: tags, or tags with words between them."""
    parts = [each for each in SEGMENT.findall(text) if each.strip()]
    has_tag = any(map(TAG.fullmatch, parts))
    return parts if all(map(TAG.fullmatch, parts)) else [text.strip()] if has_tag else []


def _names(text: str) -> set[str]:
    return set(re.findall("|".join((*NAMES, *KEYS, *VALUES)), text))


def _names_of(calls: Sequence[tuple[str, Mapping[str, Any]]]) -> set[str]:
    return _names(json.dumps(calls))


def _frame(before: str, between: str | None, after: str) -> Frame:
    """The parts of what is before one call, between two, and after the last one."""
    head, tail = (
        (before, after) if between is None else (_shared(before, between, at_end=True), _shared(after, between))
    )
    if between is not None and len(head) + len(tail) > len(between):
        head = between[len(tail) :]
    opening, closing = before[: len(before) - len(head)], after[len(tail) :]
    if opening.strip() or closing.strip():
        start = opening.strip().removesuffix("[").rstrip() if MARKER.match(opening.strip()) else opening.strip()
        end = closing.strip().removeprefix("]").lstrip() if opening.strip() != start else closing.strip()
        first = MARKER.match(SEGMENT.findall(end)[0]) if end else None
        end = first[0] if first else end
        opening = opening[opening.index(start) + len(start) :]
        closing = closing.partition(end)[0] if end else closing
        separator = between[len(tail) : len(between) - len(head)] if between is not None else None
        return Frame(start, opening, head, tail, separator, closing, end)
    first, *more = SEGMENT.findall(head.lstrip()) or [""]
    is_first = MARKER.fullmatch(first) is not None and "".join(more).strip() != ""
    start, head = (first, "".join(more)) if is_first else (head.strip(), "")
    *less, last = SEGMENT.findall(tail.rstrip()) or [""]
    is_last = last.strip("[]{}()\"'") != ""
    end, tail = (last, "".join(less)) if is_last else ("", tail)
    return Frame(start, "", head.lstrip(), tail.rstrip(), None, "", end)


def _shared(one: str, other: str, *, at_end: bool = False) -> str:
    """The segments with which both texts begin, or end."""
    step = -1 if at_end else 1
    pairs = zip(SEGMENT.findall(one)[::step], SEGMENT.findall(other)[::step], strict=False)
    same = [first for first, second in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    return "".join(same[::step])


def _with_index(text: str, numbered: bool) -> str:
    for id in IDS:
        text = text.replace(id, ID)
    return re.sub(r"\d+", INDEX, text) if numbered else text


def _object_around(text: str, given: re.Match[str]) -> tuple[int, int]:
    """Where the outermost JSON object is that holds the arguments."""
    for place in (found.start() for found in re.finditer(r"\{", text[: given.end()])):
        with suppress(ValueError, RecursionError):
            _, end = json.JSONDecoder().raw_decode(text, place)
            if end >= given.end():
                return place, end
    return given.span()


def _objects_of(text: str | None) -> list[tuple[int, int]]:
    """Where the JSON objects of a text are."""
    places, end = list[tuple[int, int]](), 0
    while text and (start := text.find("{", end)) >= 0:
        end = start + 1
        with suppress(ValueError, RecursionError):
            _, end = json.JSONDecoder().raw_decode(text, start)
            places.append((start, end))
    return places


def _calls_in(text: str, parser: LeapFunctionCallParser) -> list[tuple[str, Mapping[str, Any]]] | None:
    """The calls that a parser reads in a reply; None where it leaves text or warns."""
    functions = [LeapFunction.from_openai(tool) for tool in TOOLS]
    stream = CallStream(parser, NAMES, None, lambda call: True)
    events = [*stream.feed(text), *stream.finish()]
    text = "".join(each.text for each in events if isinstance(each, CallText))
    if MARKER.sub("", text).strip() or any(isinstance(each, CallWarning) for each in events):
        return None
    found = [call for each in events if isinstance(each, CallsFound) for call in each.calls]
    return [(call.name, dict(fitted(call, functions).arguments)) for call in found]

"""Grounded answers: while a value of a schema is decoded, only what stands in a source text is allowed.

Numbers are those that the text has, as digits or words; strings of the format date are its dates; strings with
``"x-from-text": true`` are words of it that follow each other. ``"x-from-text": false`` leaves a value free, such as a
total that is computed. Values with enum, const, another format or a pattern are free. Where the text has nothing that
fits, a value is null or absent if the schema allows it. What is left free is looked for in the text afterwards.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import date
from functools import cached_property, lru_cache
from typing import Any

from .json_schema import pointer, resolved_schema
from .json_values import JsonObject
from .numerals import numerals_in
from .spelled_values import dates_in, moment_of, number_of, numbers_in, readings_of
from .transforms import transform, walk

FROM_TEXT = "x-from-text"
MOST_CHARACTERS, MOST_DIGITS = 400_000, 10_000
"""Characters and runs of digits of a text that is read; more take seconds."""
MOST_NUMBERS = 2000
"""Different numbers or dates of a text that an answer can be limited to."""
LARGEST_INTEGER = 2**53
LONGEST_PATTERN = 80_000
"""Characters of the expression for the spans of a text, which takes a quarter of a second to compile."""
MOST_WORDS = 8
"""Words of a span."""
MOST_REMARKS = 20
DIGITS = re.compile(r"\d+")
LOOSE = re.compile(r"\d{1,3}(?:[,.'\u2019\u00a0\u202f ]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?")
"""A number also beside letters, such as EUR119,98."""
INDIAN = re.compile(r"(?<![\d,])\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?(?![\d,])")
NEGATIVE, MINUS = re.compile(r"\W?[-\u2212(]"), re.compile(r"-(?!\w)")
"""What is before a negative number, and behind one."""
ENUMERATED, NEXT = re.compile(r"\d[.,]"), re.compile(r"[.,]\d")
"""What is beside a number where commas or points separate several."""
LONGEST_NUMBER = 40
WORD = re.compile(r"\S+")
LEADING, TRAILING = "\"'«»„“”‚‘’([{<", ".,;:!?\"'«»„“”‚‘’)]}>"
WITHOUT_SPACES = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
UNCLEAR = frozenset(("not", "if", "oneOf", "contains", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems"))
"""Keywords under which a narrower schema could allow more; a schema with one is not narrowed."""
FREE = frozenset(("enum", "const", "$ref", "allOf", "pattern"))
"""Keywords of a value that say what it is."""
SPANS = "words_of_the_text"
SPAN: JsonObject = {"$ref": f"#/$defs/{SPANS}"}
ALONE = frozenset(("type", "title", "description", "default", "examples", FROM_TEXT))
"""Keywords of a string that its spans say all about."""
NUMBERS, NULL, TEXT = frozenset(("number", "integer")), frozenset(("null",)), frozenset(("string",))


class Source:
    """The text that answers are taken from."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def is_large(self) -> bool:
        """Whether reading the text would take seconds."""
        return len(self.text) > MOST_CHARACTERS or sum(1 for _ in DIGITS.finditer(self.text)) > MOST_DIGITS

    @cached_property
    def numbers(self) -> frozenset[float]:
        """All that digits and words of the text may mean."""
        values = {value for each in numbers_in(self.text) for value in each.values if isinstance(value, float)}
        values |= {value for _, _, value in numerals_in(self.text, all_words=True)}
        values |= {float(match[0].replace(",", "")) for match in INDIAN.finditer(self.text)}
        for match in LOOSE.finditer(self.text):
            start, end = match.span()
            found = [*readings_of(match[0])] if end - start <= LONGEST_NUMBER else []
            if " " in match[0] or ENUMERATED.match(self.text, max(0, start - 2), start) or NEXT.match(self.text, end):
                found += map(float, DIGITS.findall(match[0][:LONGEST_NUMBER]))  # 3,100,25 may be three numbers
            values.update(found)
            if NEGATIVE.fullmatch(self.text, max(0, start - 2), start) or MINUS.match(self.text, end):
                values.update(-value for value in found)
        return frozenset(value for value in values if math.isfinite(value))

    @cached_property
    def digits(self) -> frozenset[str]:
        """The runs of digits."""
        return frozenset(DIGITS.findall(self.text))

    @cached_property
    def dates(self) -> frozenset[str]:
        """Those that the text may mean, as RFC 3339 writes them."""
        values = (value for each in dates_in(self.text) for value in each.values)
        return frozenset(value.isoformat() for value in values if isinstance(value, date))

    @cached_property
    def spans(self) -> str | None:
        """An expression for words that follow each other in a line; None for a text without spaces or a long one."""
        if len(self.text) > LONGEST_PATTERN or WITHOUT_SPACES.search(self.text):
            return None
        found: dict[str, None] = {}
        length = 0  # of all
        for line in self.text.splitlines():
            words = [match.span() for match in WORD.finditer(line)]
            for number in range(len(words)):
                pattern = _span_from(line, words[number : number + MOST_WORDS])
                if pattern and pattern not in found:
                    found[pattern] = None
                    length += len(pattern)
            if length > LONGEST_PATTERN:
                return None
        return f"^(?:{'|'.join(found)})$" if found else None

    def lacks(self, value: Any) -> bool:
        """Whether a number, or the numbers and dates in a string, are not in the text."""
        if isinstance(value, str):
            if (day := moment_of(value)) is not None and day[0].isoformat() in self.dates:
                return False
            is_number = number_of(value) in self.numbers
            return not is_number and not self.digits.issuperset(DIGITS.findall(value))
        return float(value) not in self.numbers


def _span_from(line: str, words: list[tuple[int, int]]) -> str:
    """An expression for the first of some words, alone or with those behind it; a word's last marks may be left out."""
    pattern, cores = "", []
    for number, (start, end) in enumerate(words):
        word = line[start:end].lstrip(LEADING) if number == 0 else line[start:end]
        core = word.rstrip(TRAILING)
        before = "" if number == 0 else line[words[number - 1][1] : start]
        cores.append((before + core, word[len(core) :]))
    if not cores[0][0]:
        return ""
    for core, marks in reversed(cores[1:]):
        pattern = f"(?:{re.escape(core)}{_optional(marks, pattern)})?"
    return re.escape(cores[0][0]) + _optional(cores[0][1], pattern)


def _optional(marks: str, rest: str) -> str:
    """Marks, which have to be there before a rest."""
    return f"(?:{re.escape(marks)}{rest})?" if marks else rest


class _NothingFitsError(Exception):
    """The text has no value for a schema."""


class Grounding:
    """What a schema and a source text allow. ``schema``: the one to decode by. ``notes``: what of it is not held."""

    def __init__(self, schema: JsonObject, source: Source) -> None:
        self._asked = schema
        self._source = source
        self._notes: dict[str, None] = {}
        self.schema: JsonObject = without_keyword(schema)
        if source.is_large:
            self._note(f"it has more than {MOST_CHARACTERS} characters or {MOST_DIGITS} numbers")
        elif any(not UNCLEAR.isdisjoint(part) for _, part in walk(schema)):
            self._note("the schema has alternatives or conditions")
        else:
            self._shared: JsonObject = {}
            self._has_ids = any("$id" in part for path, part in walk(schema) if path)  # references mean others there
            self.schema = without_keyword(self._fitting(schema))
            if self._shared:
                self.schema = {**self.schema, "$defs": {**self.schema.get("$defs", {}), **self._shared}}
        self.notes = tuple(f"values are not limited to the text: {note}" for note in self._notes)

    def _note(self, note: str) -> None:
        self._notes[note] = None

    def remarks_on(self, answer: str) -> list[str]:
        """The values of an answer, as JSON, that the text does not have."""
        if self._source.is_large:
            return []
        document = json.loads(answer)
        found = (
            f"{where or 'the answer'}: {json.dumps(value, ensure_ascii=False)[:100]} is not in the text"
            for where, value in _values(document, self._asked, self._asked)
            if self._source.lacks(value)
        )
        return [remark for _, remark in zip(range(MOST_REMARKS), found, strict=False)]

    def _fitting(self, schema: Any) -> Any:
        """A schema of what the text has; the same where nothing fits."""
        try:
            return self._narrowed(schema)
        except _NothingFitsError:
            return schema

    def _narrowed(self, schema: Any) -> Any:
        """Raises _NothingFitsError."""
        if not isinstance(schema, dict) or schema.get(FROM_TEXT) is False:
            return schema
        kinds = _kinds(schema)
        if kinds - NULL and FREE.isdisjoint(schema):
            if kinds - NULL <= NUMBERS:
                return self._listed(schema, self._numbers_for(schema, kinds))
            if kinds - NULL == TEXT:
                return self._string(schema)
        changed = dict(schema)
        for key in ("$defs", "definitions"):
            if isinstance(schema.get(key), dict):
                changed[key] = {name: self._fitting(part) for name, part in schema[key].items()}
        if isinstance(schema.get("properties"), dict):
            changed["properties"] = self._properties(schema)
        if isinstance(schema.get("additionalProperties"), dict):
            changed["additionalProperties"] = self._fitting(schema["additionalProperties"])
        if isinstance(schema.get("items"), dict):
            try:
                changed["items"] = self._narrowed(schema["items"])
            except _NothingFitsError:
                if not schema.get("minItems") and "prefixItems" not in schema:
                    changed["maxItems"] = 0
        if isinstance(schema.get("anyOf"), list):
            changed["anyOf"] = self._alternatives(schema["anyOf"])
        return changed

    def _properties(self, schema: JsonObject) -> JsonObject:
        """Those for which the text has values, and those that have to be there."""
        required, kept = schema.get("required", ()), {}
        for name, part in schema["properties"].items():
            try:
                kept[name] = self._narrowed(part)
            except _NothingFitsError:
                if name in required or len(schema["properties"]) == 1:
                    kept[name] = part
        return kept or dict(schema["properties"])

    def _alternatives(self, schemas: list[Any]) -> list[Any]:
        kept = []
        for part in schemas:
            try:
                kept.append(self._narrowed(part))
            except _NothingFitsError:
                continue
        if not kept:
            raise _NothingFitsError
        return kept

    def _string(self, schema: JsonObject) -> JsonObject:
        if schema.get("format") == "date":
            return self._listed(schema, sorted(self._source.dates))
        if schema.get(FROM_TEXT) is not True or "format" in schema:
            return schema
        if self._source.spans is None:
            self._note("it is long, or in a script without spaces")
            return schema
        spans = {"type": "string", "pattern": self._source.spans}
        if self._has_ids or not ALONE.issuperset(schema):
            return {**schema, "pattern": self._source.spans}
        self._shared = {SPANS: spans}  # compiled once for all fields
        return {"anyOf": [SPAN, {"type": "null"}]} if "null" in _kinds(schema) else SPAN

    def _listed(self, schema: JsonObject, values: list[Any] | None) -> JsonObject:
        """A schema of these values, and null where it allows that. None: any."""
        if values is None or len(values) > MOST_NUMBERS:
            self._note("it has too many numbers, or too large ones")
            return schema
        values = [*values, *([None] if "null" in _kinds(schema) else ())]
        if not values:
            raise _NothingFitsError
        return {"enum": values}

    def _numbers_for(self, schema: JsonObject, kinds: frozenset[str]) -> list[Any] | None:
        """The numbers of the text that a schema allows; None where one cannot be written exactly."""
        numbers = self._source.numbers
        if any(abs(value) > LARGEST_INTEGER for value in numbers):
            return None
        plain = [int(value) if value.is_integer() else value for value in sorted(numbers)]
        only_whole = "number" not in kinds
        return [each for each in plain if not (only_whole and isinstance(each, float)) and _is_within(schema, each)]


def _is_within(schema: JsonObject, value: float) -> bool:
    """Whether a number keeps the bounds of a schema."""
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
    if isinstance(above, bool) or isinstance(below, bool):  # draft 4
        above, below = (low if above is True else -math.inf), (high if below is True else math.inf)
    step = schema.get("multipleOf")
    is_multiple = step is None or math.isclose(value / step, round(value / step), rel_tol=1e-12, abs_tol=1e-9)
    return low <= value <= high and above < value < below and is_multiple


def _kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    kinds = schema.get("type", ())
    return frozenset((kinds,) if isinstance(kinds, str) else kinds)


def _values(value: Any, schema: Any, root: JsonObject, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """The numbers and strings of an answer that have to be in its text, with their pointers."""
    asked = schema if isinstance(schema, Mapping) else {}
    schema = resolved_schema(asked, root)
    if asked.get(FROM_TEXT) is False or schema.get(FROM_TEXT) is False or {"enum", "const"} & {*asked, *schema}:
        return
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for name, part in value.items():
            yield from _values(part, known.get(name, schema.get("additionalProperties")), root, (*path, name))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _values(part, schema.get("items"), root, (*path, number))
    elif isinstance(value, (int, float, str)) and not isinstance(value, bool):
        yield pointer(path), value


def without_keyword(schema: JsonObject) -> JsonObject:
    """The schema as other readers of schemas know it."""
    if not any(FROM_TEXT in part for _, part in walk(schema)):
        return schema
    plain: JsonObject = transform(schema, lambda part: {key: part[key] for key in part if key != FROM_TEXT})
    return plain


def copying(schema: Any) -> Any:
    """The schema with plain strings taken from the text, where it does not say otherwise: those that have neither a
    description nor a form of their own."""
    if not isinstance(schema, dict):
        return schema
    return transform(schema, _copied)


COPIED = frozenset(("type", "title", "minLength", "maxLength", "default", "examples"))
"""Keywords of a string that is taken from the text."""


def _copied(schema: JsonObject) -> JsonObject:
    is_plain = COPIED.issuperset(schema) and _kinds(schema) - NULL == TEXT
    return {**schema, FROM_TEXT: True} if is_plain else schema


@lru_cache(maxsize=16)
def source_of(text: str) -> Source:
    """The text, read once for all tries and fields."""
    return Source(text)

"""The grammar of a JSON schema, which llguidance enforces."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import LeapSchemaError
from ...schemas.expressions import CheckTakesTooLong, bounded_check, check_time
from ...schemas.grammar_matcher import ConstraintTokenizer, GrammarError
from ...schemas.json_schema import JsonSchema, pointer
from ...schemas.json_values import JsonObject
from ...schemas.keywords import CHECKS, bounded, with_bounded_formats
from ...schemas.transforms import transform, walk, with_closed_objects
from ...system.dataclass import dataclass
from .compile_time import matcher_in_time

if TYPE_CHECKING:
    from llguidance import LLMatcher


COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""One line, as json.dumps writes it: a small model left free puts white space at odd places."""
FREE_WHITE_SPACE = {"whitespace_pattern": r" |\n( {0,32}|\t{0,8})"}
"""As json.dumps writes it with any usual indentation: one space, or a line break and spaces or tabs. Bounded, because a
small model may otherwise write white space without end."""

ENFORCED_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
"""Formats that llguidance knows."""

PATTERNS = ("pattern", "patternProperties")
SMALLEST_STEP = 1e-14
"""From a bound to what is taken for the next number, relative to it: llguidance rounds what is nearer."""
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
COUNTS = ("minProperties", "maxProperties")
VALUES = ("const", "enum", *BOUNDS)
LARGEST_INTEGER = 2**53
"""llguidance holds numbers as doubles, which have all integers up to here and only some beyond."""
LENGTHS = ("minLength", "maxLength", "minItems", "maxItems")
OLD_DRAFT = re.compile(r"draft-0[3467]")
YEAR = r"([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
LEAP_YEAR = r"([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
MONTH_AND_DAY = "((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
DAY = rf"^({YEAR}-{MONTH_AND_DAY}|{LEAP_YEAR}-02-29)"
BEFORE_SECOND_60 = "[^:]*:[0-9]{2}:[0-5]"
NARROWED = {"date": DAY, "time": "^" + BEFORE_SECOND_60, "date-time": DAY + BEFORE_SECOND_60}
"""Formats of which llguidance allows more than the check does: 29 February in any year, and second 60 at any time of
the day, which is left to where RFC 3339 has it."""
COMPILE_SECONDS = 3.0
"""All the ways of compiling that are tried may compute this long together."""
MOST_PLACES = 3
MOST_TRIED = 300


@dataclass(frozen=True)
class EnforcedSchema:
    """A schema's grammar. ``warnings`` name what it does not enforce; ``exact`` when that is nothing."""

    grammar: str
    warnings: tuple[str, ...] = ()
    exact: bool = True


@dataclass(frozen=True)
class Freedom:
    """What is left to the model. ``additional_properties``: keys that the schema allows and does not name.
    ``white_space``: line breaks and indentation."""

    additional_properties: bool = False
    white_space: bool = False


NO_FREEDOM = Freedom()


def enforce(schema: JsonSchema, tokenizer: ConstraintTokenizer, freedom: Freedom = NO_FREEDOM) -> EnforcedSchema:
    """The strictest grammar that can be had. Objects are closed and formats bounded where that can be compiled. Raises
    LeapSchemaError for a schema that no document satisfies, whose references lead nowhere, or that takes more than
    COMPILE_SECONDS."""
    compiler = _Compiler(tokenizer, freedom)
    try:
        prepared = _prepared(schema)
        narrowed = compiler.only_narrowed(prepared)
        if narrowed is not None:
            return narrowed
        with bounded_check(COMPILE_SECONDS):
            return _enforced(schema, prepared, compiler)
    except CheckTakesTooLong:
        raise LeapSchemaError(
            f"compiling the schema takes more than {COMPILE_SECONDS:g} s", hint="simplify it"
        ) from None
    except RecursionError:
        raise LeapSchemaError("the schema is nested too deeply") from None


@dataclass(frozen=True)
class _Prepared:
    """A schema as llguidance can read it; ``warnings`` and ``exact`` say what was left out for that."""

    document: JsonObject
    warnings: tuple[str, ...]
    exact: bool


class _Compiler:
    """Compiles schemas for one vocabulary."""

    def __init__(self, tokenizer: ConstraintTokenizer, freedom: Freedom) -> None:
        self._tokenizer = tokenizer
        self._freedom = freedom

    def compile(self, document: JsonObject, *, lenient: bool) -> tuple[LLMatcher, str]:
        """A matcher and its grammar. Raises GrammarError."""
        from llguidance import LLMatcher

        check_time()
        spaces = FREE_WHITE_SPACE if self._freedom.white_space else COMPACT
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(document), overrides={**spaces, "lenient": lenient})
        return matcher_in_time(self._tokenizer, grammar), grammar

    def only_narrowed(self, prepared: _Prepared) -> EnforcedSchema | None:
        """The narrowed schema, where it can be compiled strictly and says nothing that a narrower part could break."""
        if any(occurs(key, prepared.document) for key in ("oneOf", "not", "if")):
            return None
        try:
            with bounded_check(COMPILE_SECONDS):
                _, grammar = self.compile(self._narrowed(prepared.document), lenient=False)
        except (GrammarError, CheckTakesTooLong):
            return None
        return EnforcedSchema(grammar, prepared.warnings, prepared.exact)

    def narrowed(self, document: JsonObject, grammar: str, *, lenient: bool) -> str:
        """The grammar of the narrowed schema, else the one that the schema itself has."""
        try:
            with bounded_check(COMPILE_SECONDS):
                return self.compile(self._narrowed(document), lenient=lenient)[1]
        except (GrammarError, CheckTakesTooLong):
            return grammar

    def _narrowed(self, document: JsonObject) -> JsonObject:
        shorter = with_bounded_formats(document)
        return shorter if self._freedom.additional_properties else with_closed_objects(shorter)


def _prepared(schema: JsonSchema) -> _Prepared:
    document = _known_dialect(_without_siblings_of_references(schema.document))
    document = transform(transform(document, _with_exact_format), _with_nearest_bounds)
    document, warnings, exact = _known_formats(document)
    large = [key for key in VALUES if any(_is_large(part.get(key)) for _, part in walk(document))]
    if large:
        document, exact = transform(document, _without_large_numbers), False
        warnings += [_warning(key, schema.document) for key in large]
    warnings += [
        f"{key} belongs to another draft of JSON Schema and means nothing here" for key in schema.foreign_keywords
    ]
    return _Prepared(document, tuple(warnings), exact)


def _enforced(schema: JsonSchema, prepared: _Prepared, compiler: _Compiler) -> EnforcedSchema:
    document, warnings = prepared.document, list(prepared.warnings)
    try:
        _, grammar = compiler.compile(document, lenient=False)
        return EnforcedSchema(compiler.narrowed(document, grammar, lenient=False), prepared.warnings, prepared.exact)
    except GrammarError as error:
        _refuse_unusable(str(error), schema.document, compiler)
        reason = str(error)
    for left_out in RELAXATIONS:
        plainer = relaxed(document, left_out)
        try:
            matcher, grammar = compiler.compile(plainer, lenient=True)
        except GrammarError as error:
            _refuse_unusable(str(error), schema.document, compiler)
            reason = str(error)
            continue
        ignored = _keywords(matcher.get_grammar_warnings())
        if "minProperties" in ignored and occurs("minProperties", plainer):
            continue  # llguidance enforces it wrongly where it warns of it
        unsupported = [*ignored, *(key for key in left_out if occurs(key, document))]
        named = [key for key in dict.fromkeys(unsupported) if key not in COUNTS or occurs(key, document)]
        warnings += [_warning(keyword, schema.document) for keyword in named]
        warnings += [
            f"{target} is not enforced while generating, but checked afterwards" for target in _remote(document)
        ]
        return EnforcedSchema(compiler.narrowed(plainer, grammar, lenient=True), tuple(warnings), exact=False)
    _, grammar = compiler.compile(_outline(schema.document), lenient=True)
    warnings.append(f"only the kind of document is enforced while generating, the rest checked afterwards: {reason}")
    return EnforcedSchema(grammar, tuple(warnings), exact=False)


def _without(*keys: str) -> Callable[[JsonObject], JsonObject]:
    return lambda schema: {key: value for key, value in schema.items() if key not in keys}


RELAXATIONS: tuple[tuple[str, ...], ...] = (
    (),
    COUNTS,
    PATTERNS,
    BOUNDS,
    (*COUNTS, *PATTERNS),
    (*PATTERNS, *BOUNDS),
    (*COUNTS, *PATTERNS, *BOUNDS),
    (*COUNTS, *PATTERNS, *BOUNDS, *LENGTHS),
)
"""Keywords that are left out, in the order of trying, where llguidance refuses their values."""


def relaxed(document: JsonObject, left_out: tuple[str, ...]) -> JsonObject:
    """The schema without these keywords, and without references to JSON Schema's own meta-schemas, which llguidance
    does not have."""

    def change(schema: JsonObject) -> JsonObject:
        plain = _without(*left_out, *(("$ref",) if _is_remote(schema) else ()))(schema)
        if "patternProperties" in left_out and "patternProperties" in schema:
            plain.pop("additionalProperties", None)  # which names are additional depends on the patterns
        return plain

    plainer: JsonObject = transform(document, change)
    return plainer


def _is_large(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_large, value))
    return isinstance(value, int) and abs(value) > LARGEST_INTEGER


def _without_large_numbers(schema: JsonObject) -> JsonObject:
    """Integers that a double would change are left to the check."""
    plainer = {key: value for key, value in schema.items() if key not in VALUES or not _is_large(value)}
    listed = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]
    if _is_large(listed) and "type" not in schema and all(isinstance(value, int) for value in listed):
        plainer["type"] = "integer"
    return plainer


def _is_remote(schema: JsonObject) -> bool:
    return not str(schema.get("$ref", "#")).startswith("#")


def _remote(document: JsonObject) -> list[str]:
    """The meta-schemas that are referred to."""
    return list(dict.fromkeys(schema["$ref"] for _, schema in walk(document) if _is_remote(schema)))


def _known_dialect(document: JsonObject) -> JsonObject:
    """A ``$schema`` that is no draft of JSON Schema is read as the newest; llguidance would look for it."""
    dialect = document.get("$schema")
    return document if dialect is None or "json-schema.org" in str(dialect) else _without("$schema")(document)


def _without_siblings_of_references(document: JsonObject) -> JsonObject:
    """Up to draft 7, whatever is beside a reference means nothing."""
    if not OLD_DRAFT.search(str(document.get("$schema", ""))):
        return document
    kept = ("$ref", "$schema", "$id", "id", "definitions", "$defs")
    alone: JsonObject = transform(
        document, lambda schema: {k: v for k, v in schema.items() if k in kept} if "$ref" in schema else schema
    )
    return alone


def _with_exact_format(schema: JsonObject) -> JsonObject:
    if schema.get("format") not in NARROWED or "pattern" in schema or "enum" in schema:
        return schema
    return {**schema, "pattern": NARROWED[schema["format"]]}


def _with_nearest_bounds(schema: JsonObject) -> JsonObject:
    """Exclusive bounds of numbers as the nearest number that is allowed: llguidance excludes 1 and lets 1.0 through."""
    nearest = dict(schema)
    for exclusive, inclusive, way in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        bound, other = schema.get(exclusive), schema.get(inclusive)
        if isinstance(bound, (int, float)) and not isinstance(bound, bool) and abs(bound) < LARGEST_INTEGER:
            near = bound + way * SMALLEST_STEP * max(1.0, abs(bound))
            nearest[inclusive] = near if other is None or (other - bound) * way <= 0 else other
            del nearest[exclusive]
    is_empty = nearest.get("minimum", float("-inf")) > nearest.get("maximum", float("inf"))
    return schema if is_empty or schema.get("type") == "integer" else nearest


def _known_formats(document: JsonObject) -> tuple[JsonObject, list[str], bool]:
    """Formats that llguidance does not know are left out; those without any check are announced as such."""
    formats = {
        schema["format"]
        for _, schema in walk(document)
        if isinstance(schema.get("format"), str) and "enum" not in schema
    } - ENFORCED_FORMATS
    if not formats:
        return document, [], True
    checked = sorted(name for name in formats if name in CHECKS)
    unknown = sorted(formats - set(checked))
    warnings = [f"format {name!r} is not enforced while generating, but checked afterwards" for name in checked]
    warnings += [f"format {name!r} is unknown and means nothing" for name in unknown]
    plainer = transform(
        document, lambda schema: _without("format")(bounded(schema)) if schema.get("format") in formats else schema
    )
    return plainer, warnings, not checked


def _refuse_unusable(reason: str, document: JsonObject, compiler: _Compiler) -> None:
    """Some schemas cannot be used at all, however much is left out."""
    if not _says_unsatisfiable(reason):
        return
    detail = reason.partition("Unsatisfiable schema:")[2].strip(" ;.") or reason
    where = _innermost_unsatisfiable(document, compiler)
    place = f" because of {where}" if where else ""
    raise LeapSchemaError(f"no document can satisfy the schema{place}: {detail}", pointer=where)


def _says_unsatisfiable(reason: str) -> bool:
    return "Unsatisfiable" in reason and "Properties" not in reason  # llguidance miscounts optional properties


def _innermost_unsatisfiable(document: JsonObject, compiler: _Compiler) -> str:
    """The pointer of the innermost schema that alone allows nothing; "" where it takes the whole document."""
    shared: JsonObject = {key: document[key] for key in ("$schema", "$defs", "definitions") if key in document}
    places = [(path, schema) for path, schema in walk(document) if path]
    for path, schema in sorted(places[:MOST_TRIED], key=lambda place: len(place[0]), reverse=True):
        try:
            compiler.compile({**shared, **schema}, lenient=True)
        except (GrammarError, ValueError) as error:
            if _says_unsatisfiable(str(error)):
                return pointer(path)
    return ""


def _keywords(messages: list[str]) -> list[str]:
    """The keywords that llguidance's warnings are about."""
    keywords: list[str] = []
    for message in messages:
        listed = re.search(r"Unimplemented keys: (\[.*\])", message)
        if listed:
            keywords += json.loads(listed[1])
        elif "oneOf" in message:
            keywords.append("oneOf")
        elif "min/maxProperties" in message:
            keywords += COUNTS
        elif "format" in message:
            keywords.append("format")
        else:
            keywords.append(message)
    return keywords


def occurs(keyword: str, document: JsonObject) -> bool:
    return any(keyword in schema for _, schema in walk(document))


def _warning(keyword: str, document: JsonObject) -> str:
    places = [pointer((*path, keyword)) for path, schema in walk(document) if keyword in schema]
    listed = ", ".join(places[:MOST_PLACES]) + (" …" if len(places) > MOST_PLACES else "")
    return f"{keyword} is not enforced while generating, but checked afterwards" + (f" ({listed})" if listed else "")


def _outline(document: JsonObject) -> JsonObject:
    """The type at the root, and nothing more."""
    kind: Any = document.get("type")
    if kind is None and ("properties" in document or "required" in document):
        kind = "object"
    return {} if kind is None else {"type": kind}

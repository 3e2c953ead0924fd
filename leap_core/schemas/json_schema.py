"""A JSON schema as a document: read, bounded, checked against its draft, and used to check finished texts.

References are resolved within the document only; nothing is fetched.

jsonschema takes 0.3 s of computing to hold a schema of 66 kB against the meta-schema of draft 2020-12, most of it to
resolve the meta-schema's own references; this takes 3 ms. About what is not plain here jsonschema decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..errors import LeapSchemaError
from .expressions import CheckTakesTooLong, bounded_check, compiled
from .json_values import JsonObject, is_number
from .keywords import with_own_keywords
from .transforms import ALONE, IN_LISTS, IN_MAPS, transform, walk

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MOST_CHARACTERS = 2_000_000
"""The schema's JSON text has at most these."""
MOST_SCHEMAS = 5000
"""Schemas within the schema, itself included. Checking one against its draft takes about a millisecond."""
MOST_VALUES = 50_000
"""Values in the schema, at all levels: keywords, names, numbers, texts."""
DEEPEST = 120
"""Levels of nested objects and lists. Two make a level of a document: a keyword and its schema."""

ENDLESS = "the schema refers to itself without end"
"""A problem of the schema, and of no value."""


def check_limits(document: Any) -> None:
    """Raises LeapSchemaError for a schema beyond the limits. Reads level by level, so that no depth overflows a
    stack."""
    level, depth, values, characters = [document], 0, 0, 0
    while level:
        depth += 1
        values += len(level)
        if depth > DEEPEST:
            raise LeapSchemaError(f"the schema is nested too deeply: more than {DEEPEST} levels")
        deeper: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                characters += sum(len(key) for key in value if isinstance(key, str))
                deeper += value.values()
            elif isinstance(value, (list, tuple)):
                deeper += value
            elif isinstance(value, str):
                characters += len(value)
        if values + len(deeper) > MOST_VALUES:
            raise LeapSchemaError(f"the schema is too large: more than {MOST_VALUES} values")
        if characters > MOST_CHARACTERS:
            raise LeapSchemaError(f"the schema is too large: more than {MOST_CHARACTERS} characters")
        level = deeper
    if sum(1 for _ in walk(document)) > MOST_SCHEMAS:
        raise LeapSchemaError(f"the schema is too large: more than {MOST_SCHEMAS} schemas in it")


def check_length(text: str) -> None:
    """Raises LeapSchemaError for a text that is too long to be read at all."""
    if len(text) > MOST_CHARACTERS:
        raise LeapSchemaError(f"the schema is too large: more than {MOST_CHARACTERS} characters")


TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))


def is_plain(schema: Any) -> bool:
    """Whether the meta-schema of draft 2020-12 certainly accepts a schema whose expressions were compiled. Raises
    RecursionError for one that is nested too deeply."""
    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    for key, value in schema.items():
        check = CHECKS.get(key)
        if check is None or not check(value):
            return False
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_type(value: Any) -> bool:
    return isinstance(value, str) and value in TYPES


def _are_types(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(map(_is_type, names)) and len(set(names)) == len(names)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value)) and len(set(value)) == len(value)


def _is_local(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("#")


def _are_schemas(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_plain, value))


def _are_named_schemas(value: Any) -> bool:
    return isinstance(value, dict) and all(map(is_plain, value.values()))


NOT_HERE = ("additionalItems", "dependencies", "extends", "definitions")
"""Keywords of other drafts."""
CHECKS: dict[str, Callable[[Any], bool]] = {
    **{key: is_plain for key in ALONE if key not in NOT_HERE},
    **{key: _are_named_schemas for key in IN_MAPS if key not in NOT_HERE},
    **{key: _are_schemas for key in IN_LISTS if key not in ALONE},
    **dict.fromkeys(("$comment", "title", "description", "format", "pattern"), _is_text),
    **dict.fromkeys(("deprecated", "readOnly", "writeOnly", "uniqueItems"), _is_switch),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("enum", "examples"), _is_list),
    **dict.fromkeys(("const", "default"), lambda value: True),
    "type": _are_types,
    "required": _are_names,
    "multipleOf": lambda value: is_number(value) and value > 0,
    "$ref": _is_local,
}
"""By keyword."""


Path = tuple[str | int, ...]
MOST_PROBLEMS = 20
META = re.compile(r"https?://json-schema\.org/")


@dataclass(frozen=True)
class JsonSchema:
    """A schema that its draft's meta-schema accepts. ``document`` is an object; true is the empty one."""

    document: JsonObject
    validator: Validator

    @property
    def foreign_keywords(self) -> list[str]:
        """Keywords of other drafts, which mean nothing in this one."""
        import jsonschema

        drafts = (jsonschema.Draft3Validator, jsonschema.Draft7Validator, jsonschema.Draft202012Validator)
        known = {keyword for draft in (*drafts, jsonschema.Draft201909Validator) for keyword in draft.VALIDATORS}
        foreign = known - set(self.validator.VALIDATORS) - {"dependencies"}
        return sorted({key for _, schema in walk(self.document) for key in schema if key in foreign})

    def problems(self, text: str) -> list[str]:
        """What is wrong with a text as an answer; empty when it is right."""
        try:
            value = parse_json(text)
        except ValueError as error:
            return [f"not JSON: {error}"]
        return self.problems_of(value)

    def problems_of(self, value: Any) -> list[str]:
        """What is wrong with a JSON value, each with its JSON pointer."""
        problems = []
        try:
            with bounded_check():
                for error in self.validator.iter_errors(value):
                    problems.append(f"{pointer(error.absolute_path) or 'the document'}: {_shortened(error.message)}")
                    if len(problems) >= MOST_PROBLEMS:
                        break
        except RecursionError:
            problems.append(ENDLESS)
        except CheckTakesTooLong as error:
            problems.append(f"not checked: {error}")
        return problems


@lru_cache(maxsize=64)
def read_schema(text: str) -> JsonSchema:
    """Read a schema. Those lately read are kept, because checking a large one takes longer than compiling it.

    Raises LeapSchemaError, with the JSON pointer of what its draft does not allow.
    """
    check_length(text)
    try:
        document = parse_json(text)
    except ValueError as error:
        raise LeapSchemaError(f"the schema is not JSON: {error}") from None
    return check_schema(document)


def check_schema(document: Any) -> JsonSchema:
    """Check a schema that has been parsed. Raises LeapSchemaError."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    from .keywords import format_checker, regex_checker

    if document is False:
        raise LeapSchemaError("the schema false allows no document at all")
    if document is True:
        document = {}
    if not isinstance(document, dict):
        raise LeapSchemaError("a schema is a JSON object", hint='such as {"type": "object", "properties": {…}}')
    check_limits(document)
    _check_text(document)
    draft = validator_for(document, default=Draft202012Validator)

    def check(schema: Any, place: str = "") -> None:
        try:
            if draft is Draft202012Validator and is_plain(schema):
                return
            draft.check_schema(schema, format_checker=regex_checker())  # type: ignore[call-arg]
        except SchemaError as error:
            where = place + pointer(error.absolute_path)
            raise LeapSchemaError(
                f"the schema is invalid at {where or 'its root'}: {_shortened(error.message)}", pointer=where
            ) from None
        except RecursionError:
            raise LeapSchemaError("the schema is nested too deeply") from None

    _check_patterns(document)
    check(document)
    _check_references(document, check)
    checked = transform(document, _without_dialect)
    if "dependencies" not in draft.VALIDATORS:
        checked = transform(checked, _with_dependencies_in_two)
    validator = with_own_keywords(draft)(checked, registry=REGISTRY, format_checker=format_checker())
    return JsonSchema(document, validator)


def _check_text(document: JsonObject) -> None:
    """What no text can be is found here, before a library stumbles over it."""
    try:
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise LeapSchemaError("the schema has half of a surrogate pair, which is no character") from None
    except RecursionError:
        raise LeapSchemaError("the schema is nested too deeply") from None
    dialect = document.get("$schema", "")
    try:
        if not isinstance(dialect, str):
            raise ValueError("not a string")
        urlsplit(dialect)
    except ValueError as error:
        raise LeapSchemaError(f"the schema is invalid at /$schema: {error}", pointer="/$schema") from None


def _check_references(document: JsonObject, check: Callable[[Any, str], None]) -> None:
    """Every reference leads to a schema in the document, or to a meta-schema of JSON Schema's own. ``check`` looks at
    a schema that only a reference leads to."""
    from jsonschema_specifications import REGISTRY
    from referencing import Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012, specification_with

    draft: Any = specification_with(str(document.get("$schema", "")), default=DRAFT202012)
    root: Any = Resource.from_contents(document, default_specification=draft)
    seen: set[int] = set()
    starts: list[tuple[Path, JsonObject, Any]] = [((), document, REGISTRY.resolver_with_root(root))]
    while starts:
        for where, target, resolver in _references(*starts.pop(), draft, seen):
            try:
                resolved = resolver.lookup(target)
            except (Unresolvable, ValueError):
                hint = "references are resolved within the schema only; nothing is fetched"
                raise LeapSchemaError(
                    f"the reference at {where} leads nowhere: {target}", pointer=where, hint=hint
                ) from None
            if not isinstance(resolved.contents, (dict, bool)):
                raise LeapSchemaError(f"the reference at {where} leads to no schema: {target}", pointer=where)
            if isinstance(resolved.contents, dict) and id(resolved.contents) not in seen and not META.match(target):
                place = target.removeprefix("#") if target.startswith("#/") else where
                check(resolved.contents, place)
                starts.append((tuple(place.split("/")[1:]), resolved.contents, resolved.resolver))


def _references(
    beginning: Path, start: JsonObject, resolver: Any, draft: Any, seen: set[int]
) -> list[tuple[str, str, Any]]:
    """The references in a schema at ``beginning``: where each is, what it says, and what resolves it.
    Notes in ``seen`` the schemas within."""
    from referencing import Resource

    references = []
    resolvers: dict[Path, Any] = {(): resolver}
    for path, schema in walk(start):
        seen.add(id(schema))
        above = next(path[:n] for n in range(len(path), -1, -1) if path[:n] in resolvers)
        if path and ("$id" in schema or "id" in schema):
            inner: Any = Resource.from_contents(schema, default_specification=draft)
            resolvers[path] = resolvers[above].in_subresource(inner)
            above = path
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(schema.get(keyword), str):
                references.append((pointer((*beginning, *path, keyword)), schema[keyword], resolvers[above]))
    return references


def _check_patterns(document: JsonObject) -> None:
    """Every expression is one that texts can be matched against in bounded time."""
    for path, schema in walk(document):
        patterns = [("pattern", schema.get("pattern"))]
        if isinstance(schema.get("patternProperties"), dict):
            patterns += [("patternProperties", name) for name in schema["patternProperties"]]
        for key, pattern in patterns:
            try:
                if isinstance(pattern, str):
                    compiled(pattern)
            except ValueError as error:
                where = pointer((*path, key))
                raise LeapSchemaError(
                    f"the regular expression {_shortened(repr(pattern))} at {where} cannot be used: {error}",
                    pointer=where,
                ) from None


def _with_dependencies_in_two(schema: JsonObject) -> JsonObject:
    """``dependencies``, which drafts from 2019-09 on call otherwise, and which is meant where it is written."""
    if not isinstance(schema.get("dependencies"), dict):
        return schema
    schema = dict(schema)
    dependencies = schema.pop("dependencies")
    names = {key: value for key, value in dependencies.items() if _are_names(value)}
    schemas = {key: value for key, value in dependencies.items() if isinstance(value, (dict, bool))}
    more = {"allOf": [*schema.get("allOf", ()), {"dependentRequired": names, "dependentSchemas": schemas}]}
    return {**schema, **more}


def _without_dialect(schema: JsonObject) -> JsonObject:
    """jsonschema checks a part that names its dialect by its own keywords, and not by ours."""
    return {key: value for key, value in schema.items() if key != "$schema"}


def parse_json(text: str) -> Any:
    """Strict JSON: NaN, Infinity, numbers too large and values nested too deeply are refused. Raises ValueError."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def pointer(path: Iterator[str | int] | Any) -> str:
    """RFC 6901: ``/a/0``; "" is the whole document."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {_shortened(digits)} is too large")
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _shortened(message: str) -> str:
    return message if len(message) <= 300 else message[:299] + "…"


def alternatives_of(schema: Mapping[str, Any]) -> list[Any]:
    """The schemas of ``anyOf`` and ``oneOf``; none where what is there is no list."""
    return [part for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list) for part in schema[key]]


def resolved_schema(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema that a reference into the document leads to; of several, the first that is more than null."""
    for _ in range(8):
        options = [part for part in alternatives_of(schema) if part != {"type": "null"}]
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            target: Any = root
            for part in reference[2:].split("/"):
                target = target.get(part, {}) if isinstance(target, Mapping) else {}
            schema = target if isinstance(target, Mapping) else {}
        elif len(options) == 1 and isinstance(options[0], Mapping):
            schema = options[0]
        else:
            break
    return schema


def without_absent(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    """A value without the optional fields that are null."""
    schema = resolved_schema(schema, root) if isinstance(schema, dict) else {}
    if isinstance(value, list):
        return [without_absent(each, schema.get("items"), root) for each in value]
    fields, required = schema.get("properties"), schema.get("required") or ()
    if not isinstance(value, dict) or not isinstance(fields, dict):
        return value
    absent = {name for name, each in value.items() if each is None and name in fields and name not in required}
    return {name: without_absent(value[name], fields.get(name), root) for name in value if name not in absent}

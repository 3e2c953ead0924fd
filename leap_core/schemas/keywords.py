"""Keywords and formats of JSON Schema that leap checks itself.

Sources: RFC 3339 (dates and times), RFC 5321 (mail), RFC 1123 (host names), RFC 5891 (internationalized ones), RFC 3986
and 3987 (URIs and IRIs), RFC 6570 (URI templates), RFC 6901 (JSON pointers), ISO 8601 as in RFC 3339's appendix A
(durations).

Sources: RFC 5321, 4.5.3.1 (a local part of 64 octets, a path of 256 with its brackets), RFC 1035 (host names of 253
characters), RFC 3339 (times, here with up to nine digits of a second), RFC 3339's appendix A (durations). RFC 3986 sets
no bound for URIs: 2,048 characters are what common programs take.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Callable, Hashable, Iterator
from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from .expressions import check_time, compiled, matches
from .json_values import JsonObject
from .transforms import transform

if TYPE_CHECKING:
    from jsonschema import FormatChecker
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(\.\d+)?(z|([+-])([01]\d|2[0-3]):([0-5]\d))", re.I | re.A)
DATE = re.compile(r"\d{4}-\d\d-\d\d", re.A)
DURATION = re.compile(r"P(?!$)(\d+W|(\d+Y)?(\d+M)?(\d+W)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?)", re.A)
LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")
LOCAL_PART = re.compile(r"""[\w!#$%&'*+/=?^`{|}~-]+(\.[\w!#$%&'*+/=?^`{|}~-]+)*|"([^"\\]|\\.)*\"""", re.A)
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
JSON_POINTER = re.compile(r"(/([^~/]|~[01])*)*")
RELATIVE_POINTER = re.compile(r"(0|[1-9][0-9]*)(#|(/([^~/]|~[01])*)*)")
URI_CHARACTERS = re.compile(r"([A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")
IRI_CHARACTERS = re.compile(r"([^\x00-\x20\x7f-\xa0<>\"{}|\\^`%]|%[0-9A-Fa-f]{2})*")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
TEMPLATE = re.compile(
    r"([^\x00-\x20\"'%<>\\^`{|}]|%[0-9A-Fa-f]{2}|\{[+#./;?&=,!@|]?[\w.%]+(:\d+|\*)?(,[\w.%]+(:\d+|\*)?)*\})*"
)


@cache
def format_checker() -> FormatChecker:
    """Knows every format that is checked; other formats pass."""
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=())
    checker.checkers = {name: (_of_strings(check), (ValueError,)) for name, check in CHECKS.items()}
    return checker


@cache
def regex_checker() -> FormatChecker:
    """Knows regular expressions alone: what a meta-schema is checked with."""
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=())
    checker.checkers = {"regex": (_of_strings(_is_regex), (ValueError,))}
    return checker


def _of_strings(check: Callable[[str], bool]) -> Callable[[object], bool]:
    return lambda value: check(value) if isinstance(value, str) else True


def _is_date(text: str) -> bool:
    return DATE.fullmatch(text) is not None and bool(datetime.date.fromisoformat(text))


def _is_time(text: str) -> bool:
    match = TIME.fullmatch(text)
    if match is None:
        return False
    if match[3] != "60":
        return True
    minutes = int(match[1]) * 60 + int(match[2])  # a leap second comes at midnight UTC
    if match[6]:
        offset = int(match[7]) * 60 + int(match[8])
        minutes += offset if match[6] == "-" else -offset
    return minutes % 1440 == 23 * 60 + 59


def _is_date_time(text: str) -> bool:
    return len(text) > 10 and text[10] in "Tt" and _is_date(text[:10]) and _is_time(text[11:])


def _is_hostname(text: str) -> bool:
    return len(text) <= 253 and all(LABEL.fullmatch(label) for label in text.removesuffix(".").split("."))


def _is_idn_hostname(text: str) -> bool:
    import idna  # which httpx brings: Python's own codec knows IDNA 2003 alone

    return _is_hostname(idna.encode(text.lower()).decode("ascii"))


def _is_email(text: str, hostname: Callable[[str], bool] = _is_hostname, local: re.Pattern[str] = LOCAL_PART) -> bool:
    name, at, domain = text.rpartition("@")
    if not at or not local.fullmatch(name):
        return False
    if domain.startswith("[") and domain.endswith("]"):
        literal = domain[1:-1]
        version6 = literal.lower().startswith("ipv6:")
        return bool(ipaddress.IPv6Address(literal[5:]) if version6 else ipaddress.IPv4Address(literal))
    return hostname(domain)


def _is_ipv4(text: str) -> bool:
    return text.isascii() and ipaddress.IPv4Address(text) is not None


def _is_ipv6(text: str) -> bool:
    return "%" not in text and ipaddress.IPv6Address(text) is not None


def _is_uri(text: str, characters: re.Pattern[str] = URI_CHARACTERS, *, relative: bool = False) -> bool:
    if not characters.fullmatch(text):
        return False
    scheme = SCHEME.match(text)
    if scheme is None and not relative:
        return False
    rest = text[scheme.end() :] if scheme else text
    if scheme is None and ":" in re.split("[/?#]", rest, maxsplit=1)[0]:
        return False
    head, _, fragment = rest.partition("#")
    if "#" in fragment:
        return False
    if not head.startswith("//"):
        return "[" not in rest and "]" not in rest
    authority = re.split("[/?]", head[2:], maxsplit=1)[0]
    return _is_authority(authority) and not set("[]") & set(head[2 + len(authority) :] + fragment)


def _is_authority(text: str) -> bool:
    host = text.rpartition("@")[2]
    if host.startswith("["):
        inner, closed, port = host[1:].partition("]")
        literal = inner.lower().startswith("v") or bool(ipaddress.IPv6Address(inner))
        return bool(closed) and literal and re.fullmatch(r"(:[0-9]*)?", port) is not None
    _, colon, port = host.partition(":")
    return not set("[]") & set(text) and (not colon or re.fullmatch("[0-9]*", port) is not None)


def _is_regex(text: str) -> bool:
    return compiled(text) is not None


CHECKS: dict[str, Callable[[str], bool]] = {
    "date": _is_date,
    "time": _is_time,
    "date-time": _is_date_time,
    "duration": lambda text: DURATION.fullmatch(text) is not None,
    "email": _is_email,
    "idn-email": partial(_is_email, hostname=_is_idn_hostname, local=re.compile(r"[^\s@]+")),
    "hostname": _is_hostname,
    "idn-hostname": _is_idn_hostname,
    "ipv4": _is_ipv4,
    "ip-address": _is_ipv4,
    "ipv6": _is_ipv6,
    "uuid": lambda text: UUID.fullmatch(text) is not None,
    "uri": _is_uri,
    "uri-reference": partial(_is_uri, relative=True),
    "iri": partial(_is_uri, characters=IRI_CHARACTERS),
    "iri-reference": partial(_is_uri, characters=IRI_CHARACTERS, relative=True),
    "uri-template": lambda text: TEMPLATE.fullmatch(text) is not None,
    "json-pointer": lambda text: JSON_POINTER.fullmatch(text) is not None,
    "relative-json-pointer": lambda text: RELATIVE_POINTER.fullmatch(text) is not None,
    "regex": _is_regex,
}
"""Every check says whether a string has the format; ValueError means no."""


def evaluated_properties(validator: Any, value: dict[str, Any], schema: Any) -> set[str]:
    """The names of the properties of ``value`` that ``schema`` evaluates."""
    check_time()
    if not isinstance(schema, dict):
        return set()
    names = {name for name in schema.get("properties", {}) if name in value}
    names |= {name for name in value for pattern in schema.get("patternProperties", {}) if matches(pattern, name)}
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in schema:
            names |= _evaluated_by_rest(validator, value, schema, keyword, names)
    for inner, resolved in _schemas_in_place(validator, value, schema):
        names |= evaluated_properties(inner, value, resolved)
    return names


def _evaluated_by_rest(
    validator: Any, value: dict[str, Any], schema: dict[str, Any], keyword: str, names: set[str]
) -> set[str]:
    """Those that the keyword for all others accepts. What fails there is an error anyway."""
    return {name for name in value if name not in names and accepts(validator, value[name], schema[keyword])}


def _schemas_in_place(validator: Any, value: Any, schema: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The schemas that apply to the same object and accept it, each with the validator that resolves its references."""
    for keyword in ("$ref", "$dynamicRef"):
        if isinstance(schema.get(keyword), str):
            resolved = validator._resolver.lookup(schema[keyword])
            yield validator.evolve(schema=resolved.contents, _resolver=resolved.resolver), resolved.contents
    if "$recursiveRef" in schema:
        from referencing.jsonschema import lookup_recursive_ref

        resolved = lookup_recursive_ref(validator._resolver)
        yield validator.evolve(schema=resolved.contents, _resolver=resolved.resolver), resolved.contents
    for name, inner in schema.get("dependentSchemas", {}).items():
        if name in value:
            yield validator, inner
    for keyword in ("allOf", "oneOf", "anyOf"):
        for inner in schema.get(keyword, ()):
            if accepts(validator, value, inner):
                yield validator, inner
    if "if" in schema:
        if accepts(validator, value, schema["if"]):
            yield validator, schema["if"]
            if "then" in schema:
                yield validator, schema["then"]
        elif "else" in schema:
            yield validator, schema["else"]


def accepts(validator: Any, value: Any, schema: Any) -> bool:
    """Whether a schema allows a value; looks no further than the first error."""
    return next(iter(validator.descend(value, schema)), None) is None


MOST_DIGITS = 1000
"""A number whose divisibility is checked has at most these."""

Keyword = Callable[[Any, Any, Any, Any], "Iterator[ValidationError] | None"]


@cache
def with_own_keywords(draft: type[Validator]) -> type[Validator]:
    """The draft with the keywords that are checked here, and a look at the clock in every keyword, because references
    and alternatives within each other may be followed exponentially often."""
    from jsonschema import validators

    own: dict[str, Any] = {"pattern": _pattern, "patternProperties": _pattern_properties}
    own |= {"additionalProperties": _additional_properties, "uniqueItems": _unique_items}
    own |= {name: check for name, check in (("anyOf", _any_of), ("oneOf", _one_of)) if name in draft.VALIDATORS}
    own["divisibleBy" if "divisibleBy" in draft.VALIDATORS else "multipleOf"] = _multiple_of
    if "unevaluatedProperties" in draft.VALIDATORS:
        own["unevaluatedProperties"] = _unevaluated_properties
    every: dict[str, Any] = {name: _timed(own.get(name, check)) for name, check in draft.VALIDATORS.items()}
    return validators.extend(draft, every)  # type: ignore[no-any-return,no-untyped-call]


def _timed(check: Any) -> Keyword:
    def timed(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:
        check_time()
        errors: Iterator[ValidationError] | None = check(validator, value, instance, schema)
        return errors

    return timed


def _pattern(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if validator.is_type(value, "string") and not matches(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _unique_items(validator: Any, wanted: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """jsonschema compares each element with each other where they are objects; 3,000 took 12 s."""
    from jsonschema.exceptions import ValidationError

    if wanted and validator.is_type(value, "array") and len(set(map(_identity, value))) < len(value):
        yield ValidationError(f"{value!r} has non-unique elements")


def _identity(value: Any) -> Hashable:
    """What two JSON values have in common exactly where they are equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, dict):
        return frozenset((name, _identity(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(map(_identity, value))
    return (bool, value) if isinstance(value, bool) else value


def _pattern_properties(validator: Any, patterns: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(value, "object"):
        return
    for pattern, schema in patterns.items():
        for name, item in value.items():
            if matches(pattern, name):
                yield from validator.descend(item, schema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if not validator.is_type(value, "object"):
        return
    listed, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    others = [n for n in value if n not in listed and not any(matches(pattern, n) for pattern in patterns)]
    if validator.is_type(allowed, "object"):
        for name in others:
            yield from validator.descend(value[name], allowed, path=name)
    elif not allowed and others:
        names = ", ".join(map(repr, sorted(others)))
        verb = "was" if len(others) == 1 else "were"
        yield ValidationError(f"Additional properties are not allowed ({names} {verb} unexpected)")


def _unevaluated_properties(validator: Any, allowed: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if not validator.is_type(value, "object"):
        return
    evaluated = evaluated_properties(validator, value, schema)
    others = [name for name in value if name not in evaluated]
    wrong = [name for name in others if any(True for _ in validator.descend(value[name], allowed, path=name))]
    if wrong:
        names = ", ".join(map(repr, sorted(wrong)))
        verb = "was" if len(wrong) == 1 else "were"
        yield ValidationError(f"Unevaluated properties are not allowed ({names} {verb} unexpected)")


def _any_of(validator: Any, schemas: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """Without collecting the errors of every alternative, of which there may be exponentially many."""
    from jsonschema.exceptions import ValidationError

    if not any(accepts(validator, value, schema) for schema in schemas):
        yield ValidationError(f"{value!r} is not valid under any of the given schemas")


def _one_of(validator: Any, schemas: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    count = sum(accepts(validator, value, schema) for schema in schemas)
    if count == 0:
        yield ValidationError(f"{value!r} is not valid under any of the given schemas")
    elif count > 1:
        yield ValidationError(f"{value!r} is valid under {count} of the given schemas, and only one may fit")


def _multiple_of(validator: Any, factor: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """On decimal fractions: 1.13 is a multiple of 0.01."""
    from jsonschema.exceptions import ValidationError

    if not validator.is_type(value, "number"):
        return
    if isinstance(value, int) and abs(value).bit_length() > 4 * MOST_DIGITS:
        yield ValidationError(f"a number of more than {MOST_DIGITS} digits cannot be checked for its factors")
    elif Fraction(str(value)) % Fraction(str(factor)):
        yield ValidationError(f"{value!r} is not a multiple of {factor}")


URI = 2048
MOST_CHARACTERS = {
    "email": 254,
    "idn-email": 254,
    "hostname": 253,
    "idn-hostname": 253,
    "uri": URI,
    "uri-reference": URI,
    "iri": URI,
    "iri-reference": URI,
    "uri-template": URI,
    "date-time": len("2026-01-01T00:00:00.123456789+00:00"),
    "time": len("00:00:00.123456789+00:00"),
    "duration": 64,
    "json-pointer": URI,
    "relative-json-pointer": URI,
}
PARTS = {"email": r"^[^@]{1,64}@[^@.]{1,63}(\.[^@.]{1,63})*$", "uri": r"^[^:]{1,32}:"}
"""How long the parts are that may not continue for the whole length."""


def with_bounded_formats(document: JsonObject) -> JsonObject:
    """The schema in which strings of these formats have a greatest length, unless it gives one itself."""
    whole: JsonObject = transform(document, bounded)
    return whole


def bounded(schema: JsonObject) -> JsonObject:
    """One schema with the length of its format."""
    name = schema.get("format")
    most = MOST_CHARACTERS.get(name) if isinstance(name, str) else None
    if most is None or "enum" in schema or "const" in schema or "maxLength" in schema:
        return schema
    shorter = {**schema, "maxLength": max(most, schema.get("minLength", 0))}
    if name in PARTS and "pattern" not in schema and "minLength" not in schema:
        shorter["pattern"] = PARTS[name]
    return shorter

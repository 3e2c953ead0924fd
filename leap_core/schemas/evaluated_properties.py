"""Which properties of an object the keywords beside ``unevaluatedProperties`` have looked at (JSON Schema 2019-09 and
2020-12, sections on unevaluated locations). jsonschema's own search matches names without a time limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .bounded_matching import check_time, matches


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

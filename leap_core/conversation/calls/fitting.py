"""Values of a call as the schema declares them: 07 or "7" for an integer is 7, and +49 for a text is "+49"."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import LeapSchemaError
from ...schemas.json_schema import ENDLESS, alternatives_of, check_schema, parse_json, resolved_schema
from ..messages import LeapFunctionCall
from .declaration import LeapFunction
from .pythonic import UntypedText, WrittenInt, WrittenText

MOST_PROBLEMS = 3
"""Problems of one call in a warning."""
PREFIX = "functions."
"""What some models write before a name."""


def fitted(call: LeapFunctionCall, functions: Sequence[LeapFunction], *, repair: bool = True) -> LeapFunctionCall:
    """The call with its function's name and values of its types, where a spelling may mean several. ``repair``: a text
    that spells a value of the declared type, such as "5" for an integer or an object as JSON, is that value."""
    name = declared_name(call.name, [each.name for each in functions])
    schema = next((each.arguments_schema for each in functions if each.name == name), {})
    return LeapFunctionCall(name, _fitted(dict(call.arguments), schema, schema, repair), call.id)


def declared_name(name: str, declared: Iterable[str]) -> str:
    """The one declared name that differs from ``name`` in case and punctuation alone, such as ``read_file`` for
    ``ReadFile``; else ``name``."""
    names = set(declared)
    alike = [each for each in names if letters_of(each) == letters_of(name)]
    return alike[0] if name not in names and len(alike) == 1 and letters_of(name) else name


def letters_of(name: str) -> str:
    """What of a function's name counts where a model writes it in its own way."""
    return "".join(filter(str.isalnum, name.removeprefix(PREFIX))).casefold()


def fits(call: LeapFunctionCall, functions: Sequence[LeapFunction]) -> bool:
    """Whether the call's function is declared, and its schema accepts the arguments as they are, without a repair.
    Raises LeapSchemaError."""
    call = fitted(call, functions, repair=False)
    schemas = [each.arguments_schema for each in functions if each.name == call.name]
    return bool(schemas) and not check_schema(schemas[0]).problems_of(call.arguments)


def misfit(call: LeapFunctionCall, functions: Sequence[LeapFunction]) -> str | None:
    """What a fitted call's arguments have that its function's schema refuses; None where they fit, or where a function
    is not declared or its schema cannot be checked."""
    schema = next((each.arguments_schema for each in functions if each.name == call.name), None)
    try:
        problems = [] if schema is None else check_schema(schema).problems_of(dict(call.arguments))
    except LeapSchemaError:
        return None
    problems = [problem for problem in problems if problem != ENDLESS]
    shown = "; ".join(problems[:MOST_PROBLEMS])
    return f"the arguments of the call of {call.name} do not fit its declaration: {shown}" if problems else None


def _fitted(value: Any, schema: Any, root: Mapping[str, Any], repair: bool) -> Any:
    schema = resolved_schema(schema, root) if isinstance(schema, Mapping) else {}
    if isinstance(value, UntypedText):
        return _typed(value, schema, root, repair)
    if type(value) is str and repair:
        return _unquoted(value, schema, root)
    if isinstance(value, dict):
        named = _parts(schema, "properties", root)
        return {key: _fitted(each, named.get(key), root, repair) for key, each in value.items()}
    if isinstance(value, list):
        return [_fitted(each, _parts(schema, "items", root), root, repair) for each in value]
    return _of_type(value, _types(schema), repair)


def _of_type(value: Any, types: set[str], repair: bool) -> Any:
    """A number or a text, as whichever of both the schema declares."""
    is_text, is_number = types & {"string", "str"}, types & {"integer", "number", "int", "float"}
    if isinstance(value, WrittenText):
        return int(value) if is_number and not is_text else str(value)
    if isinstance(value, WrittenInt):
        return value.written if is_text and not is_number else int(value)
    if repair and type(value) is int and types in ({"string"}, {"str"}):
        return str(value)
    is_whole = isinstance(value, float) and "integer" in types and "number" not in types and value.is_integer()
    return int(value) if is_whole else value


def _unquoted(text: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """The value that a text spells where the schema declares its type and no text; else the text."""
    if _takes_text(schema, root):
        return text
    types = _types(schema)
    try:
        value = parse_json(LITERALS.get(text.strip(), text))
    except (ValueError, RecursionError):
        return text
    if isinstance(value, float) and value.is_integer() and not types & NAMES_OF[float]:
        value = int(value)
    return _fitted(value, schema, root, True) if types & NAMES_OF.get(type(value), {"null"}) else text


def _takes_text(schema: Any, root: Mapping[str, Any], depth: int = 8) -> bool:
    """Whether some text is a value of the schema, as far as types, values and alternatives say."""
    if not isinstance(schema, Mapping) or not depth:
        return True
    schema = resolved_schema(schema, root)
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(listed, list):
        return any(isinstance(each, str) for each in listed)
    kinds, choices = schema.get("type"), alternatives_of(schema)
    if kinds:
        return bool({"string", "str"}.intersection(kinds if isinstance(kinds, list) else [kinds]))
    return not choices or any(_takes_text(each, root, depth - 1) for each in choices)


def _parts(schema: Mapping[str, Any], key: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a schema, or one of its alternatives, says of the parts of a value."""
    for each in (schema, *alternatives_of(schema)):
        parts = resolved_schema(each, root).get(key) if isinstance(each, Mapping) else None
        if isinstance(parts, Mapping):
            return parts
    return {}


def _types(schema: Mapping[str, Any]) -> set[str]:
    kinds, listed = schema.get("type"), schema.get("enum")
    names = kinds if isinstance(kinds, list) else [kinds] if kinds else []
    choices = [each for each in alternatives_of(schema) if isinstance(each, Mapping)]
    found = {str(each) for each in names}.union(*map(_types, choices))
    return found or ({type(each).__name__ for each in listed} if isinstance(listed, list) else set())


def _typed(text: UntypedText, schema: Any, root: Mapping[str, Any], repair: bool) -> Any:
    """The text as a value of the schema; the text itself where the schema accepts it or it is no value."""
    try:
        value = json.loads(LITERALS.get(text.strip(), text), strict=False)
    except (ValueError, RecursionError):
        return str(text)
    if value is None and "null" in _types(schema):
        return None
    types = _types(schema)
    if types & {"string", "str"} and not (types & NAMES_OF.get(type(value), set())):
        return str(text)
    if not schema and not isinstance(value, (dict, list)):
        return str(text)
    return _fitted(value, schema, root, repair)


NAMES_OF: dict[type, set[str]] = {
    bool: {"boolean", "bool"},
    int: {"integer", "number", "int", "float"},
    float: {"number", "float"},
    dict: {"object", "dict"},
    list: {"array", "list"},
}
"""What types of JSON a value may have, as schemas and members of an enum name them."""


LITERALS = {"True": "true", "False": "false", "None": "null"}
"""Python's spellings, which models write."""

"""A Python function's description and parameters, read from its signature, annotations and docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, get_type_hints

from ..errors import LeapGeneratableSchematizationError
from ..schemas.python_types import optional_of, schema_of, without_annotations
from .function_parameters import LeapFunctionParameter, type_of_schema

GOOGLE_SECTION = re.compile(r"^(Args|Arguments|Parameters|Params):\s*$")
GOOGLE_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
SPHINX_ENTRY = re.compile(r"^:param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)$")
NUMPY_ENTRY = re.compile(r"^(\w+)\s*(?::.*)?$")
OTHER_SECTION = re.compile(r"^(Returns?|Yields?|Raises|Examples?|Notes?|See Also|Attributes):?\s*$")
SPHINX_FIELD = re.compile(r"^:\w+[^:]*:")


def read_signature(function: Callable[..., Any], title: str) -> tuple[str, list[LeapFunctionParameter]]:
    """The description and the parameters of the function that errors call ``title``; see ``declaration.declare``."""
    try:
        signature = inspect.signature(function)
        hints = get_type_hints(function, include_extras=True)
    except (ValueError, TypeError, NameError) as error:
        raise LeapGeneratableSchematizationError(f"{title}: the signature cannot be read: {error}") from None
    summary, described = read_docstring(inspect.getdoc(function) or "")
    parameters = []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise LeapGeneratableSchematizationError(
                f"{title}: the parameter {parameter.name!r} cannot be given by name",
                hint="a model gives every argument by name",
            )
        kind, description = without_annotations(hints.get(parameter.name, Any))
        inner = optional_of(kind)
        if inner is not None:
            kind, inner_said = without_annotations(inner)
            description = description or inner_said
        try:
            schema = schema_of(kind)
        except LeapGeneratableSchematizationError as error:
            raise LeapGeneratableSchematizationError(
                f"{title}: the parameter {parameter.name!r}: {error.message}", hint=error.hint
            ) from None
        parameters.append(
            LeapFunctionParameter(
                parameter.name,
                type_of_schema(schema),
                description or described.get(parameter.name, ""),
                optional=inner is not None or parameter.default is not parameter.empty,
            )
        )
    return summary, parameters


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description of a function, and those of its parameters."""
    lines = text.splitlines()
    summary: list[str] = []
    described: dict[str, str] = {}
    section, entry, depth = "summary", "", 0
    for number, line in enumerate(lines):
        plain = line.strip()
        indent = len(line) - len(line.lstrip())
        following = lines[number + 1].strip() if number + 1 < len(lines) else ""
        sphinx = SPHINX_ENTRY.match(plain)
        if sphinx:
            section, entry, depth = "sphinx", sphinx[1], indent
            described[entry] = sphinx[2]
        elif SPHINX_FIELD.match(plain) and section in ("summary", "sphinx"):
            section = "other"
        elif GOOGLE_SECTION.match(plain) or (plain in ("Parameters", "Arguments") and set(following) == {"-"}):
            section, entry, depth = "google" if plain.endswith(":") else "numpy", "", indent
        elif OTHER_SECTION.match(plain) and (plain.endswith(":") or set(following) == {"-"}):
            section = "other"
        elif set(plain) == {"-"}:
            continue
        elif section == "summary":
            summary.append(plain)
        elif (
            section == "google"
            and plain
            and (entry_match := GOOGLE_ENTRY.match(plain))
            and _opens(indent, depth, entry)
        ):
            entry, depth = entry_match[1], indent
            described[entry] = entry_match[2]
        elif section == "numpy" and plain and indent <= depth and (entry_match := NUMPY_ENTRY.match(plain)):
            entry = entry_match[1]
            described[entry] = ""
        elif entry and plain and section in ("google", "numpy", "sphinx"):
            described[entry] = f"{described[entry]} {plain}".strip()
    return " ".join(" ".join(summary).split()), described


def _opens(indent: int, depth: int, entry: str) -> bool:
    """Whether a line at this indentation begins an entry of Google's style: the first sets the depth of all."""
    return not entry or indent <= depth

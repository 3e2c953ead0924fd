"""Functions that a model may call, declared or read from a Python signature, and how the model gets them."""

from __future__ import annotations

import inspect
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol, get_type_hints, runtime_checkable

from ...errors import LeapGeneratableSchematizationError, LeapOptionsError, LeapSerializationError
from ...schemas.json_values import JsonObject
from ...schemas.python_types import optional_of, schema_of, without_annotations
from ...system.dataclass import dataclass
from . import parameter_types as types
from .parameter_types import LeapFunctionParameterType, SchemaType


@dataclass(frozen=True)
class LeapFunctionParameter:
    """One named parameter. An ``optional`` one may be left out of a call."""

    name: str
    type: LeapFunctionParameterType
    description: str = ""
    optional: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.type, LeapFunctionParameterType):
            raise LeapOptionsError(
                "type", f"{self.type!r} of the parameter {self.name!r} is no type; StringType() is one, for instance"
            )

    def to_json_object(self) -> JsonObject:
        """The JSON schema of the parameter's value: the description, then the type's own keys."""
        schema = self.type.to_json_object()
        text = self.description or schema.get("description")
        described: JsonObject = {} if text is None else {"description": text}
        return described | {key: value for key, value in schema.items() if key != "description"}


def type_of_schema(schema: JsonObject) -> LeapFunctionParameterType:
    """One of the plain types where it says all that the schema says, else the schema itself."""
    kind = schema.get("type")
    described = {key: schema[key] for key in ("description",) if isinstance(schema.get(key), str)}
    plain: LeapFunctionParameterType | None = None
    if kind == "array" and isinstance(schema.get("items"), dict):
        plain = types.ArrayType(type_of_schema(schema["items"]), **described)
    elif kind == "object" and isinstance(schema.get("properties"), dict):
        properties = schema["properties"]
        if all(isinstance(value, dict) for value in properties.values()) and isinstance(schema.get("required"), list):
            inner = {name: type_of_schema(value) for name, value in properties.items()}
            plain = types.ObjectType(inner, tuple(schema["required"]), **described)
    elif kind in ("string", "number", "integer"):
        values = tuple(schema["enum"]) if isinstance(schema.get("enum"), list) else None
        simple = {"string": types.StringType, "number": types.NumberType, "integer": types.IntegerType}[kind]
        plain = simple(values, **described)
    elif kind in ("boolean", "null"):
        plain = (types.BooleanType if kind == "boolean" else types.NullType)(**described)
    return plain if plain is not None and plain.to_json_object() == schema else SchemaType(schema)


NAME = re.compile(r"\w[\w-]*(\.\w[\w-]*)*")
"""Names that models can write in a call: words with digits, underscores and hyphens, joined by dots."""


class Program(Protocol):
    """How a call becomes a process, and the process's output a result."""

    @property
    def argv(self) -> Sequence[str]: ...

    @property
    def environment(self) -> Mapping[str, str] | None:
        """Variables of the process; None for those of this one."""
        ...

    def request(self, arguments: Mapping[str, Any], limit: int) -> bytes:
        """What the process reads on standard input."""
        ...

    def most_output(self, limit: int) -> int:
        """Bytes of output after which the process is ended."""
        ...

    def result(self, output: bytes, code: int, complaint: str, limit: int) -> str:
        """The result's text. Raises LeapToolError when the run failed; ``complaint`` is the end of its stderr."""
        ...


@runtime_checkable
class Service(Protocol):
    """Answers calls in a process that is there already."""

    def answer(
        self, arguments: Mapping[str, Any], *, seconds: float, limit: int, cancelled: threading.Event | None = None
    ) -> str:
        """The result's text, ``limit`` characters at most. Raises LeapToolError."""
        ...


@dataclass(frozen=True)
class LeapFunction:
    """A function that a model may call.

    ``schema``: the JSON schema of the arguments as another program declared it; then it is what the model gets and
    what calls are held to, and ``parameters`` are read off it. ``call`` is what runs it (a callable that takes the
    arguments by name, or a Program), if leap is to run it; it takes no part in comparison. ``deferred``: the prompt
    does not declare it from the start. ``grammar``: what its one argument, ``input``, has to follow, in Lark's form.
    Raises LeapSerializationError for an impossible name.
    """

    name: str
    description: str
    parameters: Sequence[LeapFunctionParameter] = ()
    schema: Mapping[str, Any] | None = None
    call: Callable[..., Any] | Program | Service | None = field(default=None, compare=False, repr=False)
    deferred: bool = False
    grammar: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise LeapSerializationError(
                f"{self.name!r} cannot be a function's name",
                path="name",
                hint="use letters, digits, '_' and '-', in parts joined by '.'",
            )
        names = [parameter.name for parameter in self.parameters]
        for name in names:
            if names.count(name) > 1:
                raise LeapSerializationError(f"the parameter {name!r} is declared twice", path=self.name)

    @property
    def arguments_schema(self) -> JsonObject:
        """The JSON schema of the object of arguments; its root has the definitions of every parameter."""
        if self.schema is not None:
            return dict(self.schema)
        from ...schemas.transforms import Definitions

        definitions = Definitions()
        schemas = {parameter.name: parameter.to_json_object() for parameter in self.parameters}
        return {
            "type": "object",
            "properties": {name: definitions.adopt(schema, name) for name, schema in schemas.items()},
            "required": [parameter.name for parameter in self.parameters if not parameter.optional],
            **definitions.keyword(),
        }

    def to_json_object(self, with_tool_type_wrapper: bool = True) -> JsonObject:
        """OpenAI's declaration of a tool; without the wrapper only what is below ``function``."""
        function = {"name": self.name, "description": self.description, "parameters": self.arguments_schema}
        return {"type": "function", "function": function} if with_tool_type_wrapper else function

    def to_json(self) -> JsonObject:
        """The declaration in a request of leap's: OpenAI's, and what leap adds to it."""
        declared = self.to_json_object()
        if self.deferred:
            declared["defer_loading"] = True
        if self.grammar is not None:
            form = {"type": "grammar", "syntax": "lark", "definition": self.grammar}
            declared["function"] |= {"grammar": form}
        return declared

    @staticmethod
    def from_json(value: object) -> LeapFunction:
        """Read what ``to_json`` writes. Raises LeapSerializationError."""
        function, tool = LeapFunction.from_openai(value), _object(value, "tool")
        form = tool.get("function", tool).get("grammar") or {}
        return replace(function, deferred=tool.get("defer_loading") is True, grammar=form.get("definition"))

    @staticmethod
    def from_callable(function: Callable[..., Any], *, name: str | None = None) -> LeapFunction:
        """``declare``."""
        return declare(function, name=name)

    @staticmethod
    def from_openai(value: object, path: str = "tool") -> LeapFunction:
        """Read OpenAI's declaration, with or without the wrapper. Every detail of the schema is kept.

        Raises LeapSerializationError naming the path.
        """
        tool = _object(value, path)
        if "function" in tool:
            if tool.get("type", "function") != "function":
                raise LeapSerializationError(f"unknown type of tool {tool['type']!r}", path=f"{path}.type")
            path = f"{path}.function"
            tool = _object(tool["function"], path)
        name = tool.get("name")
        if not isinstance(name, str):
            raise LeapSerializationError("expected the function's name", path=f"{path}.name")
        description = tool.get("description") or ""
        if not isinstance(description, str):
            raise LeapSerializationError("expected a string", path=f"{path}.description")
        schema = tool.get("parameters")
        if schema is None:
            schema = {"type": "object", "properties": {}, "required": []}
        schema = _object(schema, f"{path}.parameters")
        try:
            return LeapFunction(name, description, _parameters(schema, f"{path}.parameters"), schema)
        except LeapSerializationError as error:
            if error.path.startswith(path):
                raise
            raise LeapSerializationError(error.message, path=path, hint=error.hint) from None


FIND = "find_tools"
"""The function with which a model finds deferred ones."""
DECLARED = "tool_references"


def references(names: Iterable[str]) -> str:
    """The result of a search for functions as histories hold it: their names; the prompt has their declarations."""
    return json.dumps({DECLARED: list(names)}, ensure_ascii=False)


def referred(text: str) -> list[str] | None:
    """The names in what ``references`` wrote; None for another text."""
    if not text.startswith(f'{{"{DECLARED}"'):
        return None
    try:
        names = json.loads(text)[DECLARED]
    except ValueError:
        return None
    return [str(name) for name in names] if isinstance(names, list) else None


def declare(function: Callable[..., Any], *, name: str | None = None) -> LeapFunction:
    """The declaration of a Python function.

    A parameter's type is its annotation (none means any JSON value), its description what ``Annotated`` or the
    docstring says (Google's, NumPy's or Sphinx's style). One with a default, or whose type admits None, is optional.
    Raises LeapGeneratableSchematizationError for parameters that cannot be given by name or have no JSON schema.
    """

    title = name or str(getattr(function, "__name__", type(function).__name__))
    summary, parameters = read_signature(function, title)
    return LeapFunction(title, summary, parameters, call=function)


def _parameters(schema: JsonObject, path: str) -> list[LeapFunctionParameter]:
    if schema.get("type", "object") != "object":
        raise LeapSerializationError("the arguments of a function are an object", path=f"{path}.type")
    properties = _object(schema.get("properties", {}), f"{path}.properties")
    required = schema.get("required", [])
    if not isinstance(required, list):
        raise LeapSerializationError("expected a list of names", path=f"{path}.required")
    parameters = []
    for name, value in properties.items():
        detail = {} if value is True else _object(value, f"{path}.properties.{name}")
        text = detail.get("description")
        rest = {key: item for key, item in detail.items() if key != "description" or not isinstance(text, str)}
        kind = type_of_schema(rest)
        parameters.append(
            LeapFunctionParameter(name, kind, text if isinstance(text, str) else "", name not in required)
        )
    return parameters


def _object(value: object, path: str) -> JsonObject:
    if not isinstance(value, dict):
        raise LeapSerializationError("expected an object", path=path)
    return value


GOOGLE_SECTION = re.compile(r"^(Args|Arguments|Parameters|Params):\s*$")
SPHINX_ENTRY = re.compile(r"^:param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)$")
ENTRIES = {
    "google": re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\)\s*)?:\s*(?P<text>.*)$"),
    "numpy": re.compile(r"^(\w+)\s*(?::.*)?(?P<text>)$"),
}
OTHER_SECTION = re.compile(r"^(Returns?|Yields?|Raises|Examples?|Notes?|See Also|Attributes):?\s*$")
SPHINX_FIELD = re.compile(r"^:\w[^:]*:")


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
        pattern = ENTRIES.get(section) if indent <= depth or (section == "google" and not entry) else None
        if sphinx:
            section, entry, depth = "sphinx", sphinx[1], indent
            described[entry] = sphinx[2]
        elif (begun := _section_of(plain, following, section)) is not None:
            section, entry, depth = begun, "", indent
        elif set(plain) == {"-"}:
            continue
        elif section == "summary":
            summary.append(plain)
        elif pattern is not None and (opened := pattern.match(plain)):
            entry, described[opened[1]] = opened[1], opened["text"]
            depth = indent if section == "google" else depth  # the first entry sets the depth of all
        elif entry and plain:
            described[entry] = f"{described[entry]} {plain}".strip()
    return " ".join(" ".join(summary).split()), described


def _section_of(line: str, following: str, section: str) -> str | None:
    """The section that a line opens, by its style; None where it opens none."""
    is_underlined = set(following) == {"-"}
    if GOOGLE_SECTION.match(line):
        return "google"
    if is_underlined and line in ("Parameters", "Arguments"):
        return "numpy"
    is_field = SPHINX_FIELD.match(line) and section in ("summary", "sphinx")
    is_other = OTHER_SECTION.match(line) and (is_underlined or line.endswith(":"))
    return "other" if is_field or is_other else None

"""Functions that a model may call, and how the model gets them: OpenAI's tool JSON, as the LEAP SDK writes it."""

from __future__ import annotations

from ..json_fields import JsonObject
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from ..errors import LeapSerializationError
from .function_parameters import LeapFunctionParameter, type_of_schema

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

    ``schema``: the JSON schema of the arguments as it was declared elsewhere; then it is what the model gets and
    what calls are held to, and ``parameters`` are read off it. ``call`` is what runs it (a callable that takes the
    arguments by name, or a Program), if leap is to run it; it takes no part in comparison.
    Raises LeapSerializationError for an impossible name.
    """

    name: str
    description: str
    parameters: Sequence[LeapFunctionParameter] = ()
    schema: Mapping[str, Any] | None = None
    call: Callable[..., Any] | Program | Service | None = field(default=None, compare=False, repr=False)

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
        from ..schemas.definitions import Definitions

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


def declare(function: Callable[..., Any], *, name: str | None = None) -> LeapFunction:
    """The declaration of a Python function.

    A parameter's type is its annotation (none means any JSON value), its description what ``Annotated`` or the
    docstring says (Google's, NumPy's or Sphinx's style). One with a default, or whose type admits None, is optional.
    Raises LeapGeneratableSchematizationError for parameters that cannot be given by name or have no JSON schema.
    """
    from .signatures import read_signature

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

"""The child process in which a Python function runs, or a file of functions is declared.

A request (JSON) comes on standard input, the answer (JSON) goes to what was standard output; whatever the function
prints goes to standard error instead. Request: ``file`` or ``module``, then ``name``, ``arguments`` and ``limit``
(bytes of the result) to run a function, or ``declare`` to list what a file offers.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from types import ModuleType
from typing import Any, get_type_hints

from ..errors import LeapGeneratableDeserializationError, LeapSchemaError, LeapToolError
from ..schemas.json_values import JsonObject
from ..system.child import take_stdout

MOST_FAILURE_BYTES = 10_000
CUT_NOTE = "\n[cut: the output was longer than {limit} bytes]"


def main() -> None:
    """Answer the one request of this process."""
    answer_to = take_stdout()
    sys.stdout = sys.stderr
    request = json.loads(sys.stdin.buffer.read())
    sys.stdin = open(os.devnull)  # noqa: SIM115  (a function that asks for input gets none)
    try:
        answer = _declared(request) if request.get("declare") else {"result": _result(request)}
    except BaseException as error:
        answer = {"error": failure_text(error, request.get("limit", MOST_FAILURE_BYTES))}
    answer_to.write(json.dumps(answer).encode())
    answer_to.close()
    sys.stderr.flush()
    os._exit(0)  # threads that the function left behind are not waited for


def failure_text(error: BaseException, limit: int) -> str:
    """What the model gets of an exception, cut at ``limit`` bytes."""
    try:
        status = str(error)
    except Exception:  # its own code fails
        status = ""
    if isinstance(error, LeapToolError):
        text = error.message
    elif isinstance(error, SystemExit):
        text = f"it ended the program with {status}" if status else "it ended the program"
    else:
        text = f"{type(error).__name__}: {status}" if status else type(error).__name__
    return cut_text(text.encode("utf-8", "replace"), limit)


def call_function(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """What a function, asynchronous or not, makes of a call's arguments, each read as its annotation says. One that is
    missing, may be None and has no default is None.

    Raises LeapToolError naming an argument that does not fit.
    """
    hints = _hints_of(function)
    values = {name: _read(name, hints.get(name, Any), value) for name, value in arguments.items()}
    value = function(**{name: None for name in _needing_none(function, hints) if name not in values}, **values)
    if inspect.iscoroutine(value):
        import asyncio

        value = asyncio.run(value)
    if inspect.isgenerator(value):
        return list(value)
    if inspect.isasyncgen(value):
        import asyncio

        return asyncio.run(_collected(value))
    return value


async def _collected(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


def _hints_of(function: Callable[..., Any]) -> JsonObject:
    """The annotations; none where they cannot be read, as in a function that was declared by hand."""
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:
        return {}


def _needing_none(function: Callable[..., Any], hints: JsonObject) -> list[str]:
    """The parameters that are declared optional, for None is one of their values, and yet have no default."""
    from ..schemas.python_types import optional_of, without_annotations

    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):  # declared by hand
        return []
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    bare = [each.name for each in parameters if each.default is each.empty and each.kind not in several]
    return [name for name in bare if optional_of(without_annotations(hints.get(name, Any))[0]) is not None]


def _read(name: str, hint: Any, value: Any) -> Any:
    from ..schemas.python_types import schema_of
    from ..schemas.response_types import read_value

    try:
        schema_of(hint)
    except LeapSchemaError:  # declared by hand
        return value
    try:
        return read_value(hint, value, f"/{name}")
    except LeapGeneratableDeserializationError as error:
        raise LeapToolError(f"the arguments are wrong: {error.message}") from error


def result_text(value: object, limit: int) -> str:
    """A function's result as the model sees it: a string as it is, anything else as JSON, cut at ``limit`` bytes."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return cut_text(text.encode("utf-8", "replace"), limit)


def cut_text(data: bytes, limit: int) -> str:
    """UTF-8 as text, cut at ``limit`` bytes with a note."""
    if len(data) <= limit:
        return data.decode("utf-8", "replace")
    return data[:limit].decode("utf-8", "ignore") + CUT_NOTE.format(limit=limit)


def _result(request: JsonObject) -> str:
    function: Any = _module(request)
    for part in request["name"].split("."):
        function = getattr(function, part)
    return result_text(call_function(function, request["arguments"]), request["limit"])


def _module(request: JsonObject) -> ModuleType:
    if request.get("module"):
        return importlib.import_module(request["module"])
    path = request["file"]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    name = "leap_tools_" + "".join(c if c.isalnum() else "_" for c in os.path.splitext(os.path.basename(path))[0])
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _declared(request: JsonObject) -> JsonObject:
    """The public functions that the file itself defines (or lists in ``__all__``), declared; by name why the others
    cannot be."""
    from ..conversation.calls import LeapFunction

    module = _module(request)
    listed = getattr(module, "__all__", None)
    names = listed or [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and _is_public(name, value)
    ]
    functions, skipped = [], {}
    for name in names:
        try:
            functions.append(LeapFunction.from_callable(getattr(module, name), name=name).to_json_object())
        except LeapSchemaError as error:
            skipped[name] = error.message
    return {"functions": functions, "skipped": skipped}


def _is_public(name: str, function: Callable[..., Any]) -> bool:
    return not name.startswith("_") and function.__name__ != "<lambda>"

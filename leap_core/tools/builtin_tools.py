"""Tools that come with leap. None of them changes anything; ``read_file`` reads below one directory only."""

from __future__ import annotations

import ast
import math
import operator
import os
import stat
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

MOST_FILE_BYTES = 1_000_000
MOST_DIGITS = 2000

OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "round": round,
    "min": min,
    "max": max,
    **{
        name: getattr(math, name)
        for name in ("sqrt", "exp", "log", "log2", "log10", "sin", "cos", "tan", "floor", "ceil")
    },
}
CONSTANTS = {"pi": math.pi, "e": math.e}


def current_time(timezone_name: str | None = None) -> str:
    """Tell the current date and time.

    Args:
        timezone_name: an IANA name such as Europe/Berlin; the machine's own time zone when left out
    """
    if timezone_name is None:
        return datetime.now().astimezone().isoformat(timespec="seconds")
    if timezone_name.upper() in ("UTC", "GMT", "Z"):
        return datetime.now(timezone.utc).isoformat(timespec="seconds")
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        zone = ZoneInfo(timezone_name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{timezone_name!r} is not a time zone") from None
    return datetime.now(zone).isoformat(timespec="seconds")


def calculate(expression: str) -> str:
    """Compute an arithmetic expression.

    Args:
        expression: numbers with + - * / // % ** and parentheses, such as (2 + 3) * 4; also sqrt, round, min, max and pi
    """
    try:
        tree = ast.parse(expression.strip().replace("^", "**").replace("×", "*").replace("÷", "/"), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{expression!r} is not an arithmetic expression") from None
    value = _value(tree.body)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return str(value)


def read_file(path: str, directory: str) -> str:
    """Read a text file.

    Args:
        path: the file, relative to the directory that may be read
    """
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
    if os.path.isabs(path) or not parts or ".." in parts or ":" in parts[0]:
        raise ValueError(f"{path!r} is not a path below the directory")
    data = _read_below(directory, parts, path)
    return data.decode("utf-8", "replace")


def _read_below(directory: str, parts: list[str], path: str) -> bytes:
    """Every step is taken from the directory that was opened before it, and none through a symbolic link."""
    if sys.platform == "win32":  # which opens no directory
        return _read_resolved(directory, parts, path)
    opened: list[int] = []
    try:
        opened.append(os.open(directory, os.O_RDONLY | os.O_DIRECTORY))
        for part in parts[:-1]:
            opened.append(os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened[-1]))
        opened.append(os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened[-1]))
        if not stat.S_ISREG(os.fstat(opened[-1]).st_mode):
            raise ValueError(f"{path!r} is not a file")
        return _first_bytes(opened[-1])
    except OSError as error:
        raise ValueError(f"{path!r} cannot be read: {error.strerror}") from None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _read_resolved(directory: str, parts: list[str], path: str) -> bytes:
    """Where directories cannot be opened: the file's real place must be below the directory's."""
    root = os.path.realpath(directory)
    place = os.path.realpath(os.path.join(root, *parts))
    if os.path.commonpath([root, place]) != root or not os.path.isfile(place):
        raise ValueError(f"{path!r} is not a file below the directory")
    with open(place, "rb") as file:
        return file.read(MOST_FILE_BYTES)


def _first_bytes(descriptor: int) -> bytes:
    data = b""
    while len(data) < MOST_FILE_BYTES and (piece := os.read(descriptor, MOST_FILE_BYTES - len(data))):
        data += piece
    return data


def _value(node: ast.AST) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _bounded(node.value)
    if isinstance(node, ast.Name) and node.id in CONSTANTS:
        return CONSTANTS[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        return _operation(node)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in FUNCTIONS
        and not node.keywords
    ):
        return _bounded(FUNCTIONS[node.func.id](*map(_value, node.args)))
    raise ValueError("only numbers, + - * / // % **, parentheses and a few functions are understood")


def _operation(node: ast.BinOp) -> Any:
    left, right = _value(node.left), _value(node.right)
    try:
        if isinstance(node.op, ast.Pow):
            return _bounded(_power(left, right))
        if type(node.op) in OPERATORS:
            return _bounded(OPERATORS[type(node.op)](left, right))
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except OverflowError:
        raise ValueError("the result is too large") from None
    raise ValueError("this operator is not understood")


def _power(base: Any, exponent: Any) -> Any:
    digits = abs(exponent) * math.log10(max(abs(base), 2)) if base else 0
    if digits > MOST_DIGITS:
        raise ValueError("the result is too large")
    value = base**exponent
    if isinstance(value, complex):
        raise ValueError("the result is not a real number")
    return value


def _bounded(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("the result is too large")
    if isinstance(value, int) and value.bit_length() > MOST_DIGITS * 4:
        raise ValueError("the result is too large")
    return value

"""What a function runs: a Python function in a child process, or a command. Never a shell."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import LeapToolError
from ..storage.directories import packages_directory
from .tool_environment import short_environment
from .tool_process import cut_text

CHILD = """
import sys
sys.path = {places!a} + [place for place in sys.path if place]
from leap_core.tools.tool_process import main
main()
"""
"""The places are here and not in PYTHONPATH, which the programs that a tool starts would inherit."""

FAILED_BYTES = 120
"""Room for what an error says beside a command's output and its complaint."""


@dataclass(frozen=True)
class PythonFunction:
    """A function of a Python file, or of an importable module."""

    name: str
    file: Path | None = None
    module: str | None = None
    fixed: Mapping[str, Any] | None = None
    """Arguments that the caller of the model decides, not the model."""

    @staticmethod
    def of(function: Callable[..., Any]) -> PythonFunction:
        """Where a child process finds a function. Raises LeapToolError for what it cannot import: lambdas, closures,
        methods, and functions of the script that runs, which would run again from its first line."""
        name = getattr(function, "__qualname__", "")
        module = getattr(function, "__module__", None)
        if not name or "<" in name or module is None or getattr(function, "__self__", None) is not None:
            raise _not_importable(f"{name or function!r} cannot be found by another process")
        if module == "__main__":
            raise _not_importable(f"{name} belongs to the script itself, which would run again in another process")
        file = getattr(sys.modules.get(module), "__file__", None)
        spec = getattr(sys.modules.get(module), "__spec__", None)
        if spec is None and file is not None:
            return PythonFunction(name, file=Path(file))
        return PythonFunction(name, module=module)

    @staticmethod
    def is_possible(function: Callable[..., Any]) -> bool:
        """Whether a child process can find a function."""
        try:
            PythonFunction.of(function)
        except LeapToolError:
            return False
        return True

    @property
    def argv(self) -> Sequence[str]:
        """A module's function is looked for in the places from which this process imports."""
        own = sys.path if self.module is not None else ()
        places = [str(packages_directory()), *(os.path.abspath(place) for place in own)]  # "" is where a REPL runs
        return [sys.executable, "-X", "utf8", "-c", CHILD.format(places=list(dict.fromkeys(places)))]

    @property
    def environment(self) -> None:
        return None

    def request(self, arguments: Mapping[str, Any], limit: int) -> bytes:
        request = {
            "file": None if self.file is None else str(self.file),
            "module": self.module,
            "name": self.name,
            "arguments": {**arguments, **(self.fixed or {})},
            "limit": limit,
        }
        return json.dumps(request).encode()

    def most_output(self, limit: int) -> int:
        return 12 * limit + 10_000  # the child cuts the result itself; JSON needs up to 12 bytes for a character

    def result(self, output: bytes, code: int, complaint: str, limit: int) -> str:
        try:
            answer = json.loads(output)
        except ValueError:
            raise LeapToolError(f"the process ended with code {code} and no result{_after(complaint)}") from None
        if "error" in answer:
            raise LeapToolError(str(answer["error"]))
        return str(answer["result"])


@dataclass(frozen=True)
class Command:
    """A registered command: the arguments as JSON on standard input, the result on standard output. ``passes``: names
    of variables that it gets beside the usual ones."""

    argv: Sequence[str]
    passes: Sequence[str] = ()

    @property
    def environment(self) -> Mapping[str, str]:
        return short_environment(self.passes)

    def request(self, arguments: Mapping[str, Any], limit: int) -> bytes:
        return json.dumps(dict(arguments), ensure_ascii=False).encode()

    def most_output(self, limit: int) -> int:
        return limit + 1

    def result(self, output: bytes, code: int, complaint: str, limit: int) -> str:
        if code != 0 and len(output) <= limit:
            room = max(limit - len(complaint.encode()) - FAILED_BYTES, limit // 2)  # how it failed is at the end
            raise LeapToolError(_failed(code, cut_text(output, room).rstrip("\r\n"), complaint))
        return cut_text(output, limit).rstrip("\r\n")


def _failed(code: int, output: str, complaint: str) -> str:
    """Linters, tests and searches say what they found on standard output and end with a code other than 0."""
    report = [f"the command ended with code {code}"]
    if output:
        report.append(f"standard output:\n{output}")
    if complaint:
        report.append(f"standard error:\n{complaint}" if output else complaint)
    return (
        report[0]
        + (": " if len(report) == 2 and not output else "\n" if len(report) > 1 else "")
        + "\n".join(report[1:])
    )


def _not_importable(reason: str) -> LeapToolError:
    return LeapToolError(
        reason, hint="define it at the top of a module, or let it run in this process (ToolPolicy(isolated=False))"
    )


def _after(complaint: str) -> str:
    return f": {complaint}" if complaint else ""

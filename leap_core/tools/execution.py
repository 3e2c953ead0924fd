"""Running one call in a child process of its own, for a bounded time, with a bounded result. Never a shell."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ..conversation.calls.declaration import LeapFunction, Program, Service
from ..conversation.messages import LeapFunctionCall
from ..conversation.responses import FunctionResult as FunctionResult
from ..errors import LeapSchemaError, LeapToolError
from ..system.dataclass import dataclass
from ..system.directories import packages_directory
from ..system.processes import CREATION_FLAGS, OF_A_SESSION, kill_group
from .policy import ToolPolicy
from .process_cleanup import Lifeline
from .tool_process import call_function, cut_text, failure_text, result_text


class StreamTail:
    """Reads a stream to its end and keeps ``limit`` bytes of it: the last ones with ``keep_end``, else the first."""

    def __init__(self, limit: int, *, keep_end: bool) -> None:
        self.data = bytearray()
        self.on_full: Callable[[], object] | None = None
        self._limit = limit
        self._keep_end = keep_end

    def read(self, stream: IO[bytes]) -> None:
        """Read until the stream ends."""
        with stream, suppress(OSError, ValueError):
            while piece := stream.read1(65536):  # type: ignore[attr-defined]
                self.data += piece
                if len(self.data) >= self._limit:
                    if self._keep_end:
                        del self.data[: -self._limit]
                    else:
                        del self.data[self._limit :]
                        if self.on_full is not None:
                            self.on_full()

    @property
    def text(self) -> str:
        """What is kept, without the space around it."""
        return self.data.decode("utf-8", "replace").strip()


PASSED_ON = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES"),
        *("SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR"),
    }
)
"""Where a program finds itself, its files, its language and its certificates, on every system; with ``LC_*``."""


def short_environment(names: Iterable[str] = (), variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of this process (or these) that are passed on, and those that the user has named."""
    wanted = PASSED_ON | set(names)
    source = os.environ if variables is None else variables
    return {name: value for name, value in source.items() if name in wanted or name.startswith("LC_")}


CHILD = """
import sys
sys.path = {places!a} + [place for place in sys.path if place]
from leap_core.tools.tool_process import main
main()
"""
"""The places are here and not in PYTHONPATH, which the programs that a tool starts would inherit."""

FAILED_BYTES = 120
"""Space for what an error says beside a command's output and its complaint."""


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


COMPLAINT_BYTES = 2000
GRACE_SECONDS = 1.0
POLL_SECONDS = 0.05
OPEN_KEYWORDS = {"additionalProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf"}
"""A schema without these means the properties that it lists and no others."""


def run_call(
    function: LeapFunction, call: LeapFunctionCall, policy: ToolPolicy, cancelled: threading.Event | None = None
) -> FunctionResult:
    """Run a call that has been allowed. Whatever goes wrong becomes the result's ``error``; setting ``cancelled`` ends
    its process early."""
    started = time.perf_counter()
    text, error = "", None
    try:
        check_arguments(function, call)
        text = _run(function, call, policy, cancelled)
    except (LeapToolError, LeapSchemaError) as failure:
        error = cut_text(failure.message.encode("utf-8", "replace"), policy.output_limit)
    return FunctionResult(call, text, error, seconds=round(time.perf_counter() - started, 4))


def check_arguments(function: LeapFunction, call: LeapFunctionCall) -> None:
    """Raises LeapToolError when the arguments do not have the declared shape."""
    from ..schemas.json_schema import check_schema

    schema = function.arguments_schema
    values = dict(call.arguments)
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise LeapToolError(
            f"the arguments of {function.name} are no JSON text: half of a surrogate pair, or nested too deeply"
        ) from None
    if callable(function.call) or isinstance(function.call, PythonFunction):  # what None is to it, it knows itself
        optional = {parameter.name for parameter in function.parameters if parameter.optional}
        values = {name: value for name, value in values.items() if value is not None or name not in optional}
    problems = check_schema(schema).problems_of(values)
    strangers = [name for name in call.arguments if name not in schema.get("properties", {})]
    if strangers and not OPEN_KEYWORDS & schema.keys():
        problems.append(f"there is no argument {strangers[0]!r}")
    if problems:
        raise LeapToolError(f"the arguments of {function.name} are wrong: {'; '.join(problems[:3])}")


def _run(function: LeapFunction, call: LeapFunctionCall, policy: ToolPolicy, cancelled: threading.Event | None) -> str:
    target = function.call
    if target is None:
        raise LeapToolError(f"{function.name} is only declared; leap cannot run it")
    if isinstance(target, Service):
        text = target.answer(call.arguments, seconds=policy.timeout, limit=policy.output_limit + 1, cancelled=cancelled)
        return cut_text(text.encode("utf-8", "replace"), policy.output_limit)
    if not callable(target):
        return run_program(target, call, policy, cancelled)
    if policy.isolated or (policy.isolated is None and PythonFunction.is_possible(target)):
        return run_program(PythonFunction.of(target), call, policy, cancelled)
    return _run_here(target, call, policy, cancelled)


def check_isolation(function: LeapFunction, policy: ToolPolicy) -> None:
    """Raises LeapToolError for a function that must run in a process of its own and cannot."""
    if policy.isolated and callable(function.call):
        PythonFunction.of(function.call)


def run_program(
    program: Program, call: LeapFunctionCall, policy: ToolPolicy, cancelled: threading.Event | None = None
) -> str:
    """Run a process and take its result. Raises LeapToolError when it fails or takes too long."""
    request = program.request(call.arguments, policy.output_limit)
    output, code, complaint = run_process(
        program,
        request,
        timeout=policy.timeout,
        most_output=program.most_output(policy.output_limit),
        cancelled=cancelled,
    )
    return program.result(output, code, complaint, policy.output_limit)


def run_process(
    program: Program, request: bytes, *, timeout: float, most_output: int, cancelled: threading.Event | None = None
) -> tuple[bytes, int, str]:
    """What a process writes, its exit code, and the end of what it complained about. It and its children are killed
    when the time is up or ``cancelled`` is set (LeapToolError), when it has written ``most_output`` bytes, and when
    this process dies."""
    environment = os.environ if program.environment is None else program.environment
    argv = list(program.argv)
    found = shutil.which(argv[0], path=environment.get("PATH"))
    if found is None:
        raise LeapToolError(f"{program.argv[0]} cannot be started: there is no such command")
    if sys.platform == "win32":
        argv[0] = found  # with its ending: Windows itself looks for NAME.exe alone, and npx is npx.cmd
    with Lifeline() as lifeline:
        try:
            process = subprocess.Popen(
                lifeline.command(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=None if program.environment is None else dict(program.environment),
                start_new_session=OF_A_SESSION,
                creationflags=CREATION_FLAGS,
                pass_fds=lifeline.descriptors,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise LeapToolError(f"{program.argv[0]} cannot be started: {reason}") from None
        return _communicate(process, request, timeout, most_output, cancelled)


def _communicate(
    process: subprocess.Popen[bytes],
    request: bytes,
    timeout: float,
    most_output: int,
    cancelled: threading.Event | None,
) -> tuple[bytes, int, str]:
    output, complaint = StreamTail(most_output, keep_end=False), StreamTail(COMPLAINT_BYTES, keep_end=True)
    output.on_full = lambda: _kill(process)
    threads = [
        threading.Thread(target=_write, args=(process.stdin, request), daemon=True),
        threading.Thread(target=output.read, args=(process.stdout,), daemon=True),
        threading.Thread(target=complaint.read, args=(process.stderr,), daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        code = _wait(process, timeout, cancelled)
    finally:
        for thread in threads[1:]:
            thread.join(GRACE_SECONDS if process.poll() is not None else 0)
        _kill(process)
        process.wait()
        for thread in threads:
            thread.join(GRACE_SECONDS)
    return bytes(output.data), code, complaint.text


def _wait(process: subprocess.Popen[bytes], timeout: float, cancelled: threading.Event | None) -> int:
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(left if cancelled is None else min(left, POLL_SECONDS))
        if cancelled is not None and cancelled.is_set():
            raise LeapToolError("it was interrupted")
    raise LeapToolError(f"it took longer than {timeout:g} s and was ended")


def _write(stream: IO[bytes], data: bytes) -> None:
    with suppress(OSError, ValueError), stream:  # a command need not read its arguments
        stream.write(data)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and whatever it started, also where it has ended and what it started has not."""
    if sys.platform == "win32":
        kill_group(process.pid)
        process.kill()
    else:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


def _run_here(
    function: Callable[..., Any], call: LeapFunctionCall, policy: ToolPolicy, cancelled: threading.Event | None
) -> str:
    """Run a callable in this process. One that takes too long continues behind the scenes."""
    outcome: list[str] = []
    failure: list[str] = []

    def run() -> None:
        try:
            outcome.append(result_text(call_function(function, call.arguments), policy.output_limit))
        except BaseException as error:
            failure.append(failure_text(error, policy.output_limit))

    thread = threading.Thread(target=run, name=f"leap-tool-{call.name}", daemon=True)
    thread.start()
    _join(thread, policy.timeout, cancelled)
    if failure:
        raise LeapToolError(failure[0])
    return outcome[0]


def _join(thread: threading.Thread, timeout: float, cancelled: threading.Event | None) -> None:
    deadline = time.monotonic() + timeout
    while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
        thread.join(left if cancelled is None else min(left, POLL_SECONDS))
        if thread.is_alive() and cancelled is not None and cancelled.is_set():
            raise LeapToolError("it was interrupted")
    if thread.is_alive():
        raise LeapToolError(f"it took longer than {timeout:g} s and was given up")

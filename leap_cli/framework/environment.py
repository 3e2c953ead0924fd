"""What a command touches of the process: streams, terminals, variables, directories, the loader of models.

It is handed in, never patched: tests build their own and call ``leap_cli.main.main`` with it.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from leap_core.system.dataclass import dataclass

if TYPE_CHECKING:
    from leap_core.conversation.embedding import EmbeddingRunner
    from leap_core.conversation.options import ModelLoadingOptions
    from leap_core.conversation.runner import ModelRunner
    from leap_core.system.directories import Directories

ModelLoader = Callable[[str, "ModelLoadingOptions"], "ModelRunner"]
EmbedderLoader = Callable[[str, "ModelLoadingOptions"], "EmbeddingRunner"]


@dataclass
class LastLine:
    """What is on the terminal's last line, for all that write to it from any thread, one at a time (``guard``).
    ``has_progress``: a line of progress, which is erased before anything else is written. ``is_open``: text without its
    end, which no progress may overwrite. ``is_quiet``: no progress is wanted. ``said``: what is said once."""

    has_progress: bool = False
    is_open: bool = False
    is_quiet: bool = False
    said: set[str] = field(default_factory=set)
    guard: threading.RLock = field(default_factory=threading.RLock)


@dataclass
class Environment:
    """``stdin`` gives bytes, ``stdout`` and ``stderr`` take text. ``load_model`` loads a model in another way than
    ``leap_core.opening`` does, ``load_embedder`` one that makes vectors."""

    stdin: BinaryIO = field(default_factory=io.BytesIO)
    stdout: TextIO = field(default_factory=io.StringIO)
    stderr: TextIO = field(default_factory=io.StringIO)
    stdin_is_terminal: bool = False
    stdout_is_terminal: bool = False
    stderr_is_terminal: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = field(default_factory=Path)
    load_model: ModelLoader | None = None
    load_embedder: EmbedderLoader | None = None
    chosen: dict[str, str] = field(default_factory=dict)
    """What its user was asked and answered in this run, so that it is asked once."""
    consumed: bytes = b""
    """What ``read_stdin`` has given."""
    last_line: LastLine = field(default_factory=LastLine)

    @staticmethod
    def of_process() -> Environment:
        """The environment of this process. Data leaves as UTF-8 with plain line feeds, except on a terminal."""
        stdout, stderr = _output_stream(sys.stdout, 1), _output_stream(sys.stderr, 2)
        return Environment(
            stdin=sys.stdin.buffer if sys.stdin is not None else io.BytesIO(),
            stdout=stdout,
            stderr=stderr,
            stdin_is_terminal=sys.stdin is not None and sys.stdin.isatty(),
            stdout_is_terminal=stdout.isatty(),
            stderr_is_terminal=stderr.isatty(),
            variables=os.environ,
            cwd=_working_directory(),
        )

    @property
    def binary_stdout(self) -> BinaryIO:
        """Standard output for bytes, such as sound."""
        buffer: BinaryIO = getattr(self.stdout, "buffer", None) or io.BytesIO()
        return buffer

    @property
    def is_own_terminal(self) -> bool:
        """Whether standard input and output are the terminal of this process."""
        own = self.stdin is getattr(sys.stdin, "buffer", None)
        return own and self.stdin_is_terminal and self.stdout_is_terminal

    @property
    def has_editor(self) -> bool:
        """Whether that terminal can show an editor: it moves its cursor as programs want."""
        able = sys.platform == "win32" or self.variables.get("TERM", "dumb") not in ("", "dumb", "unknown")
        return self.is_own_terminal and able

    @property
    def terminal_columns(self) -> int:
        """The width of the terminal."""
        return terminal_columns()

    def read_stdin(self, most: int = -1) -> bytes:
        """The next bytes of standard input, all without ``most``. They are kept for whoever has to read them again."""
        data = self.stdin.read(most)
        self.consumed += data
        return data

    def read_typed_line(self, prompt: str) -> str:
        """A line from the terminal. Ctrl-D raises EOFError, Ctrl-C KeyboardInterrupt."""
        if self.is_own_terminal:
            with _echo(True):
                print(end=prompt, flush=True)
                _wait_for_input()
                return input()
        self.stderr.write(prompt)
        self.stderr.flush()
        line = self.stdin.readline()
        if not line:
            raise EOFError
        return line.decode("utf-8", "replace").rstrip("\r\n")

    def without_echo(self) -> AbstractContextManager[None]:
        """While this lasts, the terminal does not show what is typed; it is read later."""
        return _echo(False) if self.is_own_terminal else nullcontext()

    @cached_property
    def directories(self) -> Directories:
        """Where configuration, models, caches, state and logs belong."""
        from leap_core.system.directories import Directories

        return Directories.from_environment(self.variables)

    def use_color(self, is_terminal: bool) -> bool:
        """Whether escape codes may be written to a stream (https://no-color.org)."""
        wanted = is_terminal and not self.variables.get("NO_COLOR") and self.variables.get("TERM") != "dumb"
        if wanted and sys.platform == "win32":
            return obeys_escape_codes()
        return wanted

    def settle(self) -> None:
        """At the very end: deliver what is buffered; where that fails, keep the interpreter from trying again."""
        for stream, descriptor in ((self.stdout, 1), (self.stderr, 2)):
            try:
                stream.flush()
            except (OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


class ClosedOutput(io.TextIOBase):
    """Represents an output that was closed before we started: writing to it fails as the system call would."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def terminal_columns() -> int:
    """The width of the terminal, as ``shutil.get_terminal_size`` finds it, which imports all that archives need."""
    with suppress(ValueError):
        if (columns := int(os.environ.get("COLUMNS", ""))) > 0:
            return columns
    with suppress(OSError, ValueError):
        if sys.__stdout__ is not None and (columns := os.get_terminal_size(sys.__stdout__.fileno()).columns) > 0:
            return columns
    return 80


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it was removed: only relative names are affected, and they fail with a message of their own
        return Path()


def _output_stream(stream: Any, descriptor: int) -> TextIO:
    if stream is None:
        os.open(os.devnull, os.O_RDWR)  # so that no file of ours gets the standard descriptor
        return ClosedOutput() if descriptor == 1 else open(os.devnull, "w")  # type: ignore[return-value]
    if stream.isatty():
        stream.reconfigure(errors="replace")
    else:
        stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    return stream  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def obeys_escape_codes() -> bool:
    """Ask the consoles of this process to obey escape codes; whether they do. True on other systems."""
    if sys.platform != "win32":
        return True
    import ctypes

    output, error, processed, virtual_terminal = -11, -12, 0x1, 0x4
    kernel = ctypes.WinDLL("kernel32")
    kernel.GetStdHandle.restype = ctypes.c_void_p
    obeyed = False
    for which in (output, error):
        handle, mode = ctypes.c_void_p(kernel.GetStdHandle(which)), ctypes.c_ulong()
        if kernel.GetConsoleMode(handle, ctypes.byref(mode)):  # else it is a file or a pipe
            obeyed = bool(kernel.SetConsoleMode(handle, mode.value | processed | virtual_terminal))
    return obeyed


def _wait_for_input() -> None:
    """Until standard input has a line. A signal that comes just before ``input`` would wait for that line, too."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        return
    import select
    import signal

    waker, woken = os.pipe()
    os.set_blocking(woken, False)
    former = signal.set_wakeup_fd(woken)
    try:
        while 0 not in select.select([0, waker], [], [])[0]:
            os.read(waker, 4096)
    finally:
        signal.set_wakeup_fd(former)
        os.close(waker)
        os.close(woken)


@contextmanager
def _echo(shown: bool) -> Iterator[None]:
    """Let the terminal show what is typed, or not, and then do as it did before. Windows shows it."""
    if sys.platform == "win32":
        yield
        return
    import termios

    try:
        before = termios.tcgetattr(0)
    except (OSError, ValueError, termios.error):
        yield
        return
    mode = list(before)
    mode[3] = mode[3] | termios.ECHO if shown else mode[3] & ~termios.ECHO
    termios.tcsetattr(0, termios.TCSADRAIN, mode)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)

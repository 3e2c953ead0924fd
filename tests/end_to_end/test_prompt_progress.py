"""How far a prompt is read, on a pseudo-terminal and with the real engine."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")

PROGRAM = """
import sys
import time
from leap_core.conversation import prompt_progress
from leap_core.inference.llama.context import LlamaContext
prompt_progress.FIRST_SECONDS, prompt_progress.SECONDS = 0.0, 0.001
pause, decode = float(sys.argv.pop(1)), LlamaContext.decode
LlamaContext.decode = lambda self, **given: time.sleep(pause) or decode(self, **given)
from leap_cli.main import run
run()
"""
"""leap, which shows every prompt and pauses before each step, as the first argument says in seconds."""
LINE = [sys.executable, "-c", PROGRAM, "0.001", "generate", "-m", "builtin", "--no-host", "--temperature", "0"]
LINE += ["--batch-size", "1", "--max-tokens", "3", "-f", "long.txt", "What?"]
CLEAR = b"\r\x1b[K"
LINE_OF_MINUTES = [*LINE[:3], "0.3", *LINE[4:]]
"""The same, so slow that no signal comes too late."""
ENDLESS = 200.0


@pytest.fixture
def long_prompt(tmp_path: Path) -> Path:
    (tmp_path / "long.txt").write_text("the river ran past a small old town " * 20)
    return tmp_path


def shown(line: list[str], directory: Path, until: bytes | None = None) -> tuple[int, bytes]:
    """What a terminal gets, and the exit code; Ctrl-C is pressed as soon as it got ``until``."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(directory)
        os.execvpe(line[0], line, {**os.environ, "TERM": "xterm", "COLUMNS": "120"})
    seen, deadline = b"", time.monotonic() + ENDLESS
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the program has ended
            break
        if not piece:
            break
        seen += piece
        if until is not None and until in seen:
            until = None
            os.write(terminal, b"\x03")
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), seen


def test_a_terminal_shows_progress_and_erases_it(long_prompt):
    code, seen = shown(LINE, long_prompt)
    assert code == 0 and b"reading the prompt: " in seen and b" tokens/s, 0:" in seen
    last = seen.rpartition(b"reading the prompt: ")[2]
    assert CLEAR in last and last.partition(CLEAR)[2].strip()  # the answer


def test_ctrl_c_during_a_prompt_erases_the_progress(long_prompt):
    code, seen = shown(LINE_OF_MINUTES, long_prompt, until=b"reading the prompt: ")
    assert code in (130, -signal.SIGINT)
    assert seen.rpartition(b"reading the prompt: ")[2].partition(CLEAR)[2].strip() in (b"", b"^C")


def test_a_pipe_gets_no_progress(long_prompt):
    done = subprocess.run(LINE, cwd=long_prompt, capture_output=True, timeout=ENDLESS)
    assert done.returncode == 0 and b"reading" not in done.stderr and done.stdout

"""The program as it is installed: a process of its own, real pipes, real signals, the built-in model."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm_leap as warm_leap_server

LEAP = [sys.executable, "-m", "leap_cli"]
QUESTION = "What is the capital of France?"
LONG = "Count to 300."
ROOT = Path(__file__).parent.parent.parent
WARM = {**os.environ, "PYTHONPATH": str(ROOT)}

Program = Callable[..., "subprocess.CompletedProcess[str]"]

TERMINAL_STUB = [
    sys.executable,
    "-c",
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])",
]
"""Becomes the program, with the terminal on its stdin as the one that sends it signals."""


@pytest.fixture(scope="session")
def leap_server() -> Iterator[list[str]]:
    """The command of ``leap`` without its start; where that cannot be had, the program itself."""
    if sys.platform != "linux":
        yield LEAP
        return
    directory = tempfile.mkdtemp(prefix="leap-")  # a short path: the socket lies there
    place = os.path.join(directory, "warm")
    command = [sys.executable, warm_leap_server.__file__]
    with subprocess.Popen([*command, "serve", place], stdin=subprocess.PIPE, cwd=ROOT, env=WARM) as server:
        while not os.path.exists(place):
            assert server.poll() is None
            time.sleep(0.01)
        yield [command[0], "-IS", command[1], place]
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def warm_leap(leap_server: list[str], request: pytest.FixtureRequest) -> list[str]:
    """The command that runs ``leap`` in this test; the program itself where the test is marked ``cold``."""
    return LEAP if request.node.get_closest_marker("cold") else leap_server


@pytest.fixture
def variables(leap_home: Path) -> dict[str, str]:
    """The program's environment: this process's own, with a fresh LEAP_HOME."""
    return {**os.environ, "LEAP_HOME": str(leap_home), "PYTHONPATH": str(ROOT)}


@pytest.fixture
def program(variables: dict[str, str], warm_leap: list[str], tmp_path: Path) -> Program:
    """Run ``leap`` with these arguments to its end."""

    def run(*arguments: str, stdin: str | bytes = b"", **options: Any) -> subprocess.CompletedProcess[str]:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": tmp_path, "env": variables} | options
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run([*warm_leap, *arguments], input=data, timeout=200, check=False, **options)
        texts = [(stream or b"").decode() for stream in (done.stdout, done.stderr)]
        return subprocess.CompletedProcess(done.args, done.returncode, *texts)

    return run


@pytest.fixture
def shell(variables: dict[str, str], warm_leap: list[str], tmp_path: Path) -> Program:
    """Run a line of bash in which ``leap`` is the program; a pipeline fails when any part of it does."""

    def run(line: str) -> subprocess.CompletedProcess[str]:
        prelude = f'set -o pipefail; leap() {{ {shlex.join(warm_leap)} "$@"; }}; '
        return subprocess.run(
            ["bash", "-c", prelude + line],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
            cwd=tmp_path,
            env=variables,
        )

    return run


@pytest.fixture
def start(variables: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start ``leap`` and go on while it runs. Whatever still runs at the end of the test is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        process = subprocess.Popen([*LEAP, *arguments], cwd=tmp_path, env=variables, **options)
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def install(command: list[str], directory: Path, name: str = "leap") -> Path:
    """An executable of this name in ``bin`` that runs this command."""
    program = directory / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    program.chmod(0o755)
    return program


SHORT_ANSWERS = {f"LEAP_{command}_MAX_TOKENS": "200" for command in ("GENERATE", "CHAT", "BATCH")}
"""A small model may not find the end of an answer."""

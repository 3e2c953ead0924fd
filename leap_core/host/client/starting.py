"""Starting a host: a process of its own, in its own session, that outlives its starter."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import IO

from ...background.detached import open_log, start_detached
from ...error_json import error_from_json
from ...errors import LeapUnavailableError
from ...storage.directories import Directories, private_directory
from ...storage.locks import locked
from .host_connection import ModelHost
from .rendezvous import HostFiles

START_SECONDS = 60.0


def start_host(variables: Mapping[str, str]) -> ModelHost:
    """Start a host, unless another process has just done so. Raises LeapUnavailableError saying why there is none."""
    files = HostFiles.of(Directories.from_environment(variables))
    try:
        private_directory(files.directory)
        with locked(files.starting):
            host = ModelHost.running(variables)
            if host is not None:
                return host
            log = open_log(files.log)
            with log:
                _spawn(variables, files, log)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise LeapUnavailableError(f"the model host cannot start: {where}{error.strerror or error}") from None
    host = ModelHost.running(variables)
    if host is None:
        raise LeapUnavailableError("the model host ended right after its start", hint=f"its log is {files.log}")
    return host


def _spawn(variables: Mapping[str, str], files: HostFiles, log: IO[bytes]) -> None:
    process = start_detached(
        "leap_core.host", log=log, directory=files.directory, variables=variables, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process.stdout as out:
        line = _first_line(out, process)
    try:
        report = json.loads(line)
    except ValueError:
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        raise LeapUnavailableError(
            f"the model host ended while it started (exit code {process.returncode})", hint=f"its log is {files.log}"
        ) from None
    if "error" in report:
        process.wait(5)
        raise error_from_json(report["error"])


def _first_line(out: IO[bytes], process: subprocess.Popen[bytes]) -> bytes:
    """What the host says when it is ready; empty when it ended without a word."""
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    try:
        return out.readline()
    finally:
        timer.cancel()

"""The host of a data directory, seen from another process: found, started, asked, ended."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ...errors import (
    LeapError,
    LeapGenerationError,
    LeapModelLoadingError,
    LeapModelNotFoundError,
    LeapUnavailableError,
)
from ...schemas.json_values import JsonObject, error_from_json
from ...system.directories import Directories, private_directory
from ...system.locks import locked
from ...system.processes import open_log, start_detached
from .host_http import HostAnswer, send
from .host_state import CRASHED, INSTANCE_HEADER, PROTOCOL, HostFiles, HostState, write_private

if TYPE_CHECKING:
    from subprocess import Popen

ASK_SECONDS = 10.0
STATUS_SECONDS = 3.0
LOADING_POLL_SECONDS = 0.1
END_SECONDS = 30.0
POLL_SECONDS = 0.02
GONE_SECONDS = 1.0
"""How long a host whose connection broke may take to be gone."""


class ModelHost:
    """A running host. Its methods raise LeapUnavailableError when it cannot be reached."""

    def __init__(
        self, files: HostFiles, state: HostState, token: str, variables: Mapping[str, str] | None = None
    ) -> None:
        self.files = files
        self.variables = variables
        self.state = state
        self._token = token

    @staticmethod
    def running(variables: Mapping[str, str] | None = None) -> ModelHost | None:
        """The host of the data directory that these variables (the process's own when None) lead to, if there is one.

        What a host that is gone has left behind is removed. Raises LeapUnavailableError when there is one that cannot
        be trusted or understood.
        """
        files = HostFiles.of(Directories.from_environment(variables))
        if not files.state.exists():
            return None
        if not files.is_alive():
            files.remove_stale()
            return None
        state = files.read_state()
        if state is None:
            return None
        if state.protocol != PROTOCOL:
            raise LeapUnavailableError(
                "the model host is of another version of leap", hint="`leap unload --all` ends it"
            )
        return ModelHost(files, state, files.read_token(), variables)

    @staticmethod
    def end_by_force(variables: Mapping[str, str] | None = None) -> bool:
        """End a host that cannot be spoken to, by signals to its process; whether there was one."""
        files = HostFiles.of(Directories.from_environment(variables))
        files.address.unlink(missing_ok=True)  # others may know its token
        state = files.read_state()
        if state is None or not files.is_alive():
            files.remove_stale()
            return False
        from ...system.processes import terminate

        for kill, seconds in ((False, END_SECONDS / 3), (True, END_SECONDS / 3)):
            terminate(state.pid, state.process_started, kill=kill)
            if ModelHost(files, state, "").wait_for_end(seconds):
                files.remove_stale()
                return True
        raise LeapUnavailableError(f"the model host (process {state.pid}) does not end")

    def status(self, timeout: float = STATUS_SECONDS) -> JsonObject:
        """``pid``, ``memory`` (bytes) and ``models``, as ``leap ps`` shows them."""
        return self.ask("GET", "/leap/status", timeout=timeout)

    def load(
        self,
        reference: str,
        on_progress: Callable[[float], object] | None = None,
        cwd: str | None = None,
        **loading: object,
    ) -> JsonObject:
        """Have a model loaded (see ``LoadRequest``) and wait until it is ready; its line of the status.

        ``on_progress`` is called with the seconds that it has taken so far. Raises what loading raised.
        """
        body = {"reference": reference, "cwd": cwd or str(Path.cwd()), **loading}
        with self.open("POST", "/leap/load", body, timeout=END_SECONDS) as answer:
            try:
                for line in answer.lines():
                    message = json.loads(line)
                    if "model" in message:
                        return dict(message["model"])
                    if "error" in message:
                        raise error_from_json(message["error"])
                    if on_progress is not None:
                        on_progress(message["loading"])
            except (OSError, ValueError) as error:
                if isinstance(error, LeapError):
                    raise
        raise self.lost(LeapModelLoadingError, f"while it loaded {reference}")

    def find(self, reference: str, cwd: str | None = None, **loading: object) -> JsonObject | None:
        """``model``, and in what it ``differs`` from what is requested; None when the host does not hold it.

        A model that is just being loaded is waited for.
        """
        body = {"reference": reference, "cwd": cwd or str(Path.cwd()), **loading}
        while True:
            try:
                answer = self.ask("POST", "/leap/find", body)
            except LeapModelNotFoundError:
                return None
            if answer["model"]["state"] != "loading":
                return answer if answer["model"]["state"] == "ready" else None
            time.sleep(LOADING_POLL_SECONDS)

    def unload(self, reference: str | None, cwd: str | None = None) -> list[str]:
        """Have one model unloaded, or all; their names. Returns when their memory is free, and the host gone if it
        held no other. Raises LeapModelNotFoundError."""
        where = cwd or str(Path.cwd())
        body: JsonObject = {"all": True} if reference is None else {"reference": reference, "cwd": where}
        answer = self.ask("POST", "/leap/unload", body, timeout=END_SECONDS)
        if answer["ends"]:
            self.wait_for_end()
        return list(answer["unloaded"])

    def end_if_empty(self) -> None:
        """End the host if it holds no model, and wait until it is gone."""
        if self.ask("POST", "/leap/end", {})["ends"]:
            self.wait_for_end()

    def wait_for_end(self, seconds: float = END_SECONDS) -> bool:
        """Wait until the process is gone, at most so long; whether it is."""
        deadline = time.monotonic() + seconds
        while self._is_there():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _is_there(self) -> bool:
        if self.files.is_alive():
            return self.files.read_state() in (self.state, None)
        from ...system.processes import start_time  # the lock is freed a moment before the process is gone

        started = self.state.process_started
        return started is not None and start_time(self.state.pid) == started

    @property
    def token(self) -> str:
        """What opens the host to other programs of its user, as an API key."""
        return self._token

    def keep_address(self) -> None:
        """Have later hosts of this data directory listen on the same port, where it is free, with the same token."""
        with suppress(OSError):
            write_private(self.files.address, f"{self.state.port} {self._token}")

    def ask(self, method: str, path: str, value: object = None, *, timeout: float = ASK_SECONDS) -> JsonObject:
        """A request with a short answer."""
        try:
            with self.open(method, path, value, timeout=timeout) as answer:
                return dict(answer.json())
        except OSError:
            raise self.lost(LeapUnavailableError) from None

    def open(self, method: str, path: str, value: object = None, *, timeout: float | None) -> HostAnswer:
        """A request whose answer is read as it comes. Raises the error with which it was refused."""
        try:
            answer = send(self.state.port, method, path, self._token, value, timeout=timeout)
        except TimeoutError:
            raise LeapUnavailableError(
                f"the model host (process {self.state.pid}) does not answer", hint="`leap unload --all` ends it"
            ) from None
        except OSError:
            raise self.lost(LeapUnavailableError) from None
        if answer.status == 200 and answer.headers.get(INSTANCE_HEADER.lower()) == self.state.instance:
            return answer
        with answer:
            try:
                written = answer.json()["error"]["leap"]
            except (OSError, KeyError, TypeError, ValueError):
                raise LeapUnavailableError(f"the model host's port {self.state.port} is another program's") from None
        raise error_from_json(written)

    def lost(self, kind: type[LeapError] = LeapGenerationError, when: str = "") -> LeapError:
        """The error to raise when the connection broke: what became of the host. Cleans up behind one that is gone.
        ``when``: in which answer, empty where none had begun."""
        message = "the connection to the model host broke"
        if self.wait_for_end(GONE_SECONDS):
            self.files.remove_stale()
            crashed = bool(when) or self.state.instance in CRASHED  # one that ends in order ends its answers first
            message = "the model host ended unexpectedly" if crashed else "the model host has ended"
        error = kind(f"{message} {when}".strip(), hint=f"its log is {self.files.log}")
        error.host_ended = True
        return error


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
    import subprocess

    process = start_detached(
        "leap_core.server", log=log, directory=files.directory, variables=variables, stdout=subprocess.PIPE
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


def _first_line(out: IO[bytes], process: Popen[bytes]) -> bytes:
    """What the host says when it is ready; empty when it ended without a word."""
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    try:
        return out.readline()
    finally:
        timer.cancel()

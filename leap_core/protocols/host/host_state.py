"""What a host leaves in the run directory of its data directory: address, token, and the lock that says that it lives.

``host.alive`` is a lock that the host holds as long as it lives: the system frees it however the process ends, so a
state file whose lock is free is stale, whatever process has its pid by then. ``host.json`` says where the host listens,
``host.token`` holds the secret that opens it (mode 0600). ``host.starting`` lets one process start a host at a time.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from ...errors import LeapUnavailableError
from ...system.dataclass import dataclass
from ...system.directories import Directories
from ...system.files import replacing
from ...system.locks import Busy, is_locked, locked

PROTOCOL = 3
"""Raised when host and client of different versions of leap would misunderstand each other."""

INSTANCE_HEADER = "X-Leap-Instance"

CRASHED: set[str] = set()
"""Instances whose stale state this process has removed: a host that ends in order removes its own."""


@dataclass(frozen=True)
class HostState:
    """``process_started`` (see ``processes``) distinguishes the host from a later process with its pid. ``instance`` is
    random and repeated in every answer, so that no other program on the port is taken for the host."""

    pid: int
    process_started: str | None
    port: int
    instance: str
    protocol: int = PROTOCOL


@dataclass(frozen=True)
class HostFiles:
    """The paths of one data directory's host."""

    directory: Path
    log: Path

    @staticmethod
    def of(directories: Directories) -> HostFiles:
        return HostFiles(directories.run_path, directories.logs / "host.log")

    @property
    def state(self) -> Path:
        return self.directory / "host.json"

    @property
    def token(self) -> Path:
        return self.directory / "host.token"

    @property
    def alive(self) -> Path:
        return self.directory / "host.alive"

    @property
    def starting(self) -> Path:
        return self.directory / "host.starting"

    @property
    def address(self) -> Path:
        """It holds the port and the token of the hosts to come, for programs that continue using them."""
        return self.directory / "host.address"

    def read_address(self) -> tuple[int, str]:
        """The port and the token of ``address``; 0 and nothing where it is missing, or others could read it."""
        with suppress(OSError, ValueError, LeapUnavailableError):
            _check_private(self.address.lstat(), self.address, 0o077, "the host's kept address")
            port, token = self.address.read_text("ascii").split()
            return int(port), token
        return 0, ""

    def publish(self, state: HostState) -> str:
        """Make the running host known. Returns its token; on OSError nothing is left behind."""
        from secrets import token_urlsafe

        port, token = self.read_address()
        if not token or port != state.port:
            token = token_urlsafe(32)
        try:
            write_private(self.token, token)
            write_private(self.state, json.dumps(asdict(state)))
        except OSError:
            self.withdraw()
            raise
        return token

    def lock_identity(self) -> tuple[int, int] | None:
        """Which file the lock is on now: where it is no longer the one that a host holds, another host may come."""
        with suppress(OSError):
            status = self.alive.stat()
            return status.st_dev, status.st_ino
        return None

    def restore(self, state: HostState, token: str) -> None:
        """Write again what was lost or damaged of what ``publish`` wrote: without it no client finds the host."""
        with suppress(OSError):
            if not self.token.exists():
                write_private(self.token, token)
            if self.read_state() != state:
                write_private(self.state, json.dumps(asdict(state)))

    def withdraw(self) -> None:
        """Remove what ``publish`` wrote."""
        for path in (self.state, self.token):
            with suppress(FileNotFoundError):
                path.unlink()

    def is_alive(self) -> bool:
        """Whether a host runs."""
        return is_locked(self.alive, shared=True)

    def remove_stale(self) -> None:
        """Remove the state of a host that is gone, unless another one has come meanwhile."""
        with suppress(Busy, OSError), locked(self.alive, wait=False):
            if (state := self.read_state()) is not None:
                CRASHED.add(state.instance)
            self.withdraw()

    def read_state(self) -> HostState | None:
        """None where there is none that can be read: a host that is just coming or going."""
        with suppress(OSError, ValueError, TypeError):
            state = HostState(**json.loads(self.state.read_text("utf-8")))
            if all(isinstance(value, int) for value in (state.pid, state.port, state.protocol)):
                return state
        return None

    def read_token(self) -> str:
        """Raises LeapUnavailableError when others could have read or written it, or said where the host listens."""
        try:
            _check_private(self.directory.stat(), self.directory, 0o022, "the host's directory")
            _check_private(self.state.lstat(), self.state, 0o022, "the host's address")
            descriptor = os.open(self.token, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except OSError as error:
            raise LeapUnavailableError(
                f"cannot read {error.filename or self.token}: {error.strerror}",
                hint="`leap unload --all` ends the host, `leap load` starts anew",
            ) from None
        with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
            _check_private(os.fstat(descriptor), self.token, 0o077, "the host's token")
            return file.read().strip()


def _check_private(status: os.stat_result, path: Path, others: int, name: str) -> None:
    """Raises LeapUnavailableError when another user owns this, or has one of the rights ``others``."""
    if sys.platform == "win32":
        return
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid == os.geteuid() and not mode & others:
        return
    owner = "belongs to another user" if status.st_uid != os.geteuid() else f"is open to others (mode {mode:o})"
    raise LeapUnavailableError(
        f"{name} {path} {owner}, so the host is not trusted",
        hint="`leap unload --all` ends the host, `leap load` starts one with a new token",
    )


def write_private(path: Path, text: str) -> None:
    try:
        with replacing(path, mode=0o600) as file:
            file.write(text.encode("ascii"))
    except OSError as error:
        reason = error.strerror or os.strerror(error.errno or errno.EIO)
        raise OSError(error.errno, reason, str(path)) from None

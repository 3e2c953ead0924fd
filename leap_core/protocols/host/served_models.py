"""The servers that `leap serve` runs, as `leap ps` finds them: a file each in the run directory, readable for their
user alone, with the port and a token that opens nothing but the list of models.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from ...schemas.json_values import JsonObject
from ...system.dataclass import dataclass
from ...system.files import replacing
from .host_http import send

STATUS_PATH = "/leap/status"
STATUS_SECONDS = 3.0
FILES = "server-*.json"


@dataclass(frozen=True)
class ServerState:
    """``address`` and ``port``: where the process ``pid`` listens; ``process_started`` is that process's."""

    pid: int
    process_started: str | None
    address: str
    port: int
    token: str

    @staticmethod
    def here(address: str, port: int) -> ServerState:
        """A server in this process, with a new token."""
        from secrets import token_urlsafe

        from ...system.processes import start_time

        pid = os.getpid()
        return ServerState(pid, start_time(pid), address, port, token_urlsafe(24))


def known_server(directory: Path, state: ServerState) -> Path | None:
    """Make a server known in the run directory, and forget those that were killed; its file, None where that cannot be
    written."""
    running_servers(directory)
    path = directory / f"server-{state.pid}.json"
    with suppress(OSError), replacing(path, mode=0o600) as file:
        file.write(json.dumps(asdict(state)).encode("ascii"))
        return path
    return None


def running_servers(directory: Path) -> list[ServerState]:
    """The servers of this run directory. What those left that were killed is removed."""
    from ...system.processes import start_time

    found = []
    for path in sorted(directory.glob(FILES)):
        state = _read(path)
        if state is None:
            continue
        if state.process_started is not None and start_time(state.pid) == state.process_started:
            found.append(state)
            continue
        with suppress(OSError):
            path.unlink()
    return found


def served_models(directory: Path) -> list[JsonObject]:
    """The models that the servers hold, as a host's status has them, each with its server's ``pid`` and ``port``."""
    return [
        {"pid": state.pid, "port": state.port} | model
        for state in running_servers(directory)
        for model in (_status(state) or {"models": []})["models"]
    ]


def served_requests(directory: Path) -> list[JsonObject]:
    """How the last requests to the servers went, each with its server's ``port``."""
    return [
        {"port": state.port} | request
        for state in running_servers(directory)
        for request in (_status(state, "?requests") or {}).get("requests", ())
    ]


def _read(path: Path) -> ServerState | None:
    with suppress(OSError, ValueError, TypeError):
        return ServerState(**json.loads(path.read_text("utf-8")))
    return None


def _status(state: ServerState, query: str = "") -> JsonObject | None:
    """None where the server does not answer: it listens on another address, or is just ending."""
    with suppress(OSError, ValueError, TypeError):
        answer = send(state.port, "GET", STATUS_PATH + query, state.token, timeout=STATUS_SECONDS)
        with answer:
            status = answer.json() if answer.status == 200 else None
        return status if isinstance(status, dict) and isinstance(status.get("models"), list) else None
    return None

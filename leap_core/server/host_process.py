"""The host: one process that holds models and answers for them until it is no longer needed.

It ends when its last model is gone, and on SIGTERM. Its starter reads one line of JSON from its stdout: empty
when it is ready, an ``error`` when it cannot be.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from ..errors import LeapError, LeapUnavailableError
from ..opening import load_as_made, load_local_for_embedding, try_local
from ..protocols.host.host_http import LOOPBACK
from ..protocols.host.host_state import HostFiles, HostState
from ..schemas.json_values import error_to_json
from ..system.directories import Directories
from ..system.locks import locked
from ..system.processes import start_time
from .access import AccessCheck
from .application import Server, build_app, listen, on_signals
from .endpoints.embeddings import EmbedderEndpoints
from .endpoints.generation import GenerationEndpoints
from .endpoints.management import ManagementEndpoints
from .metrics import RequestLog
from .models.loaded_models import LoadedModels

log = logging.getLogger("leap.host")

TICK_SECONDS = 0.25
EMPTY_SECONDS = 2.0
"""How long a host without models waits for one to be loaded."""
PREDECESSOR_SECONDS = 30.0
"""How long a new host waits for one that is ending."""


def main() -> int:
    """``python -m leap_core.server``."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    directories = Directories.from_environment()
    try:
        directories.run  # noqa: B018  (creates it, for this user alone)
        files = HostFiles.of(directories)
        alive = locked(files.alive, while_waiting=_patience(PREDECESSOR_SECONDS))
        alive.__enter__()  # for good: the system frees it when the process is gone, and no earlier
        asyncio.run(_run(files))
    except LeapError as error:
        return _failed(error)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        hint = "free disk space, or set LEAP_HOME to another disk"
        message = f"the model host cannot start: {where}{error.strerror or error}"
        return _failed(LeapUnavailableError(message, hint=hint))
    return 0


async def _run(files: HostFiles) -> None:
    try:
        listener = listen(LOOPBACK, files.read_address()[0])
    except (OSError, OverflowError):  # another program has the port
        listener = listen(LOOPBACK, 0)
    instance = secrets.token_hex(16)
    pid = os.getpid()
    try:
        state = HostState(pid, start_time(pid), listener.getsockname()[1], instance)
        token = files.publish(state)
    except OSError:
        listener.close()
        raise
    try:
        models = LoadedModels(load_as_made, try_local, load_local_for_embedding)
        ending = asyncio.Event()
        answering = GenerationEndpoints(models, own_clients=True)
        management = ManagementEndpoints(models, answering, ending.set)
        app = build_app(models, answering, [*management.routes(), *EmbedderEndpoints(models).routes()])
        server = Server.of(RequestLog(AccessCheck(app, token=token, stamp=instance), answering.metrics))
        on_signals(asyncio.get_running_loop(), ending.set)
        serving = asyncio.create_task(server.serve([listener]))
        _report({})
        log.info("the model host listens, process %d", pid)
        held = files.lock_identity()

        def stay_known() -> None:
            if files.lock_identity() == held:
                files.restore(state, token)
            else:  # the directory was removed: no client can find this host, and another one may come
                ending.set()

        await _until_not_needed(models, management, ending, stay_known)
        files.withdraw()
        await models.close()
        server.end()
        await serving
        log.info("the model host ends")
    finally:
        files.withdraw()


async def _until_not_needed(
    models: LoadedModels, management: ManagementEndpoints, ending: asyncio.Event, on_tick: Callable[[], object]
) -> None:
    while not ending.is_set():
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(ending.wait(), TICK_SECONDS)
        on_tick()
        await models.expire()
        busy = len(models) or management.requests
        if not busy and time.monotonic() - models.last_change > EMPTY_SECONDS:
            return


def _patience(seconds: float) -> Callable[[], None]:
    deadline = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > deadline:
            raise LeapUnavailableError("another model host does not end", hint="leap ps shows its process")

    return check


def _failed(error: LeapError) -> int:
    log.error("%s", error)
    _report({"error": error_to_json(error)})
    return 1


def _report(value: object) -> None:
    """Report to the starting process, once; then stdout is the log too."""
    with suppress(OSError, ValueError):
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        os.dup2(2, 1)

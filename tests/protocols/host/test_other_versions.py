"""A host of another version of leap: its state goes when it is gone; one that runs is passed over, or ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leap_core.errors import LeapUnavailableError
from leap_core.opening import HostUse, open_runner
from leap_core.protocols.host.lookup import end_host
from leap_core.protocols.host.model_host import ModelHost
from leap_core.system.processes import start_time
from leap_core.testing import ScriptedModelRunner


def write_host_files(run: Path, pid: int) -> None:
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = {"pid": pid, "process_started": start_time(pid), "port": 9, "instance": "x" * 22, "protocol": 2}
    for name, text in (("host.token", "t" * 43), ("host.json", json.dumps(state))):
        (run / name).write_text(text)
        (run / name).chmod(0o600)


def test_the_state_of_a_host_that_is_gone_is_removed(leap_home: Path):
    run = leap_home / "run"
    write_host_files(run, os.getpid())
    (run / "host.alive").touch()
    assert ModelHost.running() is None
    assert not (run / "host.json").exists() and not (run / "host.token").exists()


HOST = """
import sys
from pathlib import Path
from leap_core.system.locks import locked
with locked(Path(sys.argv[1])):
    print("alive", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def old_host(leap_home: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of a host with another protocol."""
    run = leap_home / "run"
    run.mkdir(mode=0o700, parents=True)
    command = [sys.executable, "-c", HOST, str(run / "host.alive")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "alive\n"
        write_host_files(run, process.pid)
        yield process
        process.kill()


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="ends a process by signals")
def test_a_host_that_still_runs_is_passed_over_and_can_be_ended(leap_home: Path, old_host: subprocess.Popen[str]):
    with pytest.raises(LeapUnavailableError, match="another version of leap") as caught:
        open_runner("builtin", host=HostUse.DEMAND)
    assert caught.value.hint == "`leap unload --all` ends it"
    warnings: list[str] = []
    here = ScriptedModelRunner([])
    assert open_runner("builtin", on_warning=warnings.append, load=lambda *_: here) is here
    assert len(warnings) == 1 and "another version of leap" in warnings[0] and old_host.poll() is None

    ending = end_host()
    assert ending.models == () and "another version of leap" in str(ending.forced_because)
    assert old_host.wait(60) in (-signal.SIGTERM, -signal.SIGKILL)
    assert not (leap_home / "run" / "host.json").exists() and ModelHost.running() is None

"""What a host leaves in the run directory, and whom it is kept from."""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading

import pytest

from leap_core import LeapGenerationError, LeapModelLoadingError, LeapUnavailableError
from leap_core.protocols.host.host_state import HostFiles, HostState
from leap_core.protocols.host.model_host import ModelHost
from leap_core.system.directories import Directories
from leap_core.system.locks import locked
from leap_core.system.processes import start_time, terminate


@pytest.fixture
def files(leap_home):
    Directories.from_environment().run  # noqa: B018
    return HostFiles.of(Directories.from_environment())


def state(**given):
    return HostState(**({"pid": os.getpid(), "process_started": "then", "port": 9, "instance": "i"} | given))


def test_state_and_token_are_private_and_read_back(files):
    token = files.publish(state())
    assert files.read_state() == state() and files.read_token() == token and len(token) > 40
    if os.name == "posix":
        assert [stat.S_IMODE(path.stat().st_mode) for path in (files.directory, files.state, files.token)] == [
            0o700,
            0o600,
            0o600,
        ]
    assert files.publish(state()) != token, "every host has its own"
    files.withdraw()
    assert list(files.directory.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_token_that_others_can_touch_is_not_used(files, mode):
    files.publish(state())
    files.token.chmod(mode)
    with (
        locked(files.alive),
        pytest.raises(LeapUnavailableError, match=rf"is open to others \(mode {mode:o}\)") as caught,
    ):
        ModelHost.running()
    assert "leap unload --all" in caught.value.hint


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("name", ["directory", "state"])
def test_the_token_goes_nowhere_where_others_can_say_who_is_the_host(files, name):
    files.publish(state())
    getattr(files, name).chmod(0o777)
    with locked(files.alive), pytest.raises(LeapUnavailableError, match="is open to others .* is not trusted"):
        ModelHost.running()


def test_lost_or_damaged_state_is_rewritten(files):
    token = files.publish(state())
    for harm in (files.state.unlink, files.token.unlink, lambda: files.state.write_text("{")):
        harm()
        files.restore(state(), token)
        assert (files.read_state(), files.read_token()) == (state(), token)


def test_a_link_in_place_of_the_token_is_not_followed(files, tmp_path):
    files.publish(state())
    files.token.unlink()
    (tmp_path / "other").write_text("token")
    files.token.symlink_to(tmp_path / "other")
    with pytest.raises(LeapUnavailableError, match="cannot read"):
        files.read_token()


def test_without_its_lock_a_state_is_stale_whoever_has_its_pid(files):
    files.publish(state(process_started=start_time(os.getpid())))
    assert ModelHost.running() is None
    assert sorted(path.name for path in files.directory.iterdir()) in ([], ["host.alive"])


def test_checks_of_the_lock_are_not_taken_for_a_host(files):
    files.publish(state())
    with locked(files.alive, shared=True):
        assert not files.is_alive()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"pid": "x"}', '{"pid": 1, "more": 2}'])
def test_an_unreadable_state_counts_as_none(files, text):
    files.state.write_text(text)
    assert files.read_state() is None
    with locked(files.alive):
        assert ModelHost.running() is None


def test_a_host_of_another_version_is_refused(files):
    files.publish(state(protocol=99))
    with locked(files.alive), pytest.raises(LeapUnavailableError, match="another version"):
        ModelHost.running()


def test_a_process_that_reuses_a_pid_is_not_killed():
    assert not terminate(os.getpid(), "another time")
    assert not terminate(os.getpid(), None)
    if sys.platform.startswith("linux"):
        assert start_time(os.getpid()) == start_time(os.getpid()) != start_time(1)
        assert start_time(2**22 + 1) is None


@pytest.fixture
def port_that_says():
    """A program that answers one request with these bytes."""
    others = []

    def listen(said: bytes) -> int:
        other = socket.create_server(("127.0.0.1", 0))

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        others.append((other, thread))
        return other.getsockname()[1]

    yield listen
    for other, thread in others:
        thread.join(100)
        other.close()


OK = b"HTTP/1.0 200 OK\r\n"


@pytest.mark.slow
@pytest.mark.parametrize("said", [OK + b"\r\n{}", OK + b"X-Leap-Instance: j\r\n\r\n{}", b"SSH-2.0-x\r\n", b""])
def test_a_host_is_told_from_another_program(files, port_that_says, said):
    files.publish(state(port=port_that_says(said)))
    message = "another program's" if said.startswith(OK) else "connection to the model host broke"
    with locked(files.alive), pytest.raises(LeapUnavailableError, match=message):
        ModelHost.running().status()


@pytest.mark.slow
def test_an_answer_that_is_cut_off(files, port_that_says):
    files.publish(state(port=port_that_says(OK + b'X-Leap-Instance: i\r\n\r\n{"pid": 3')))
    with locked(files.alive), pytest.raises(LeapUnavailableError, match="connection to the model host broke"):
        ModelHost.running().status()


def test_a_host_that_ends_while_it_loads(files, port_that_says):
    said = OK + b'X-Leap-Instance: i\r\n\r\n{"loading": 0.5}\n'
    files.publish(state(port=port_that_says(said)))
    with locked(files.alive):
        host = ModelHost.running()
    seen = []
    with pytest.raises(LeapModelLoadingError, match="ended unexpectedly while it loaded bad.gguf"):
        host.load("bad.gguf", seen.append)
    assert seen == [0.5] and not files.state.exists() and not files.token.exists()


@pytest.mark.parametrize("when", ["", "during the generation"])
def test_a_crash_is_named_also_where_another_thread_has_removed_the_state(files, when):
    files.publish(state(instance=f"crashed {when}"))
    with locked(files.alive):
        host = ModelHost.running()
    assert ModelHost.running() is None, "another thread looks for a host first"
    assert "ended unexpectedly" in host.lost(LeapGenerationError, when).message


def test_a_crash_within_an_answer_is_named_also_where_another_process_has_removed_the_state(files):
    files.publish(state(instance="withdrawn"))
    with locked(files.alive):
        host = ModelHost.running()
    files.withdraw()
    assert "ended unexpectedly" in host.lost(LeapGenerationError, "during the generation").message
    assert host.lost(LeapUnavailableError).message == "the model host has ended"


@pytest.mark.slow
def test_a_state_without_a_process_is_stale(files, port_that_says):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    files.publish(state(port=port))
    with locked(files.alive), pytest.raises(LeapUnavailableError, match="connection to the model host broke"):
        ModelHost.running().status()

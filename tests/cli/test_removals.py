"""What destroys wants a whole name: the beginning of one is asked about at a terminal, and refused elsewhere."""

from __future__ import annotations

import pytest

from jobs.client import JobsClient
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.sessions import SessionStore
from leap_core.models.store import Store
from leap_core.system.directories import Directories
from tests.support.random_models import write_random_model

BEGINNINGS = {"models": "smol"}


@pytest.fixture
def kept(leap, leap_home, tmp_path):
    """Something of each kind that is removed by name: its whole name, and whether it is still there, by the command."""
    for name in ("SmolLM2-135M-Q4_1", "Tuned-F16", "Tuned-Q4_0"):
        write_random_model(tmp_path / f"{name}.gguf")
        assert leap("models", "import", f"{name}.gguf").code == 0
    with SessionStore(Directories.from_environment({"LEAP_HOME": str(leap_home)}).sessions_file) as store:
        session = store.create(model="model").id
        store.append(session, ChatMessage("user", "Hi"))
    variables = {"LEAP_HOME": str(leap_home)}
    with JobsClient(variables, autostart=False) as jobs:
        job = jobs.generate("Hi", model="builtin")
        jobs.cancel(job, wait=False)

    def is_there(command: str) -> bool:
        if command == "models":
            return Store.of(Directories.from_environment(variables)).find("SmolLM2-135M-Q4_1") is not None
        if command == "jobs":
            with JobsClient(variables, autostart=False) as jobs:
                return bool(jobs.list())
        with SessionStore(Directories.from_environment({"LEAP_HOME": str(leap_home)}).sessions_file) as store:
            return bool(store.list())

    return {"models": "SmolLM2-135M-Q4_1", "sessions": session, "jobs": job}, is_there


@pytest.mark.parametrize("command", ["models", "sessions", "jobs"])
def test_a_prefix_of_a_name_alone_removes_nothing(leap, kept, command):
    names, is_there = kept
    name = names[command]
    for beginning in (name[:1], BEGINNINGS.get(command, name[:-1])):
        done = leap(command, "remove", beginning)
        assert (done.code, done.stdout) == (2, "") and name in done.stderr and "--yes" in done.stderr
        done = leap(command, "remove", beginning, stdin="n\n", terminal=True, stdin_terminal=True)
        assert done.code == 0 and is_there(command)
    assert leap(command, "remove", beginning, stdin="y\n", terminal=True, stdin_terminal=True).code == 0
    assert not is_there(command)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["models", "sessions", "jobs"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_full_name_and_yes_ask_no_question(leap, kept, command, whole):
    names, is_there = kept
    given = [names[command]] if whole else [BEGINNINGS.get(command, names[command][:-1]), "--yes"]
    assert leap(command, "remove", *given).code == 0
    assert not is_there(command)


def test_an_ambiguous_name_lists_all_models_and_removes_none(leap, kept, leap_home):
    done = leap("models", "remove", "Tuned", "--yes")
    assert done.code == 2 and "Tuned-F16 and Tuned-Q4_0" in done.stderr
    assert len(Store.of(Directories.from_environment({"LEAP_HOME": str(leap_home)})).installed()) == 3

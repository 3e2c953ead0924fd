"""What the tests of the command line share."""

from __future__ import annotations

import pytest

from leap_core.conversation.sessions import SessionStore


@pytest.fixture
def talk(leap):
    """Type these lines at the prompt."""

    def type_lines(*lines: str, arguments: tuple[str, ...] = ()):
        done = leap("chat", "-m", "some", *arguments, stdin="".join(f"{line}\n" for line in lines), stdin_terminal=True)
        assert done.code == 0, done
        return done

    return type_lines


@pytest.fixture
def kept(leap_home):
    """The last session's messages, as role and text."""

    def read() -> list[tuple[str, str]]:
        with SessionStore(leap_home / "leap.db") as store:
            session = store.latest()
            return [] if session is None else [(m.role.value, m.text) for m in store.history(session.id)]

    return read

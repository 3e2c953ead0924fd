"""Calls that a model writes in its own dialect, on the command line: they run, and their results go back."""

from __future__ import annotations

import pytest

from ..conversation.calls.dialect_cases import CASES, TOKENS, Case
from ..support.raw_replies import RawReplyRunner

TOOLS = '''
def book_table(restaurant: str, guests: int) -> str:
    """Books a table.

    Args:
      restaurant: where
      guests: how many
    """
    return f"{restaurant}: {guests + 1} chairs"


def ping() -> str:
    """Answers."""
    return "pong"
'''


QUICK = {"lfm", "hermes"}
"""Of these dialects calls run by default, too: each call is a process."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.dialect, marks=[pytest.mark.long] if case.dialect not in QUICK else [])
        for case in CASES
        if case.about == "two calls"
    ],
)
def test_calls_of_a_dialect_run(leap, case: Case):
    (leap.home.parent / "tools.py").write_text(TOOLS)
    leap.runner = runner = RawReplyRunner(case.dialect, TOKENS.get(case.dialect, ()), case.reply, "Booked.")
    allowed = ("--allow-tool", "book_table", "--allow-tool", "ping")
    done = leap("generate", "-m", "some", "--tools-file", "tools.py", *allowed, "A table for four.")
    assert (done.code, done.stdout, done.stderr) == (0, "Booked.\n", "")
    assert [message.text for message in runner.requests[1].messages[-2:]] == ["Da Enzo: 5 chairs", "pong"]

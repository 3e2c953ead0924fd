"""Replies in every dialect, whole and token by token, through all that reads a reply."""

from __future__ import annotations

import pytest

from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.responses import Chunk, Complete, ReasoningChunk

from ...support.raw_replies import read_reply
from ...support.tables import check_each
from .dialect_cases import CASES, FUNCTIONS, TOKENS, TWO, WRITERS, Case


def read(case: Case, *, letters: bool) -> tuple[list, str, str, int]:
    """Calls, text, reasoning and the number of warnings."""
    options = GenerationOptions(enable_thinking=True)
    special = TOKENS.get(case.dialect, ())
    *rest, complete = read_reply(case.dialect, special, case.reply, FUNCTIONS, options, letters=letters)
    assert isinstance(complete, Complete)
    message = complete.full_message
    assert message.text == "".join(each.text for each in rest if isinstance(each, Chunk))
    thought = "".join(each.reasoning for each in rest if isinstance(each, ReasoningChunk))
    calls = [(call.name, dict(call.arguments)) for call in message.function_calls or ()]
    return calls, message.text, thought, len(complete.warnings)


def test_there_are_many_cases():
    assert len(CASES) >= 400 and {case.dialect for case in CASES} == TOKENS.keys() | {case.dialect for case in CASES}


@pytest.mark.slow
@pytest.mark.parametrize("letters", [False, True], ids=["whole", "letters"])
@pytest.mark.parametrize("dialect", dict.fromkeys(case.dialect for case in CASES))
def test_replies_are_read_as_expected(dialect: str, letters: bool):
    def check(case: Case) -> None:
        calls, text, reasoning, warnings = read(case, letters=letters)
        assert (calls, reasoning.strip(), bool(warnings)) == (case.calls, case.reasoning, case.said)
        assert text.strip() if case.text is None else text.strip() == case.text

    of_dialect = [case for case in CASES if case.dialect == dialect]
    check_each(of_dialect, check, lambda case: f"{case.about}: {case.reply!r}")


@pytest.mark.parametrize("letters", [False, True], ids=["whole", "letters"])
@pytest.mark.parametrize("dialect", WRITERS)
def test_whitespace_around_calls_is_not_text(dialect: str, letters: bool):
    written = WRITERS[dialect](TWO)
    for reply in (f"\n\n{written}", f"{written}\n \n", "\n\n".join(WRITERS[dialect]([call]) for call in TWO)):
        calls, text, _, warnings = read(Case(dialect, "", reply), letters=letters)
        assert (calls, text, warnings) == (TWO, "", 0), reply
    assert read(Case(dialect, "", "\n \n"), letters=letters)[:2] == ([], "\n \n")

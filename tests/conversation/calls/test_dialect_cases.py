"""Replies in every dialect, whole and token by token, through all that reads a reply."""

from __future__ import annotations

import re

import pytest

from leap_core.conversation.calls import parser_named
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.responses import Chunk, GenerationFinishReason, ReasoningChunk
from leap_core.errors import GenerationStats
from leap_core.inference.template.reply import ReplyBuilder

from .dialect_cases import CASES, FUNCTIONS, TOKENS, Case

STATS = GenerationStats(1, 1, 2, 0.0)
THINK = ("<think>", "</think>")


class Tokens:
    """A vocabulary of the special tokens of a dialect, and of whatever pieces a reply is cut into."""

    def __init__(self, special: tuple[str, ...]) -> None:
        self.pieces = list(special)
        self.special_tokens = {text: number for number, text in enumerate(special)}
        self.control_tokens = frozenset(self.special_tokens.values())

    def piece(self, token: int) -> bytes:
        return self.pieces[token].encode()

    def cut(self, reply: str, *, letters: bool) -> list[int]:
        """The tokens of a reply: special ones whole, the rest in one piece or in letters."""
        known = "|".join(map(re.escape, self.special_tokens))
        found: list[int] = []
        for part in re.split(f"({known})", reply) if known else [reply]:
            if part in self.special_tokens:
                found.append(self.special_tokens[part])
                continue
            for piece in list(part) if letters else [part]:
                self.pieces.append(piece)
                found.append(len(self.pieces) - 1)
        return found


def read(case: Case, *, letters: bool) -> tuple[list, str, str, int]:
    """Calls, text, reasoning and the number of warnings."""
    vocabulary = Tokens((*TOKENS.get(case.dialect, ()), *THINK))
    reply = ReplyBuilder(
        vocabulary, GenerationOptions(enable_thinking=True), parser_named(case.dialect), functions=FUNCTIONS
    )
    found = [each for token in vocabulary.cut(case.reply, letters=letters) for each in reply.feed(token)]
    *rest, complete = found + reply.finish(GenerationFinishReason.STOP, STATS)
    message = complete.full_message
    assert message.text == "".join(each.text for each in rest if isinstance(each, Chunk))
    thought = "".join(each.reasoning for each in rest if isinstance(each, ReasoningChunk))
    calls = [(call.name, dict(call.arguments)) for call in message.function_calls or ()]
    return calls, message.text, thought, len(complete.warnings)


def test_the_cases_are_many():
    assert len(CASES) >= 400 and {case.dialect for case in CASES} == TOKENS.keys() | {case.dialect for case in CASES}


@pytest.mark.parametrize("letters", [False, True], ids=["whole", "letters"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.dialect}: {case.about}: {case.reply[:40]!r}")
def test_a_reply(case: Case, letters: bool):
    calls, text, reasoning, warnings = read(case, letters=letters)
    assert (calls, reasoning.strip(), bool(warnings)) == (case.calls, case.reasoning, case.said)
    assert text.strip() if case.text is None else text.strip() == case.text

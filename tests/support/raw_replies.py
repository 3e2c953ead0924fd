"""A scripted model whose replies are the text that a model writes: leap reads them as it reads a real model's."""

from __future__ import annotations

import re
from collections.abc import Sequence

from leap_core.conversation.calls import LeapFunction, parser_named
from leap_core.conversation.generator import Functions, Generation, MaybeOptions, Messages
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.responses import GenerationFinishReason, MessageResponse
from leap_core.errors import GenerationStats
from leap_core.inference.template.reply import ReplyBuilder
from leap_core.testing import ScriptedModelRunner

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


def read_reply(
    dialect: str,
    special: tuple[str, ...],
    reply: str,
    functions: Sequence[LeapFunction],
    options: GenerationOptions | None = None,
    *,
    letters: bool = True,
) -> list[MessageResponse]:
    """What the engine's reader of replies makes of it; Complete is the last."""
    vocabulary = Tokens((*special, *THINK))
    builder = ReplyBuilder(vocabulary, options or GenerationOptions(), parser_named(dialect), functions=functions)
    found = [each for token in vocabulary.cut(reply, letters=letters) for each in builder.feed(token)]
    return found + builder.finish(GenerationFinishReason.STOP, STATS)


class RawReplyRunner(ScriptedModelRunner):
    """Answers each request with the next of these texts, letter by letter, read with the functions of the request."""

    def __init__(self, dialect: str, special: tuple[str, ...], *replies: str) -> None:
        super().__init__(model_id="builtin")
        self._dialect, self._special, self._replies = dialect, special, list(replies)

    def start(self, messages: Messages, functions: Functions = (), options: MaybeOptions = None) -> Generation:
        self.add(read_reply(self._dialect, self._special, self._replies.pop(0), tuple(functions), options))
        return super().start(messages, functions, options)

"""Replies that consist of messages to recipients.

The channels of gpt-oss replies (OpenAI's harmony format) are reasoning, text and calls as separate messages.

``<|channel|>analysis<|message|>…<|end|>`` is reasoning, ``<|channel|>final<|message|>…<|return|>`` the answer, and
``<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>`` a call. A message may begin with
``<|start|>assistant``; the prompt holds the first one's.

functionary 3.2 writes ``>>>all`` in a line before text, and ``>>>NAME`` in a line before the arguments of a call; the
prompt holds the first ``>>>``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Literal

from ...conversation.calls.dialects import CHANNELS, RECIPIENTS

SPEAKERS = ("assistant", "user", "all")
RECIPIENT = re.compile(r"\bto=(functions\.)?([\w.-]+)")
TOKENS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>")
Kind = Literal["text", "reasoning", "warning"]
Piece = tuple[Kind, str]


class ChannelReader:
    """Takes the tokens of a reply and gives its text and reasoning; a call is text between the dialect's markers."""

    def __init__(
        self, special_tokens: Mapping[str, int], control_tokens: Collection[int], declared: Collection[str] = ()
    ) -> None:
        self._hidden = control_tokens
        self._declared = declared
        self._names = {special_tokens[name]: name for name in TOKENS if name in special_tokens}
        self._header: str | None = ""
        self._has_channels = False
        self._kind: Literal["text", "reasoning", "call", "nothing"] = "text"

    def feed(self, token: int, text: str) -> list[Piece]:
        """The pieces that a token completes; ``text`` is its own, where it is no token of the format."""
        name = self._names.get(token)
        if name is None:
            if token in self._hidden and self._kind != "call":
                return []
            if self._header is None:
                kind: Kind = "reasoning" if self._kind == "reasoning" else "text"
                return [(kind, text)] if text and self._kind != "nothing" else []
            self._header += text
            if self._is_text(self._header):
                header, self._header = self._header, None  # a reply without channels, as a grammar has it written
                return [("text", header)]
            return []
        self._has_channels = True
        if name == "<|message|>":
            return self._begin()
        if name in ("<|channel|>", "<|constrain|>"):
            self._header = f"{self._header or ''}{name}"
            return []
        pieces = self._end()
        self._header = "<|start|>"
        return pieces

    def finish(self) -> list[Piece]:
        """What is left when the reply has ended: the end of a call, or a text that might have been a header."""
        header, self._header = self._header or "", None
        return self._end() + ([("text", header)] if header and not self._has_channels else [])

    def _is_text(self, header: str) -> bool:
        """Whether a header that has no channel yet cannot be one: `` to=NAME`` may come before the channel."""
        return bool(header) and not self._has_channels and header[:4] != " to="[: len(header)]

    def _begin(self) -> list[Piece]:
        header, self._header = self._header or "", None
        recipient = RECIPIENT.search(header)
        channel = header.rpartition("<|channel|>")[2].lstrip()
        is_thought = channel.startswith("analysis")
        if recipient is None or recipient[2] in SPEAKERS:
            self._kind = "reasoning" if is_thought else "text"
            return []
        if recipient[1] or recipient[2] in self._declared:
            self._kind = "call"
            return [("text", f'{CHANNELS.start}{{"name": {json.dumps(recipient[2])}, "arguments": ')]
        self._kind = "nothing"
        return [("warning", f"a call of {recipient[2]}, which is not declared, is left out")]

    def _end(self) -> list[Piece]:
        kind, self._kind = self._kind, "text"
        return [("text", "}" + CHANNELS.end)] if kind == "call" else []


HEADER = re.compile(r">>>(?:(all|python)\n|([\w.-]{1,64})\n(?=\s{0,20}\{))")
HEADER_BEGUN = re.compile(r"(?:>{1,2}|>>>[\w.-]{0,64}(?:\n\s{0,20})?)\Z")
LONGEST_HEADER = 90
NEXT = ">>>"


class RecipientReader:
    """Takes the tokens of a functionary reply and gives its text; a call is ``NAME\\n{…}`` between the dialect's
    markers."""

    def __init__(
        self, special_tokens: Mapping[str, int], control_tokens: Collection[int], declared: Collection[str] = ()
    ) -> None:
        self._hidden = control_tokens
        self._held = ""
        self._added = 0
        self._is_first = True
        self._in_call = False

    def feed(self, token: int, text: str) -> list[Piece]:
        """The pieces that a token completes."""
        if token in self._hidden and not self._in_call:
            return []
        self._held += text
        return self._pieces(final=False)

    def finish(self) -> list[Piece]:
        """What is left when the reply has ended."""
        return [*self._pieces(final=True), *self._end()]

    def _pieces(self, *, final: bool) -> list[Piece]:
        pieces: list[Piece] = []
        if self._is_first and self._held:
            self._is_first = False
            self._added = 0 if self._held.startswith(">") else len(NEXT)
            self._held = NEXT[: self._added] + self._held
        while (header := HEADER.search(self._held)) is not None:
            pieces += [*self._text(self._held[: header.start()]), *self._end()]
            self._held, self._added = self._held[header.end() :], 0
            if header[1] != "all":
                self._in_call = True
                pieces.append(("text", f"{RECIPIENTS.start}{header[1] or header[2]}\n"))
        begun = None if final else HEADER_BEGUN.search(self._held, max(0, len(self._held) - LONGEST_HEADER))
        end = len(self._held) if begun is None else begun.start()
        pieces += self._text(self._held[:end])
        self._held = self._held[end:]
        return pieces

    def _text(self, text: str) -> list[Piece]:
        text, self._added = text[self._added :], 0 if text else self._added
        return [("text", text)] if text else []

    def _end(self) -> list[Piece]:
        in_call, self._in_call = self._in_call, False
        return [("text", RECIPIENTS.end)] if in_call else []


Reader = Callable[[Mapping[str, int], Collection[int], Collection[str]], ChannelReader | RecipientReader]
READERS: dict[str, Reader] = {
    CHANNELS.name: ChannelReader,
    RECIPIENTS.name: RecipientReader,
}
"""By dialect: what takes the tokens of its replies."""

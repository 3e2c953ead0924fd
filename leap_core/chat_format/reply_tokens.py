"""The tokens of recent replies, so that a conversation that goes on is read back as it was written.

A text can be cut into tokens in several ways, and a model does not always write the way its tokenizer reads. Read back
differently, a reply would not match what the engine's memory holds, and would be computed again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence

MOST_REPLIES = 64
Piece = str | bytes
"""A prompt consists of these: text, or the content key of a picture or a sound."""


class ReplyMemory:
    """Prompts with their replies, newest last. Prompts are the pieces of text that ``ChatTemplate.render`` gives: two
    prompts with cuts at different places are different, because a special token that a user typed is cut there.

    ``special_texts``: the texts of special tokens. Any thread may call.
    """

    def __init__(self, special_texts: Collection[str]) -> None:
        self._special = tuple(special_texts)
        self._guard = threading.Lock()
        self._known: OrderedDict[tuple[Piece, ...], tuple[int, ...]] = OrderedDict()

    def keep(self, pieces: Sequence[Piece], reply: str, ids: Sequence[int], special: int = 0) -> None:
        """``ids`` are the tokens of the prompt ``pieces`` and of its ``reply``, ``special`` of which are special, such
        as the markers of calls. A reply that spells another special token in plain text is not kept: read back, a
        template may make one of it, or cut the text there."""
        last = pieces[-1] if pieces else b""
        if not isinstance(last, str) or not reply or sum(map(reply.count, self._special)) != special:
            return
        key = (*pieces[:-1], last + reply)
        with self._guard:
            self._known[key] = tuple(ids)
            self._known.move_to_end(key)
            while len(self._known) > MOST_REPLIES:
                self._known.popitem(last=False)

    def beginning(self, pieces: Sequence[Piece]) -> tuple[tuple[int, ...], list[Piece]]:
        """The tokens of the longest known beginning of ``pieces``, and what is left of them. A beginning ends where a
        special token follows, because no token reaches across that."""
        best: tuple[tuple[int, ...], list[Piece]] = ((), list(pieces))
        with self._guard:
            replies = list(self._known.items())
        for key, ids in replies:
            last = len(key) - 1
            if len(ids) <= len(best[0]) or len(pieces) <= last or tuple(pieces[:last]) != key[:last]:
                continue
            text, start = pieces[last], key[last]
            if not isinstance(text, str) or not isinstance(start, str) or not text.startswith(start):
                continue
            rest = text[len(start) :]
            if rest.startswith(self._special):
                best = ids, [rest, *pieces[last + 1 :]]
        return best

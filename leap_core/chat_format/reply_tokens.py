"""The tokens of recent replies, so that a conversation that goes on is read back as it was written.

A text can be cut into tokens in several ways, and a model does not always write the way its tokenizer reads. Read back
differently, a reply would not match what the engine's memory holds, and would be computed again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence

MOST_REPLIES = 64


class ReplyMemory:
    """Prompts with their replies, newest last. Prompts are the pieces of text that ``ChatTemplate.render`` gives: two
    prompts with cuts at different places are different, because a special token that somebody typed is cut there.

    ``special_texts``: the texts of special tokens. Any thread may call.
    """

    def __init__(self, special_texts: Collection[str]) -> None:
        self._special = tuple(special_texts)
        self._guard = threading.Lock()
        self._known: OrderedDict[tuple[str, ...], tuple[int, ...]] = OrderedDict()

    def keep(self, pieces: Sequence[str], reply: str, ids: Sequence[int]) -> None:
        """``ids`` are the tokens of the prompt ``pieces`` and of its ``reply``. A reply with the text of a special
        token in it is not kept: read back, that is no special token."""
        if not pieces or not reply or any(text in reply for text in self._special):
            return
        key = (*pieces[:-1], pieces[-1] + reply)
        with self._guard:
            self._known[key] = tuple(ids)
            self._known.move_to_end(key)
            while len(self._known) > MOST_REPLIES:
                self._known.popitem(last=False)

    def beginning(self, pieces: Sequence[str]) -> tuple[tuple[int, ...], list[str]]:
        """The tokens of the longest known beginning of ``pieces``, and what is left of them. A beginning ends where a
        special token follows, because no token reaches across that."""
        best: tuple[tuple[int, ...], list[str]] = ((), list(pieces))
        with self._guard:
            known = list(self._known.items())
        for key, ids in known:
            last = len(key) - 1
            if len(ids) <= len(best[0]) or len(pieces) <= last or tuple(pieces[:last]) != key[:last]:
                continue
            rest = pieces[last][len(key[last]) :]
            if pieces[last].startswith(key[last]) and rest.startswith(self._special):
                best = ids, [rest, *pieces[last + 1 :]]
        return best

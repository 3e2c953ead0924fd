"""One fenced block of an answer in place of the whole, for ``--extract``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from leap_core.runner.streams import PassingStream, Stream

if TYPE_CHECKING:
    from leap_core.responses import Complete, MessageResponse

BLOCK = re.compile(r"^[ ]{0,3}(`{3,}|~{3,})[^\n]*\n(.*?)^[ ]{0,3}\1[`~]*[ ]*$", re.MULTILINE | re.DOTALL)
"""A block of CommonMark: a fence with an info string, lines, and a fence of the same sign that is no shorter."""


class FencedBlock(PassingStream):
    """The stream of an answer with the content of its first fenced block, or of the last one, in place of its text. An
    answer without such a block stays whole, with a warning."""

    def __init__(self, stream: Stream, *, last: bool = False) -> None:
        super().__init__(stream)
        self._last = last
        self._complete: Complete | None = None

    def __next__(self) -> MessageResponse:
        from leap_core.messages import Text
        from leap_core.responses import Chunk, Complete

        if self._complete is not None:
            complete, self._complete = self._complete, None
            return complete
        response = super().__next__()
        while isinstance(response, Chunk):
            response = super().__next__()
        if not isinstance(response, Complete):
            return response
        blocks = [match[2] for match in BLOCK.finditer(response.full_message.text)]
        if not blocks:
            self._complete = replace(response, warnings=(*response.warnings, "the answer has no fenced block"))
            return Chunk(response.full_message.text)
        block = blocks[-1 if self._last else 0]
        self._complete = replace(response, full_message=replace(response.full_message, content=(Text(block),)))
        return Chunk(block)

"""An answer's reasoning in place of its text, for ``--think only``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from leap_core.runner.streams import PassingStream

if TYPE_CHECKING:
    from leap_core.responses import MessageResponse


class ReasoningOnly(PassingStream):
    """The stream of an answer with its reasoning in place of its text."""

    def __next__(self) -> MessageResponse:
        from leap_core.messages import ChatMessage
        from leap_core.responses import Chunk, Complete, FunctionCalls, ReasoningChunk

        response = super().__next__()
        while isinstance(response, (Chunk, FunctionCalls)):
            response = super().__next__()
        if isinstance(response, ReasoningChunk):
            return Chunk(response.reasoning)
        if not isinstance(response, Complete):
            return response
        reasoning = response.full_message.reasoning_content or ""
        warnings = response.warnings if reasoning else (*response.warnings, "the model gave no reasoning")
        return replace(response, full_message=ChatMessage("assistant", reasoning), warnings=warnings)

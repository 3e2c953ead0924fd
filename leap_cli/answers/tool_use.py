"""Answers in which tools run: the stream with calls and results, how they are shown, and whether the user said no."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leap_core.responses import FunctionResult, MessageResponse
from leap_core.runner.streams import PassingStream, Stream

from .show import Calls

if TYPE_CHECKING:
    from leap_core.messages import ChatMessage
    from leap_core.options import GenerationOptions
    from leap_core.runner.conversation import Conversation

    from ..options.tool_options import Tools


def shown_calls(tools: Tools, *, always: bool = False) -> Calls | None:
    """How calls are shown: None, as the answer, where some tools are only declared. ``always``: also where the user did
    not ask to see them, as at the terminal of a conversation."""
    runnable = tools.functions and all(function.call is not None for function in tools.functions)
    return Calls(tools.show_calls or always) if runnable else None


def respond(
    tools: Tools, conversation: Conversation, message: ChatMessage | str | None, options: GenerationOptions
) -> Stream:
    """The answer to ``message``, or to the history as it is, with the calls that it takes."""
    if not tools.functions:
        return conversation.generate_response(message, options)
    from leap_core.tools.run import run_functions

    assert tools.policy is not None
    return run_functions(conversation, tools.policy, message, options)


class RefusalNote(PassingStream):
    """Passes an answer on and notes whether the user refused a call in it."""

    refused = False

    def __next__(self) -> MessageResponse:
        response = super().__next__()
        if isinstance(response, FunctionResult):
            self.refused = self.refused or response.refused
        return response

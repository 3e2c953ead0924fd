"""The turns of ``leap chat``: a line in, an answer out."""

from __future__ import annotations

from leap_core.conversation import Conversation
from leap_core.errors import LeapGenerationError, LeapToolError
from leap_core.options import GenerationOptions

from .answer import show_answer
from .environment import Environment
from .lines import read_lines
from .output import Output
from .session_flags import SessionLog
from .tool_flags import Tools

WELCOME = "Ctrl-C stops an answer, Ctrl-D leaves"


def hold_dialogue(
    conversation: Conversation,
    env: Environment,
    output: Output,
    options: GenerationOptions,
    *,
    streaming: bool,
    show_stats: bool,
    show_thinking: bool,
    tools: Tools,
    session: SessionLog,
) -> None:
    """Answer line after line until the input ends.

    Whoever types stays in the conversation when a turn fails: its history is as it was. From a pipe the error ends the
    command, because nobody is there to say the next thing differently.
    """
    if env.stdin_is_terminal:
        output.note(WELCOME)
    for line in read_lines(env):
        try:
            show_answer(
                session.keeping(tools.respond(conversation, line, options), conversation, line),
                output,
                model=conversation.model_runner.model_id,
                streaming=streaming,
                show_thinking=show_thinking,
                show_stats=show_stats,
                calls=tools.calls(),
            )
        except (LeapGenerationError, LeapToolError) as error:
            if not env.stdin_is_terminal:
                raise
            output.error(error.message, error.hint)

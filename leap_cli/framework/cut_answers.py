"""What is said of an answer that was cut short, where it is made and in the log of its job."""

from __future__ import annotations

from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.responses import GenerationFinishReason

from .output import Output

CUT_SHORT = {
    GenerationFinishReason.MAX_TOKENS: "the answer was cut at --max-tokens",
    GenerationFinishReason.EXCEED_CONTEXT: "the answer was cut because the context is full (--context-size)",
}


def note_cut(reason: GenerationFinishReason, message: ChatMessage, output: Output) -> None:
    """Say that an answer was cut short, if it was."""
    if reason in CUT_SHORT:
        thinks = bool(message.reasoning_content) and not message.text.strip()
        while_thinking = ", while the model was still thinking (--think-budget)" if thinks else ""
        output.note(CUT_SHORT[reason] + while_thinking)

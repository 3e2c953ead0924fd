"""Answers of task commands: one text after the other, whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from leap_core.errors import LeapError
from leap_core.responses import Complete, GenerationFinishReason

from ..framework.interrupts import stopping_on_interrupt

if TYPE_CHECKING:
    from leap_core.messages import ChatMessage
    from leap_core.options import GenerationOptions
    from leap_core.runner.contract import ModelRunner


def answer_text(runner: ModelRunner, messages: Sequence[ChatMessage], options: GenerationOptions) -> str:
    """The text of the answer. Raises LeapError; KeyboardInterrupt after Ctrl-C."""
    complete = None
    generation = runner.start(messages, (), options)
    with stopping_on_interrupt(generation.stop):
        try:
            for response in generation:
                complete = response if isinstance(response, Complete) else complete
        finally:
            generation.close()
    if complete is None or complete.finish_reason is GenerationFinishReason.INTERRUPTED:
        raise KeyboardInterrupt
    return complete.full_message.text


def answers_or_problem(
    runner: ModelRunner, prompts: Sequence[Sequence[ChatMessage]], options: GenerationOptions
) -> tuple[list[str], str | None]:
    """The answers to all prompts, or why one of them failed, so that other texts go on."""
    try:
        return [answer_text(runner, messages, options) for messages in prompts], None
    except LeapError as error:
        return [], error.message


def fits_in_context(runner: ModelRunner, messages: Sequence[ChatMessage]) -> bool:
    """Whether a quarter of the context is left for the answer."""
    return runner.get_prompt_tokens_size(messages) <= runner.context_size * 3 // 4

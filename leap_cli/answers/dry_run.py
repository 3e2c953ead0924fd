"""``--dry-run``: the prompt as the model would get it, and how many tokens that is. Nothing is generated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from leap_core.errors import LeapGenerationPromptExceedContextLengthError

from ..framework.environment import Environment
from ..framework.output import Format, Output

if TYPE_CHECKING:
    from leap_core.functions import LeapFunction
    from leap_core.messages import ChatMessage
    from leap_core.options import GenerationOptions
    from leap_core.runner.contract import ModelRunner


def show_prompt(
    runner: ModelRunner,
    prompt: Sequence[ChatMessage] | str,
    functions: Sequence[LeapFunction],
    options: GenerationOptions,
    env: Environment,
    format: str,
) -> None:
    """Print the prompt. Raises LeapGenerationPromptExceedContextLengthError, after it, where generating would."""
    rendered = runner.render(prompt, functions, options)
    output = Output(env, format)
    if output.format is Format.TEXT:
        open_line = env.stdout_is_terminal and not rendered.text.endswith("\n")
        output.text(rendered.text + ("\n" if open_line else ""))
        output.note(f"{rendered.tokens} tokens for {runner.model_id}, whose context holds {runner.context_size}")
    else:
        record = {
            "model": runner.model_id,
            "prompt": rendered.text,
            "tokens": rendered.tokens,
            "context_size": runner.context_size,
        }
        output.document(record) if output.format is Format.JSON else output.event(record)
    if rendered.tokens > runner.context_size:
        raise LeapGenerationPromptExceedContextLengthError(rendered.tokens, runner.context_size)

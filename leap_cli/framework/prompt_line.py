"""How far prompts are read, as a line on a terminal."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING

from .output import Output

if TYPE_CHECKING:
    from leap_core.conversation.generator import Generation
    from leap_core.conversation.prompt_progress import PromptReading


class PromptLine:
    """Shows the progress of all prompts that are read now in one line, and erases it after the last."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._read: dict[Generation, PromptReading] = {}
        self._guard = threading.Lock()

    def __call__(self, generation: Generation, reading: PromptReading | None) -> None:
        with self._guard:
            if reading is not None:
                self._read[generation] = reading
            else:
                self._read.pop(generation, None)
            if self._read:
                self._output.progress(prompt_line(self._read.values()))
            else:
                self._output.end_progress()


def prompt_line(prompts: Collection[PromptReading]) -> str:
    """``reading the prompt: 2000 of 6500 tokens, 31 tokens/s, 2:25 to go``"""
    from leap_core.conversation.prompt_progress import seconds_left

    what = "the prompt" if len(prompts) == 1 else f"{len(prompts)} prompts"
    line = f"reading {what}: {sum(each.done for each in prompts)} of {sum(each.total for each in prompts)} tokens"
    left = seconds_left(prompts)
    if left is None:
        return line
    speed = sum(each.speed for each in prompts)
    return f"{line}, {speed:.0f} tokens/s, {int(left) // 60}:{int(left) % 60:02d} to go"

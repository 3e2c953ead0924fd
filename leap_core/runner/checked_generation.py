"""A generation whose finished text is checked: what does not fit its constraint never ends well."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from ..errors import LeapConstraintError, LeapGenerationPromptExceedContextLengthError
from ..messages import ChatMessage, ChatMessageRole
from ..responses import Chunk, Complete, GenerationFinishReason, MessageResponse
from .generator import Generation

MOST_REPAIRS = 2
"""Times that an answer which does not fit is generated anew, with what is wrong with it shown to the model."""

CUT = {
    GenerationFinishReason.MAX_TOKENS: "the answer was cut at max_tokens before it was complete",
    GenerationFinishReason.EXCEED_CONTEXT: "the answer was cut at the end of the context before it was complete",
    GenerationFinishReason.REPETITION: "the answer went in circles and was cut before it was complete",
}

UNCHECKED = {GenerationFinishReason.INTERRUPTED, GenerationFinishReason.ERROR}


class TextCheck(Protocol):
    """What a finished text is held to; see ``CompiledConstraint``, which is one."""

    @property
    def exact(self) -> bool: ...

    @property
    def calls(self) -> bool: ...

    @property
    def validate(self) -> Callable[[str], list[str]]: ...

    def problems_of_cut(self, text: str, called: bool) -> list[str]: ...


class CheckedGeneration(Generation):
    """Passes a generation on and checks its text at the end.

    Where the constraint is exact, the text is passed on as it comes, and only one that was cut short can be wrong.
    Otherwise it is held back until it was found right; ``again`` starts a generation with more messages for another
    try, ``repairs`` times at most. When the last try is wrong, LeapConstraintError has the text and what is wrong with
    it. A reply that the user stopped, or that calls functions instead of answering, is not checked.
    """

    def __init__(
        self,
        generation: Generation,
        constraint: TextCheck,
        again: Callable[[Sequence[ChatMessage]], Generation],
        repairs: int | None = None,
    ) -> None:
        self._current = generation
        self.prompt_tokens = generation.prompt_tokens
        self._constraint = constraint
        self._passes = constraint.exact and not constraint.calls
        self._again = again
        self._most = MOST_REPAIRS if repairs is None else repairs
        self._repairs = 0
        self._ready: deque[MessageResponse] = deque()
        self._guard = threading.Lock()
        self._stopped = False

    def __next__(self) -> MessageResponse:
        held: list[MessageResponse] = []
        while not self._ready:
            response = next(self._current)
            if isinstance(response, Complete):
                self._settle(response, held)
                held = []
            elif self._passes or not isinstance(response, Chunk):
                return response
            else:
                held.append(response)
        return self._ready.popleft()

    def stop(self) -> None:
        with self._guard:
            self._stopped = True
            self._current.stop()

    def close(self) -> None:
        self._current.close()
        self._ready.clear()

    def _settle(self, complete: Complete, held: list[MessageResponse]) -> None:
        """Let a reply that is right, or that need not be, out; otherwise try again or fail."""
        text = complete.full_message.text
        problems, cut = self._problems(complete), CUT.get(complete.finish_reason)
        if not problems:
            if self._repairs:
                note = f"the answer did not fit its constraint at first and was generated {self._repairs + 1} times"
                complete = replace(complete, warnings=(*complete.warnings, note))
            self._ready.extend([*held, complete])
            return
        if cut is not None or self._constraint.exact or self._repairs >= self._most:
            raise self._error(complete, problems, cut)
        self._current.close()
        with self._guard:
            try:
                self._current = self._again(_shown(text, problems))
            except LeapGenerationPromptExceedContextLengthError:  # there is no room to show what is wrong
                raise self._error(complete, problems, None) from None
            self._repairs += 1
            if self._stopped:
                self._current.stop()

    def _problems(self, complete: Complete) -> list[str]:
        text, called = complete.full_message.text, bool(complete.full_message.function_calls)
        if complete.finish_reason in UNCHECKED or (called and not text.strip()):
            return []
        if complete.finish_reason in CUT:
            return self._constraint.problems_of_cut(text, called)
        return self._constraint.validate(text)

    def _error(self, complete: Complete, problems: list[str], cut: str | None) -> LeapConstraintError:
        text, stats = complete.full_message.text, complete.stats
        if cut is not None:
            hint = "allow more tokens, ask for less, or let the answer end in time (--finish-shape)"
            return LeapConstraintError(
                f"{cut}: {problems[0]}",
                text=text,
                problems=[cut, *problems],
                hint=hint,
                stats=stats,
                cut_by=complete.finish_reason.value,
            )
        tries = f" after {self._repairs + 1} tries" if self._repairs else ""
        return LeapConstraintError(
            f"the answer does not fit its constraint{tries}: {'; '.join(problems[:3])}",
            text=text,
            problems=problems,
            hint="describe the wanted shape in the prompt, or use a larger model",
            stats=stats,
        )


def _shown(text: str, problems: Sequence[str]) -> list[ChatMessage]:
    """The failed answer and what is wrong with it."""
    listed = "\n".join(f"- {problem}" for problem in problems[:5])
    return [
        ChatMessage(ChatMessageRole.ASSISTANT, text),
        ChatMessage(ChatMessageRole.USER, f"That does not fit:\n{listed}\nAnswer again with the corrected JSON only."),
    ]

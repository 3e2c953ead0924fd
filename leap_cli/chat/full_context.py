"""What a chat does when its context is full: it asks once at a terminal, and says what it left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leap_core.runner.overflow import Omission, Overflow

from ..framework.environment import Environment
from ..framework.interrupts import raising_on_interrupt
from ..framework.output import Output

if TYPE_CHECKING:
    from leap_core.messages import ChatMessage
    from leap_core.options import GenerationOptions
    from leap_core.runner.conversation import Conversation

QUESTION = "Enter sums up what was said first, o leaves the oldest out, e refuses this message: "
ANSWERS = {"": Overflow.SUMMARIZE, "s": Overflow.SUMMARIZE, "o": Overflow.OLDEST, "e": Overflow.ERROR}


class FullContext:
    """What happens when the context is full. ``chosen`` None: a terminal is asked once, and in a pipe, where nobody can
    be asked, the oldest turns are left out."""

    def __init__(self, env: Environment, chosen: Overflow | None) -> None:
        self._env, self._output = env, Output(env)
        self._asks = chosen is None and env.stdin_is_terminal
        self.policy = chosen or (Overflow.SUMMARIZE if self._asks else Overflow.OLDEST)
        self.stays = False
        """Whether a session keeps what is left out."""

    def apply(self, conversation: Conversation) -> None:
        """Let the conversation do so, and say so."""
        conversation.on_overflow = self.policy
        conversation.on_omission = self.say

    def ask(self, conversation: Conversation, message: ChatMessage | None, options: GenerationOptions) -> None:
        """Before ``message`` is answered: ask, where that was not done and its prompt does not fit."""
        if not self._asks or not conversation.overflows(message, options):
            return
        self._output.note("the conversation no longer fits the context")
        try:
            with raising_on_interrupt():
                answer = self._env.read_typed_line(QUESTION).strip().lower()[:1]
        except EOFError:
            answer = ""
        self.policy = ANSWERS.get(answer, Overflow.SUMMARIZE)
        self._asks = False
        self.apply(conversation)

    def say(self, omission: Omission) -> None:
        """Say what the model no longer gets."""
        what = "the first message" if omission.messages == 1 else f"the first {omission.messages} messages"
        instead = "" if omission.summary is None else ", but a summary"
        where = "; the session keeps all" if self.stays else ""
        self._output.note(f"the model no longer gets {what}{instead}{where}")

"""A dialogue in which the user speaks and types, and the model answers aloud and in text."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from leap_core.errors import LeapError
from leap_core.messages import ChatMessage, ChatMessageContent, ChatMessageRole
from leap_core.responses import Complete
from leap_core.runner.streams import Stream
from leap_core.talk.events import Utterance
from leap_core.talk.talk import Talk

from ..answers.show import show_answer
from ..answers.tool_use import shown_calls
from ..framework.output import Output

if TYPE_CHECKING:
    from leap_core.sessions.recorder import SessionRecorder

    from ..chat.dialogue import Dialogue


class Shown:
    """Shows one answer after the other, and lets it be heard. ``voice``: the one that reads it aloud, None for the
    conversation's own. ``answering``: what is done around each answer."""

    def __init__(
        self,
        talk: Talk,
        output: Output,
        voice: str | None,
        *,
        stats: bool,
        answering: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._talk, self._output, self._voice, self._stats = talk, output, voice, stats
        self._answering = answering
        self.was_stopped = False
        """Whether Ctrl-C ended the last answer."""

    def __call__(self, dialogue: Dialogue, stream: Stream) -> Complete:
        from .read_aloud import ReadAloud

        runner = dialogue.conversation.model_runner
        if self._voice is not None:
            stream = ReadAloud(stream, runner, self._voice, dialogue.options)
        answer = self._talk.speaking(stream)
        with self._answering():
            complete = show_answer(
                answer,
                self._output,
                model=runner.model_id,
                show_stats=self._stats,
                calls=shown_calls(dialogue.tools, always=True),
            )
        self.was_stopped = answer.is_stopped and not answer.is_interrupted
        return complete


class SpokenDialogue:
    """Answers utterances. What is said before the first word of an answer joins what that was to answer."""

    def __init__(self, dialogue: Dialogue, talk: Talk, output: Output) -> None:
        self.dialogue, self.talk = dialogue, talk
        self._output = output
        self._unanswered: list[ChatMessageContent] = []
        self._take_up(dialogue.log)

    def answer(self, utterance: Utterance) -> None:
        """Answer what was said. Raises what answering raises."""
        self._output.note(f"heard {utterance.seconds:.1f} s")
        self._unanswered += utterance.parts()
        try:
            complete = self.dialogue.answer(ChatMessage(ChatMessageRole.USER, self._unanswered))
        except LeapError:
            self._unanswered = []
            raise
        if not complete.is_lost:
            self._unanswered = []

    def _take_up(self, log: SessionRecorder) -> None:
        """What was said last in a session that is continued, and got no answer, is said again."""
        message = log.unanswered
        if message is not None and message.content and not message.text:
            self._unanswered, log.unanswered = list(message.content), None
            self._output.note("what you said last got no answer; it goes with what you say next")

"""The dialogue of a talk: spoken and typed, with commands while the microphone is open, answers read aloud."""

from __future__ import annotations

import os
import re
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from leap_core.conversation.conversation import Conversation
from leap_core.conversation.generator import Generator
from leap_core.conversation.messages import ChatMessage, ChatMessageContent, ChatMessageRole
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.responses import AudioSample, Chunk, Complete, MessageResponse
from leap_core.conversation.streams import PassingStream, Stream
from leap_core.conversation.talk.hearing import Utterance
from leap_core.conversation.talk.talk import Talk
from leap_core.errors import LeapError
from leap_core.inference.speech.voices import voice_prompt

from ..answers.show import Display, show_answer, shown_calls
from ..chat.slash_commands import COMMANDS, completer
from ..chat.typed_conversation import Editor
from ..framework.environment import Environment
from ..framework.output import Output

if TYPE_CHECKING:
    from pathlib import Path

    from prompt_toolkit.key_binding import KeyBindingsBase

    from leap_core.conversation.session_recorder import SessionRecorder

    from ..chat.dialogue import Dialogue


class ShownLine:
    """Shows one answer after the other, and plays it. ``voice``: the one that reads it aloud, None for the
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

        runner = dialogue.conversation.model_runner
        if self._voice is not None:
            stream = ReadAloud(stream, runner, self._voice, dialogue.options)
        answer = self._talk.speaking(stream)
        with self._answering():
            complete = show_answer(
                answer,
                self._output,
                model=runner.model_id,
                display=Display(stats=self._stats),
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


POLL = 0.05
SPACE = " "


class _Woken(Exception):
    """Something else than typing is to be done."""


class TalkEditor(Editor):
    """An editor whose prompt shows the talk's state, and in which utterances are answered while nothing is sent.
    ``push``: the space bar begins and ends an utterance where nothing is typed, and ends one anywhere."""

    def __init__(self, env: Environment, history: Path | None, spoken: SpokenDialogue, *, push: bool) -> None:
        super().__init__(env, completer(COMMANDS, env), history)
        self._spoken, self._talk = spoken, spoken.talk
        self._push = push
        self._draft = ""
        self._session.message = self._prompt
        if push:
            self._session.key_bindings = self._with_space()

    def read(self, draft: str = "") -> str:
        """A message. Ends like Ctrl-D where the talk has ended."""
        self._draft = draft or self._draft
        while True:
            utterance = self._talk.next_utterance(wait=False)
            if utterance is not None:
                self._spoken.answer(utterance)
                continue
            if self._talk.has_ended:
                if self._talk.has_utterance:  # it came after the look above
                    continue
                raise EOFError
            self._session.app.erase_when_done = False
            draft, self._draft = self._draft, ""
            with suppress(_Woken):
                return self._session.prompt(default=draft, pre_run=self._look)

    def wake(self) -> None:
        """Let ``read`` look at the talk; any thread may call."""
        app = self._session.app
        app.invalidate()  # the state in the prompt
        loop = app.loop  # another thread takes it away
        if app.is_running and loop is not None and self._is_wanted():
            with suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        app = self._session.app
        if self._is_wanted() and app.future is not None and not app.future.done():
            self._draft = self._session.default_buffer.text
            app.erase_when_done = True
            app.exit(exception=_Woken())

    def _is_wanted(self) -> bool:
        return self._talk.has_ended or self._talk.has_utterance

    def _prompt(self) -> str:
        if self._push:
            return "listening, space ends > " if self._talk.is_pressed else "space begins > "
        return f"{self._talk.state.value} > "

    def _with_space(self) -> KeyBindingsBase:
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.key_binding import KeyBindings, merge_key_bindings

        keys = KeyBindings()

        is_key = Condition(lambda: self._talk.is_pressed or not self._session.default_buffer.text)

        @keys.add("space", filter=is_key)
        def turn(_event: object) -> None:
            push_key(self._talk)
            self._session.app.invalidate()

        return merge_key_bindings([*([self._session.key_bindings] if self._session.key_bindings else []), keys])


def push_key(talk: Talk) -> None:
    """The space bar: begins an utterance, or ends the one at hand."""
    if talk.is_pressed:
        talk.release()
    else:
        talk.press()


@contextmanager
def pushing_while_answering(talk: Talk) -> Iterator[None]:
    """Within the block, in which no prompt is open, the space bar stops the answer and begins an utterance."""
    over = threading.Event()
    with _single_keys() as read_key:

        def watch() -> None:
            with suppress(EOFError, OSError):  # the terminal is gone
                while not over.is_set():
                    if read_key() == SPACE:
                        push_key(talk)

        thread = threading.Thread(target=watch, name="leap-talk-keys", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


if sys.platform == "win32":

    @contextmanager
    def _single_keys() -> Iterator[Callable[[], str]]:
        import msvcrt
        import time

        def read_key() -> str:
            if msvcrt.kbhit():
                return msvcrt.getwch()
            time.sleep(POLL)
            return ""

        yield read_key

else:

    @contextmanager
    def _single_keys() -> Iterator[Callable[[], str]]:
        """Gives a function that waits shortly for a key; Ctrl-C continues to be a signal."""
        import termios
        import tty

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        tty.setcbreak(descriptor, termios.TCSADRAIN)

        def read_key() -> str:
            if termios.tcgetattr(descriptor)[3] & termios.ICANON:  # the shell took it back at Ctrl-Z
                tty.setcbreak(descriptor, termios.TCSADRAIN)
            ready, _, _ = select.select([descriptor], [], [], POLL)
            if not ready:
                return ""
            key = os.read(descriptor, 1).decode("latin-1")
            if not key:
                raise EOFError
            return key

        try:
            yield read_key
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


SENTENCE_END = re.compile(r"[.!?。！？…]+[\"')\]]*\s|\n")


class ReadAloud(PassingStream):
    """Passes an answer on, each of its sentences followed by its sound in ``voice``."""

    def __init__(self, stream: Stream, runner: Generator, voice: str, options: GenerationOptions) -> None:
        super().__init__(stream)
        self._runner, self._system, self._options = runner, voice_prompt(voice), options
        self._unread = ""
        self._reading: Stream | None = None
        self._end: Complete | None = None
        self._is_stopped = False

    def __next__(self) -> MessageResponse:
        while self._reading is None:
            if self._end is not None:
                end, self._end = self._end, None
                return end
            response = super().__next__()
            if isinstance(response, Complete):
                self._end = response
                self._read(len(self._unread))
                continue
            if isinstance(response, Chunk):
                self._unread += response.text
                ends = list(SENTENCE_END.finditer(self._unread))
                if ends:
                    self._read(ends[-1].end())
            return response
        return self._sound()

    def stop(self) -> None:
        self._is_stopped = True
        super().stop()
        reading = self._reading
        if reading is not None:
            reading.stop()

    def close(self) -> None:
        if self._reading is not None:
            self._reading.close()
        super().close()

    def _read(self, count: int) -> None:
        sentence, self._unread = self._unread[:count].strip(), self._unread[count:]
        if sentence and not self._is_stopped:
            reading = Conversation(self._runner, [ChatMessage(ChatMessageRole.SYSTEM, self._system)])
            self._reading = reading.generate_response(sentence, self._options)
            if self._is_stopped:  # meanwhile, by another thread
                self._reading.stop()

    def _sound(self) -> MessageResponse:
        """The next piece of sound, or what follows it."""
        reading = self._reading
        while reading is not None:
            response = reading.__next__()
            if isinstance(response, AudioSample):
                return response
            if isinstance(response, Complete):
                self._reading = None
                reading.close()
                break
        return self.__next__()

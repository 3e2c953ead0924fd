"""A conversation that somebody types: messages, and commands that begin with a slash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from leap_core.errors import LeapError, LeapGenerationPromptExceedContextLengthError
from leap_core.messages import ChatMessage, ChatMessageContent, ChatMessageRole, Text

from ..framework.environment import Environment
from ..framework.output import Output
from ..framework.text_arguments import text_argument
from .dialogue import Dialogue
from .line_editor import Editor, PlainTyping, Typing

if TYPE_CHECKING:
    from leap_core.runner.contract import ModelRunner

HISTORY_FILE = "chat_history"
WELCOME = "Ctrl-C stops an answer, Ctrl-D leaves, /help lists commands"


def talk_at_terminal(
    dialogue: Dialogue, env: Environment, output: Output, load_model: Callable[[str], ModelRunner]
) -> None:
    """Greet, hold the conversation, and say how it is continued."""
    log = dialogue.log
    output.note(WELCOME)
    talk = Talk(dialogue, env, output, _typing(env, keeps=log.is_open), load_model)
    if log.session is not None:
        output.note(f"continuing {log.session.label}: {len(dialogue.history)} messages")
    if log.unanswered is not None:
        attached, text = taken_apart(log.unanswered)
        output.note(f"your last message got no answer: {text}")
        if talk.typing.can_begin_with:
            talk.attached, talk.draft = list(attached), text
            if attached:
                output.note("what was attached to it goes with your next message")
    talk.hold()
    if log.label is not None:
        output.note(f"saved as {log.label}; leap chat -c goes on")


def _typing(env: Environment, *, keeps: bool) -> Typing:
    if not env.has_editor:
        return PlainTyping(env)
    from .slash_commands import COMMANDS
    from .suggestions import completer

    return Editor(env, completer(COMMANDS, env), env.directories.data / HISTORY_FILE if keeps else None)


@dataclass
class Talk:
    """What the commands work on. ``load_model`` loads the model with this name as the command line's options say."""

    dialogue: Dialogue
    env: Environment
    output: Output
    typing: Typing
    load_model: Callable[[str], ModelRunner]
    attached: list[ChatMessageContent] = field(default_factory=list)
    """What goes with the next message."""
    draft: str = ""
    """What the next prompt begins with."""
    editing: int | None = None
    """The place in the history of the message that the next one replaces."""
    leaving: bool = False

    def hold(self) -> None:
        """Answer and obey until the one who types leaves. A failure is told, and the conversation is as it was."""
        while not self.leaving:
            try:
                draft, self.draft = self.draft, ""
                self.take(self.typing.read(draft))
            except EOFError:
                self.env.stderr.write("\n")
                return
            except KeyboardInterrupt:
                self.env.stderr.write("\n")
                self.editing = None
            except LeapGenerationPromptExceedContextLengthError as error:
                self.output.error(error.message, "/undo or /clear makes room")
            except UnicodeDecodeError:
                self.output.error("what was typed is not UTF-8 text")
            except LeapError as error:
                self.output.error(error.message, error.hint)
            except click.UsageError as error:
                self.output.error(error.format_message())

    def take(self, text: str) -> None:
        """Obey a command, or answer a message."""
        from .slash_commands import run_command

        text = text_argument(text, "what was typed")
        editing, self.editing = self.editing, None
        if not text.strip() or run_command(self, text):
            return
        if text.startswith("//"):
            text = text[1:]
        if editing is None:
            self.send(text)
        else:
            self.send_instead(editing, text)

    def send(self, text: str) -> None:
        """Answer this message, and what is attached to it."""
        self.dialogue.answer(ChatMessage(ChatMessageRole.USER, [*self.attached, Text(text)]))
        self.attached = []

    def send_instead(self, place: int, text: str) -> None:
        """Answer the message at this place in the history with another text, and forget what came after it."""
        history = self.dialogue.history
        attached, _ = taken_apart(history[place])
        message = ChatMessage(ChatMessageRole.USER, [*attached, *self.attached, Text(text)])
        self.dialogue.answer_instead(history[:place], message)
        self.attached = []


def taken_apart(message: ChatMessage) -> tuple[Sequence[ChatMessageContent], str]:
    """What was attached to a message, and what was typed: the text at its end."""
    *attached, last = message.content or (Text(""),)
    return (attached, last.text) if isinstance(last, Text) else (message.content, "")

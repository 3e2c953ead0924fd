"""A conversation that a user types: messages, and commands that begin with a slash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from leap_core.errors import LeapError, LeapGenerationPromptExceedContextLengthError
from leap_core.messages import ChatMessage, ChatMessageContent, ChatMessageRole, Text
from leap_core.runner.overflow import Overflow

from ..framework.environment import Environment
from ..framework.output import Output
from ..framework.text_arguments import text_argument
from .attachments import pasted_medium
from .dialogue import Dialogue
from .line_editor import Typing

if TYPE_CHECKING:
    from leap_core.runner.contract import ModelRunner


@dataclass
class TypedConversation:
    """What the slash commands work on. ``load_model`` loads a model by name with the options of the command line."""

    dialogue: Dialogue
    env: Environment
    output: Output
    typing: Typing
    load_model: Callable[[str], ModelRunner]
    run_command: Callable[[TypedConversation, str], bool]
    """Runs a line that is a slash command; False where it is a message."""
    attached: list[ChatMessageContent] = field(default_factory=list)
    """What goes with the next message."""
    draft: str = ""
    """What the next prompt begins with."""
    editing: int | None = None
    """The place in the history of the message that the next one replaces."""
    leaving: bool = False

    def hold(self, first: str = "") -> None:
        """Answer ``first``, then read input and run it until the user quits. Errors are shown and the conversation is
        unchanged."""
        while not self.leaving:
            try:
                if first:
                    message, first = first, ""
                    self.send(message)
                    continue
                draft, self.draft = self.draft, ""
                self.take(self.typing.read(draft))
            except EOFError:
                self.env.stderr.write("\n")
                return
            except KeyboardInterrupt:
                self.env.stderr.write("\n")
                self.editing = None
            except LeapGenerationPromptExceedContextLengthError as error:
                refuses = self.dialogue.full.policy is Overflow.ERROR
                self.output.error(error.message, "/compact, /undo or /clear makes room" if refuses else error.hint)
            except UnicodeDecodeError:
                self.output.error("what was typed is not UTF-8 text")
            except LeapError as error:
                self.output.error(error.message, error.hint)
            except click.UsageError as error:
                self.output.error(error.format_message())

    def take(self, text: str) -> None:
        """Run a slash command, or answer a message."""
        text = text_argument(text, "what was typed")
        editing, self.editing = self.editing, None
        medium = None if editing is not None else pasted_medium(text, self.env)
        if medium is not None:
            text = f"/attach {medium}"
        if not text.strip() or self.run_command(self, text):
            return
        if text.startswith("//"):
            text = text[1:]
        if editing is None:
            self.send(text)
        else:
            self.send_instead(editing, text)

    def send(self, text: str) -> None:
        """Answer this message, and what is attached to it."""
        complete = self.dialogue.say(text, self.attached)
        if complete.is_lost:
            self.output.note("stopped before the first word: the message was not kept")
            if self.typing.can_begin_with:
                self.draft = text
                return
        self.attached = []

    def send_instead(self, place: int, text: str) -> None:
        """Answer the message at this place in the history with another text, and forget what came after it."""
        history = self.dialogue.history
        attached, _ = split_attachments(history[place])
        message = ChatMessage(ChatMessageRole.USER, [*attached, *self.attached, Text(text)])
        self.dialogue.answer_instead(history[:place], message)
        self.attached = []


def split_attachments(message: ChatMessage) -> tuple[Sequence[ChatMessageContent], str]:
    """What was attached to a message, and what was typed: the text at its end."""
    *attached, last = message.content or (Text(""),)
    return (attached, last.text) if isinstance(last, Text) else (message.content, "")

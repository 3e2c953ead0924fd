"""``leap chat`` at a terminal: the greeting, the line editor, the conversation, and how it is continued."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leap_core.conversation.messages import ChatMessageRole

from ..framework.environment import Environment
from ..framework.output import Output
from .dialogue import Dialogue
from .slash_commands import COMMANDS, completer, counted, run_command
from .typed_conversation import PROMPT, Editor, PlainTyping, TypedConversation, Typing, split_attachments

if TYPE_CHECKING:
    from leap_core.conversation.runner import ModelRunner

HISTORY_FILE = "chat_history"
WELCOME = "Ctrl-C stops an answer, Ctrl-D leaves, /help lists commands"


def talk_at_terminal(
    dialogue: Dialogue,
    env: Environment,
    output: Output,
    load_model: Callable[[str], ModelRunner],
    first: str = "",
    typing: Typing | None = None,
) -> None:
    """Hold the conversation, and say where it continues. ``first``: a message that is answered at once; ``typing``:
    where others come from."""
    log = dialogue.log
    typing = typing or _typing(env, keeps=log.is_open)
    talk = TypedConversation(dialogue, env, output, typing, load_model, run_command)
    if log.session is not None:
        output.note(f"continuing {log.session.label}: {counted(len(dialogue.history))}")
        _show_last(dialogue, output)
    if log.unanswered is not None:
        attached, text = split_attachments(log.unanswered)
        output.note(f"your last message got no answer: {text}")
        if talk.typing.can_begin_with:
            talk.attached, talk.draft = list(attached), text
            if attached:
                output.note("what was attached to it goes with your next message")
    talk.hold(first)


def note_saved(dialogue: Dialogue, output: Output, command: str) -> None:
    """Say how a conversation that is kept is continued."""
    if dialogue.log.label is not None:
        output.note(f"saved as {dialogue.log.label}; leap {command} -c goes on")


def _show_last(dialogue: Dialogue, output: Output) -> None:
    """Show what was said last, and what was answered."""
    history = dialogue.history
    places = [n for n, message in enumerate(history) if message.role is ChatMessageRole.USER]
    for message in history[places[-1] :] if places else []:
        text = message.text.strip()
        if text and message.role in (ChatMessageRole.USER, ChatMessageRole.ASSISTANT):
            begin = PROMPT if message.role is ChatMessageRole.USER else ""
            output.aside(f"{begin}{text}\n")


def _typing(env: Environment, *, keeps: bool) -> Typing:
    if not env.has_editor:
        return PlainTyping(env)
    return Editor(env, completer(COMMANDS, env), env.directories.data / HISTORY_FILE if keeps else None)

"""What may be typed at the prompt of ``leap chat`` instead of a message: a table of commands that begin with a slash.

A command is a function that takes the talk and the text after the command's name. What is wrong with it raises a
LeapError or click's UsageError, and the talk goes on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial

import click

from leap_core.messages import ChatMessageRole
from leap_core.runner.overflow import without

from ..answers.show import describe
from ..framework.help_text import WIDEST, HelpFormatter
from ..framework.output import one_line
from ..input.prompt import read_system
from ..options.tool_options import choose_tools
from .attachments import describe_part, read_part
from .chat_settings import NONE, part_names, set_option, setting_names, show
from .conversation_files import expand, read_conversation, write_conversation
from .slash_command import SlashCommand
from .suggestions import conversations, files, models, tools
from .typed_conversation import TypedConversation, split_attachments

SHAPE = re.compile(r"/([a-zA-Z]+)(?:\s+(.*))?\s*", re.DOTALL)


def run_command(talk: TypedConversation, text: str) -> bool:
    """Obey ``text`` if it is a command: a slash and a word. ``//`` and paths such as ``/etc/hosts`` are messages."""
    shape = SHAPE.fullmatch(text.strip())
    if shape is None:
        return False
    name = shape[1].lower()
    command = BY_NAME.get(name)
    if command is None:
        near = get_close_matches(name, BY_NAME, 1)
        advice = f"did you mean /{near[0]}?" if near else "/help lists them"
        raise click.UsageError(f"there is no command /{name}; {advice} (a message may begin with //)")
    rest = (shape[2] or "").strip()
    if rest and not command.takes:
        raise click.UsageError(f"/{name} stands alone; a message may begin with //")
    command.run(talk, rest)
    return True


def show_help(talk: TypedConversation, name: str) -> None:
    chosen: Iterable[SlashCommand] = COMMANDS
    if name:
        command_name = name.lstrip("/").lower()
        if command_name not in BY_NAME:
            raise click.UsageError(f"there is no command /{command_name}; /help lists them")
        chosen = [BY_NAME[command_name]]
    rows = [(f"/{command.name} {command.takes}".rstrip(), command.meaning) for command in chosen]
    formatter = HelpFormatter(width=talk.output.columns or WIDEST)
    formatter.write_dl(rows)
    if not name:
        formatter.write_paragraph()
        for line in KEYS:
            formatter.write_text(line)
    talk.output.text(formatter.getvalue())


def change_system(talk: TypedConversation, text: str) -> None:
    if not text:
        first = next((message for message in talk.dialogue.history if message.role is ChatMessageRole.SYSTEM), None)
        talk.output.text(f"{first.text}\n" if first else "there is no system prompt\n")
    elif text == NONE:
        talk.dialogue.set_system(None)
        talk.output.text("there is no system prompt any more\n")
    else:
        system = read_system(f"@{expand(text[1:])}" if text.startswith("@~") else text, talk.env)
        talk.dialogue.set_system(system)
        talk.output.text(f"the system prompt is now: {_shortened(system)}\n")


def change_model(talk: TypedConversation, name: str) -> None:
    if name:
        talk.dialogue.change_model(talk.load_model(name))
    runner = talk.dialogue.conversation.model_runner
    talk.output.text(f"{runner.model_id}, a context of {runner.context_size} tokens\n")


def attach(talk: TypedConversation, path: str) -> None:
    if path == NONE:
        talk.attached.clear()
    elif path:
        talk.attached.append(read_part(expand(path), talk.env, talk.output))
    for part in talk.attached:
        talk.output.text(f"{describe_part(part)}\n")
    talk.output.text("it goes with your next message\n" if talk.attached else "nothing is attached\n")


def change_tools(talk: TypedConversation, names: str) -> None:
    if names:
        tool_names = [] if names == NONE else names.replace(",", " ").split()
        talk.dialogue.change_tools(choose_tools(tool_names, talk.dialogue.tools, talk.env))
    chosen = talk.dialogue.tools
    for function in chosen.functions:
        decision = chosen.policy.of(function.name).decision if chosen.policy is not None else "ask"
        talk.output.text(f"{function.name}  {decision}  {one_line(function.description)}\n")
    if not chosen.functions:
        talk.output.text("the model has no tools; /tools NAME… gives it some\n")


def retry(talk: TypedConversation, _: str) -> None:
    place = _last_question(talk)
    history = talk.dialogue.history
    talk.dialogue.answer_instead(history[:place], history[place])


def edit(talk: TypedConversation, text: str) -> None:
    place = _last_question(talk)
    if text:
        talk.send_instead(place, text)
    elif talk.typing.can_begin_with:
        _, talk.draft = split_attachments(talk.dialogue.history[place])
        talk.editing = place
    else:
        raise click.UsageError("give the new text: /edit TEXT")


def undo(talk: TypedConversation, _: str) -> None:
    place = _last_question(talk)
    history = talk.dialogue.history
    talk.dialogue.rewrite(history[:place])
    talk.output.text(f"forgotten: {_shortened(split_attachments(history[place])[1])}\n")


def rate(rating: str, talk: TypedConversation, _: str) -> None:
    talk.dialogue.log.rate(rating)
    talk.output.text(f"the last answer is rated {rating}\n")


def save(talk: TypedConversation, name: str) -> None:
    if name:
        talk.dialogue.log.save_as(name, talk.dialogue.history)
    label = talk.dialogue.log.label
    if label is None:
        raise click.UsageError("this conversation is not being saved; /save NAME begins that")
    talk.output.text(f"saved as {label}\n")


def load(talk: TypedConversation, reference: str) -> None:
    if not reference:
        raise click.UsageError("give a session or a file: /load SESSION, or /load FILE")
    log = talk.dialogue.log
    if os.path.isfile(talk.env.cwd / expand(reference)):
        history = read_conversation(expand(reference), talk.env)
        log.begin_another()
    else:
        history = list(log.move_to(reference))
    talk.dialogue.rewrite(history)
    talk.output.text(f"{counted(len(history))} {'is' if len(history) == 1 else 'are'} loaded\n")


def export(talk: TypedConversation, name: str) -> None:
    if not name:
        raise click.UsageError("give a file that ends in .json, .jsonl or .md: /export FILE")
    history = talk.dialogue.history
    first = next((message.text for message in history if message.role is ChatMessageRole.USER), "")
    write_conversation(expand(name), history, _shortened(first), talk.env)
    talk.output.text(f"{counted(len(history))} {'is' if len(history) == 1 else 'are'} in {name}\n")


def show_statistics(talk: TypedConversation, _: str) -> None:
    dialogue = talk.dialogue
    history, runner = dialogue.history, dialogue.conversation.model_runner
    prompt = without(history, dialogue.conversation.omission)
    tokens = runner.get_prompt_tokens_size(prompt, functions=dialogue.conversation.functions) if history else 0
    talk.output.text(f"{counted(len(history))}, {tokens} of {runner.context_size} tokens of {runner.model_id}\n")
    if dialogue.last is not None and dialogue.last.stats is not None:
        talk.output.text(f"the last answer: {describe(dialogue.last.stats)}\n")


def clear(talk: TypedConversation, _: str) -> None:
    talk.attached.clear()
    talk.dialogue.log.begin_another()
    talk.dialogue.rewrite([each for each in talk.dialogue.history if each.role is ChatMessageRole.SYSTEM])


def compact(talk: TypedConversation, _: str) -> None:
    dialogue = talk.dialogue
    before = dialogue.conversation.omission
    after = dialogue.compact()
    if after == before:
        talk.output.text("there is nothing to leave out\n")
    else:
        dialogue.full.say(after)
        if after.summary is not None:
            talk.output.text(f"{after.summary}\n")


def leave(talk: TypedConversation, _: str) -> None:
    talk.leaving = True


def _last_question(talk: TypedConversation) -> int:
    """The place in the history of the last thing the user said."""
    history = talk.dialogue.history
    for place in range(len(history) - 1, -1, -1):
        if history[place].role is ChatMessageRole.USER:
            return place
    raise click.UsageError("you have not said anything yet")


def counted(messages: int) -> str:
    return "1 message" if messages == 1 else f"{messages} messages"


def _shortened(text: str, most: int = 60) -> str:
    line = one_line(text)
    return line if len(line) <= most else f"{line[: most - 1]}…"


COMMANDS = (
    SlashCommand("help", "[COMMAND]", "List the commands, or explain one.", show_help),
    SlashCommand("system", "[TEXT|@FILE|none]", "Show or change the system prompt.", change_system, files),
    SlashCommand("model", "[MODEL]", "Show the model, or go on with another one.", change_model, models),
    SlashCommand("attach", "[FILE|none]", "Send a text, picture or sound with the next message.", attach, files),
    SlashCommand("tools", "[NAME…|none]", "Show the model's tools, or choose them.", change_tools, tools),
    SlashCommand("set", "[NAME VALUE|none]", "Set an option, such as temperature 0.3.", set_option, setting_names),
    SlashCommand("show", "[PART]", "Show what answers are made with.", show, part_names),
    SlashCommand("retry", "", "Answer the last message again.", retry),
    SlashCommand("edit", "[TEXT]", "Change the last message, and have it answered again.", edit),
    SlashCommand("undo", "", "Forget the last message and what came after it.", undo),
    SlashCommand("good", "", "Rate the last answer good: see leap help fine-tuning.", partial(rate, "good")),
    SlashCommand("bad", "", "Rate the last answer bad: it is not trained on.", partial(rate, "bad")),
    SlashCommand("save", "[NAME]", "Show where this is saved, or give it a name.", save),
    SlashCommand("load", "SESSION|FILE", "Go on with a saved conversation, or one from a file.", load, conversations),
    SlashCommand("export", "FILE", "Write the conversation as .json, .jsonl or .md.", export, files),
    SlashCommand("stats", "", "Show how full the context is, and the last speed.", show_statistics),
    SlashCommand("compact", "", "Make room: go on with a summary of what was said.", compact),
    SlashCommand("clear", "", "Begin anew with the same system prompt.", clear),
    SlashCommand("quit", "", "Leave, like Ctrl-D.", leave),
)
BY_NAME = {command.name: command for command in COMMANDS} | {
    alias: command for alias in ("exit", "bye") for command in COMMANDS if command.name == "quit"
}
KEYS = (
    "Enter sends; Alt-Enter, or a backslash at the line's end, begins a new line.",
    "Ctrl-X Ctrl-E opens what is typed in $VISUAL or $EDITOR.",
    "Ctrl-C stops an answer, or clears the line; Ctrl-D leaves; TAB completes.",
)

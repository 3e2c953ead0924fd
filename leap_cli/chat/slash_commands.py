"""What may be typed at the prompt of ``leap chat`` instead of a message, and what TAB offers there.

A command is a function that takes the talk and the text after the command's name. What is wrong with it raises a
LeapError or click's UsageError, and the talk continues.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leap_core.conversation.conversation import without
from leap_core.conversation.messages import ChatMessageRole
from leap_core.errors import LeapError

from ..completion import candidates as completion_values
from ..framework.environment import Environment
from ..framework.help_text import WIDEST, HelpFormatter
from ..framework.option_defaults import renamed
from ..framework.output import one_line, shortened
from ..input.prompt import read_system
from ..options.answer import Thinking
from ..options.constraints import NO_SHAPE, SHAPES, shape_from_text
from ..options.sampling import NUMBERS, number_from_text, options_in_words
from ..options.tools import MOST_ROUNDS, choose_tools, limit_rounds
from .piped import expand, read_conversation, write_conversation
from .typed_conversation import (
    SlashCommand,
    Suggestion,
    TypedConversation,
    describe_part,
    read_parts,
    split_attachments,
)

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

MOST_FILES, MOST_SESSIONS = 500, 100
SHOWN = 60
"""Characters of a message that are shown again."""


def suggest(line: str, commands: Sequence[SlashCommand], env: Environment) -> tuple[str, list[Suggestion]]:
    """The word before the cursor, and its candidates. Messages are not completed."""
    if not line.startswith("/") or line.startswith("//"):
        return "", []
    name, space, rest = line[1:].partition(" ")
    if not space:
        suggestions = [Suggestion(f"/{command.name}", command.meaning) for command in commands]
        return line, [each for each in suggestions if each.value.startswith(line.lower())]
    values = next((command.values for command in commands if command.name == name.lower()), None)
    if values is None:
        return "", []
    word = rest.lstrip() if values in PATHS else rest.rpartition(" ")[2]
    return word, list(values(env, word))


def files(env: Environment, prefix: str) -> Iterator[Suggestion]:
    """Paths; after an @ too. Hidden ones only where a dot was typed."""
    mark = "@" if prefix.startswith("@") else ""
    directory, name = os.path.split(prefix[len(mark) :])
    try:
        with os.scandir(env.cwd / Path(directory or ".").expanduser()) as entries:
            matches = sorted((entry.name, _is_directory(entry)) for entry in entries)
    except (OSError, ValueError, RuntimeError):  # RuntimeError: there is no such user's home
        return
    for entry, is_directory in matches[:MOST_FILES]:
        if entry.startswith(name) and entry.isprintable() and (name or not entry.startswith(".")):
            yield Suggestion(mark + os.path.join(directory, entry) + (os.sep if is_directory else ""))


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def models(env: Environment, prefix: str) -> Iterator[Suggestion]:
    """References to models, as the shell's completion has them."""
    return _from_shell(completion_values.models, env, prefix)


def tools(env: Environment, prefix: str) -> Iterator[Suggestion]:
    """Tools, as the shell's completion has them."""
    return _from_shell(completion_values.tools, env, prefix)


def conversations(env: Environment, prefix: str) -> Iterator[Suggestion]:
    """Saved sessions, by name where they have one, then files."""
    from leap_core.conversation.sessions import SessionStore

    file = env.directories.sessions_file
    if file.is_file():
        with suppress(LeapError), SessionStore(file) as store:
            suggestions = [Suggestion(each.label, each.title) for each in store.list(MOST_SESSIONS)]
            yield from (each for each in suggestions if each.value.startswith(prefix))
    yield from files(env, prefix)


PATHS = (files, conversations)


def completer(commands: Sequence[SlashCommand], env: Environment) -> Completer:
    """The same, for the editor."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Commands(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            word, suggestions = suggest(document.text_before_cursor, commands, env)
            for value, meaning in suggestions:
                yield Completion(value, start_position=-len(word), display_meta=meaning)

    return Commands()


def _from_shell(source: completion_values.Source, env: Environment, prefix: str) -> Iterator[Suggestion]:
    context = click.Context(click.Command("chat"), obj=env)
    for item in completion_values.fitting(source(context, prefix), prefix):
        if item.type == "plain":
            yield Suggestion(str(item.value), item.help or "")
        else:
            yield from files(env, prefix)


NONE = "none"
SHAPE_NAMES = {flag.lstrip("-"): name for name, flag in SHAPES.items()}
OTHERS = {
    "stop": "Stop before this text occurs.",
    "think": "show, hide or only: let the model reason.",
    "max-tool-iterations": "Most rounds of calls in one answer.",
}
PARTS = ("model", "system", "options", "constraint", "think", "tools", "attached", "session")
"""What ``/show`` prints."""
UNSEEN = ("top-logprobs",)
"""Options whose effect a person at the prompt cannot see."""


def set_option(talk: TypedConversation, text: str) -> None:
    """``/set NAME VALUE``; without a value it says what is set."""
    name, _, value = text.partition(" ")
    name, value = name.lstrip("-").replace("_", "-").lower(), value.strip()
    if not name:
        words = options_in_words(talk.dialogue.options)
        talk.output.note(", ".join(words) if words else "nothing is set: the model's own settings are used")
        return
    if not value:
        raise click.UsageError("/set takes a name and a value, such as /set temperature 0.3")
    dialogue, setting = talk.dialogue, None if value == NONE else value
    if name in NUMBERS and name not in UNSEEN:
        field, number = number_from_text(name, setting)
        dialogue.options = replace(dialogue.options, **{field: number})
    elif name in SHAPE_NAMES:
        shape = {} if setting is None else shape_from_text(SHAPE_NAMES[name], setting, talk.env)
        dialogue.options = replace(dialogue.options, **{**NO_SHAPE, **shape})
    elif name == "stop":
        dialogue.options = replace(dialogue.options, stop=() if setting is None else (setting,))
    elif name == "think":
        _set_thinking(talk, setting)
    elif name == "max-tool-iterations":
        dialogue.tools = limit_rounds(dialogue.tools, _rounds(setting), talk.env)
    else:
        from ..command_table import SPELLINGS

        names = _names()
        near = renamed(name, names, SPELLINGS) or get_close_matches(name, names, 1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
        raise click.UsageError(f"there is no setting {name!r}; {meant}")
    talk.output.text(f"{name} is {'not set' if setting is None else one_line(setting)}\n")


def show(talk: TypedConversation, name: str) -> None:
    """``/show [PART]``: what answers are made with, one part a line."""
    if name and name.lower() not in PARTS:
        raise click.UsageError(f"there is no {name!r} to show; there are {', '.join(PARTS)}")
    parts = (name.lower(),) if name else PARTS
    width = max(map(len, parts))
    rows = ((part, _described(talk, part)) for part in parts)
    talk.output.text("".join(f"{part:<{width}}  {value}\n" for part, value in rows))


def setting_names(_env: Environment, begun: str) -> Iterator[Suggestion]:
    """What may follow ``/set``."""
    meanings = {**{name: row.text for name, row in NUMBERS.items()}, **OTHERS}
    for name in _names():
        if name.startswith(begun.lower()):
            yield Suggestion(name, meanings.get(name, "Constrain the answers to this."))


def part_names(_env: Environment, begun: str) -> Iterator[Suggestion]:
    """What may follow ``/show``."""
    return (Suggestion(part) for part in PARTS if part.startswith(begun.lower()))


def _names() -> list[str]:
    return [*(name for name in NUMBERS if name not in UNSEEN), *SHAPE_NAMES, *OTHERS]


def _set_thinking(talk: TypedConversation, value: str | None) -> None:
    kinds = [kind.value for kind in Thinking]
    if value is not None and value not in kinds:
        raise click.UsageError(f"think takes {', '.join(kinds)} or {NONE}, not {value!r}")
    talk.dialogue.thinking = None if value is None else Thinking(value)
    talk.dialogue.options = replace(talk.dialogue.options, enable_thinking=value is not None)


def _rounds(value: str | None) -> int | None:
    if value is None:
        return None
    if not value.isdecimal() or not 1 <= int(value) <= MOST_ROUNDS:
        raise click.UsageError(f"max-tool-iterations takes a number from 1 to {MOST_ROUNDS}, not {value!r}")
    return int(value)


def _described(talk: TypedConversation, part: str) -> str:
    from .typed_conversation import describe_part

    dialogue = talk.dialogue
    options, runner = dialogue.options, dialogue.conversation.model_runner
    if part == "model":
        return f"{runner.model_id}, a context of {runner.context_size} tokens"
    if part == "system":
        first = next((each for each in dialogue.history if each.role is ChatMessageRole.SYSTEM), None)
        return one_line(first.text) if first else "-"
    if part == "options":
        stop = [f"stop {one_line(text)!r}" for text in options.stop]
        return ", ".join([*options_in_words(options), *stop]) or "the model's own"
    if part == "constraint":
        shapes = ((field.removesuffix("_constraint"), getattr(options, field)) for field in NO_SHAPE)
        return next((f"{name.replace('_', '-')} {one_line(str(shape))}" for name, shape in shapes if shape), "-")
    if part == "think":
        return dialogue.thinking.value if dialogue.thinking else "-"
    if part == "tools":
        return ", ".join(function.name for function in dialogue.tools.functions) or "-"
    if part == "attached":
        return "; ".join(map(describe_part, talk.attached)) or "-"
    return dialogue.log.label or ("not begun" if dialogue.log.is_open else "not saved")


SHAPE = re.compile(r"/([a-zA-Z]+|\?)(?:\s+(.*))?\s*", re.DOTALL)


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
        raise click.UsageError(f"/{name} takes no text after it; start a message that begins with / with //")
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
        talk.output.text(f"the system prompt is now: {shortened(system, SHOWN)}\n")


def change_model(talk: TypedConversation, name: str) -> None:
    if name:
        talk.dialogue.change_model(talk.load_model(name))
    runner = talk.dialogue.conversation.model_runner
    talk.output.text(f"{runner.model_id}, a context of {runner.context_size} tokens\n")


def attach_file(talk: TypedConversation, path: str) -> None:
    if path == NONE:
        talk.attached.clear()
    elif path:
        talk.attached += read_parts(expand(path), talk.env, talk.output)
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
    talk.output.text(f"forgotten: {shortened(split_attachments(history[place])[1], SHOWN)}\n")


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
    write_conversation(expand(name), history, shortened(first, SHOWN), talk.env)
    talk.output.text(f"{counted(len(history))} {'is' if len(history) == 1 else 'are'} in {name}\n")


def show_statistics(talk: TypedConversation, _: str) -> None:
    dialogue = talk.dialogue
    history, runner = dialogue.history, dialogue.conversation.model_runner
    prompt = without(history, dialogue.conversation.omission)
    tokens = runner.get_prompt_tokens_size(prompt, functions=dialogue.conversation.functions) if history else 0
    talk.output.text(f"{counted(len(history))}, {tokens} of {runner.context_size} tokens of {runner.model_id}\n")
    if dialogue.last is not None and dialogue.last.stats is not None:
        talk.output.text(f"the last answer: {dialogue.last.stats.describe()}\n")


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


COMMANDS = (
    SlashCommand("help", "[COMMAND]", "List the commands, or explain one.", show_help),
    SlashCommand("system", "[TEXT|@FILE|none]", "Show or change the system prompt.", change_system, files),
    SlashCommand("model", "[MODEL]", "Show the model, or switch to another one.", change_model, models),
    SlashCommand("attach", "[FILE|none]", "Send a text, picture or sound with the next message.", attach_file, files),
    SlashCommand("tools", "[NAME…|none]", "Show the model's tools, or choose them.", change_tools, tools),
    SlashCommand("set", "[NAME VALUE|none]", "Set an option, such as temperature 0.3.", set_option, setting_names),
    SlashCommand("show", "[PART]", "Show what answers are made with.", show, part_names),
    SlashCommand("retry", "", "Answer the last message again.", retry),
    SlashCommand("edit", "[TEXT]", "Change the last message, and have it answered again.", edit),
    SlashCommand("undo", "", "Forget the last message and what came after it.", undo),
    SlashCommand("good", "", "Rate the last answer good: see leap help fine-tuning.", partial(rate, "good")),
    SlashCommand("bad", "", "Rate the last answer bad: it is not trained on.", partial(rate, "bad")),
    SlashCommand("save", "[NAME]", "Show where this is saved, or give it a name.", save),
    SlashCommand("load", "SESSION|FILE", "Resume a saved conversation, or one from a file.", load, conversations),
    SlashCommand("export", "FILE", "Write the conversation as .json, .jsonl or .md.", export, files),
    SlashCommand("stats", "", "Show how full the context is, and the last speed.", show_statistics),
    SlashCommand("compact", "", "Replace the conversation by a summary.", compact),
    SlashCommand("clear", "", "Begin anew with the same system prompt.", clear),
    SlashCommand("quit", "", "Leave, like Ctrl-D.", leave),
)
BY_NAME = {command.name: command for command in COMMANDS}
BY_NAME |= {"exit": BY_NAME["quit"], "bye": BY_NAME["quit"], "?": BY_NAME["help"]}
KEYS = (
    "Enter sends; Alt-Enter, or a backslash at the line's end, begins a new line.",
    "Ctrl-X Ctrl-E opens what is typed in $VISUAL or $EDITOR.",
    "Ctrl-C stops an answer, or clears the line; Ctrl-D leaves; TAB completes.",
)

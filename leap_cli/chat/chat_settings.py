"""What answers are made with, seen by ``/show`` and changed by ``/set`` while a conversation goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from leap_core.messages import ChatMessageRole

from ..framework.environment import Environment
from ..framework.output import one_line
from ..options.answer import Thinking
from ..options.constraints import NO_SHAPE, SHAPES, shape_from_text
from ..options.sampling import NUMBERS, number_from_text, options_in_words
from ..options.tool_options import MOST_ROUNDS, limit_rounds
from .slash_command import Suggestion

if TYPE_CHECKING:
    from .typed_conversation import TypedConversation

NONE = "none"
SHAPE_NAMES = {flag.lstrip("-"): name for name, flag in SHAPES.items()}
OTHERS = {
    "stop": "End the answer before this text.",
    "think": "show, hide or only: let the model reason.",
    "chain-limit": "Most rounds of calls in one answer.",
}
PARTS = ("model", "system", "options", "shape", "think", "tools", "attached", "session")
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
    elif name == "chain-limit":
        dialogue.tools = limit_rounds(dialogue.tools, _rounds(setting), talk.env)
    else:
        names = _names()
        near = get_close_matches(name, names, 1)
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
    meanings = {**{name: meaning for name, (_, _, meaning) in NUMBERS.items()}, **OTHERS}
    for name in _names():
        if name.startswith(begun.lower()):
            yield Suggestion(name, meanings.get(name, "Give the answers this shape."))


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
        raise click.UsageError(f"chain-limit takes a number from 1 to {MOST_ROUNDS}, not {value!r}")
    return int(value)


def _described(talk: TypedConversation, part: str) -> str:
    from .attachments import describe_part

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
    if part == "shape":
        shapes = ((field.removesuffix("_constraint"), getattr(options, field)) for field in NO_SHAPE)
        return next((f"{name.replace('_', '-')} {one_line(str(shape))}" for name, shape in shapes if shape), "-")
    if part == "think":
        return dialogue.thinking.value if dialogue.thinking else "-"
    if part == "tools":
        return ", ".join(function.name for function in dialogue.tools.functions) or "-"
    if part == "attached":
        return "; ".join(map(describe_part, talk.attached)) or "-"
    return dialogue.log.label or ("not begun" if dialogue.log.is_open else "not saved")

"""The options of ``leap generate`` alone: what goes into the prompt, where the answer goes, and how many there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..framework.option_defaults import OptionDefaults
from ..framework.output import Format
from ..input.pattern import Pattern
from .saved_prompts import chosen_template
from .thinking import Thinking, take_thinking, thinking_flags

if TYPE_CHECKING:
    from leap_core.options import GenerationOptions

    from .sessions import SessionFlags
    from .tools import Tools

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

SESSION = ("continue_last", "session")
APART = {
    "raw": (
        "images",
        "sounds",
        "system",
        "tool",
        "tools_file",
        "tool_choice",
        "think",
        "show_thinking",
        "background",
        *SESSION,
        "save",
    ),
    "extract": ("extract_last", "background"),
    "extract_last": ("background",),
    "count": ("background", *SESSION, "save", "speak", "play"),
    "dry_run": ("background", "speak", "play"),
    "target": ("background",),
    "save_template": ("background", "dry_run", "target"),
}
"""Options that make no sense together, by the names of their parameters."""
MOST_SLOTS = 8
"""Answers that are made at once; the others wait for their turn."""


def one_shot_flags(function: Decorated) -> Decorated:
    """Add the flags; the function receives them for ``take_one_shot``."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "-f",
        "--file",
        "files",
        multiple=True,
        metavar="FILE",
        help="Put this file's text, under its name, before the prompt.",
    ),
    click.option(
        "-o", "--output", "target", metavar="FILE", help="Write the answer to this file, in one step, when it ends."
    ),
    click.option(
        "-n",
        "--count",
        type=click.IntRange(1, 256),
        default=1,
        metavar="N",
        help="Give N answers, made at once; with --seed S their seeds are S, S+1, ...",
    ),
    click.option("-x", "--extract", is_flag=True, help="Print the answer's first fenced block alone, such as code."),
    click.option("--extract-last", is_flag=True, help="Print the answer's last fenced block alone."),
    thinking_flags,
    click.option("--raw", is_flag=True, help="Go on from the prompt as it stands, without the chat template."),
    click.option("--dry-run", is_flag=True, help="Print the prompt as the model would get it, and generate nothing."),
    click.option(
        "--save-template", metavar="NAME", help="Save prompt, system prompt and options for -t NAME; generate nothing."
    ),
)


@dataclass(frozen=True)
class OneShot:
    """What the flags ask for. ``pattern``: what the prompt is put into. ``count``: how many answers.
    ``save_template``: the name under which the question is saved instead of asked."""

    files: tuple[str, ...]
    target: str | None
    count: int
    thinking: Thinking | None
    raw: bool
    dry_run: bool
    pattern: Pattern | None
    extract: bool = False
    extract_last: bool = False
    save_template: str | None = None

    @property
    def thinks(self) -> bool:
        """Whether the model is asked to reason."""
        return self.thinking is not None

    def take_part(self, sessions: SessionFlags) -> SessionFlags:
        """What remains of the wish to save: only one answer of a conversation can be a part of it."""
        return replace(sessions, save=False) if self.raw or self.dry_run or self.count > 1 else sessions

    def with_slots(self, loading: dict[str, Any]) -> dict[str, Any]:
        """The options of loading, with room for the answers that are made at once."""
        return {**loading, "slots": min(self.count, MOST_SLOTS)}

    def check_tools(self, tools: Tools) -> None:
        """Refuse several answers that might all ask whether a tool may run. Raises UsageError."""
        if self.count > 1 and any(function.call is not None for function in tools.functions):
            raise click.UsageError("--count cannot be combined with tools that run; declare them without code")

    def adapt(self, options: GenerationOptions) -> GenerationOptions:
        """The options, told to take nothing out of the text of a raw answer."""
        return replace(options, function_call_parser=None, inline_thinking_tags=True) if self.raw else options


def take_one_shot(flags: dict[str, Any]) -> OneShot:
    """Take the flags out of ``flags``. Raises UsageError for a combination that makes no sense."""
    context = click.get_current_context()
    for name, others in APART.items():
        if _is_given(context, name):
            _refuse(context, name, others)
    thinking = take_thinking(flags)
    if thinking is Thinking.ONLY and context.params["format"] != Format.TEXT.value:
        stated = _stated(context, "think", "format")
        raise click.UsageError(f"--think only is for text; json and jsonl have the reasoning beside the answer{stated}")
    if thinking is Thinking.ONLY and context.params["background"]:
        stated = _stated(context, "think", "background")
        raise click.UsageError(f"--think only cannot be combined with --background{stated}")
    template = chosen_template()
    return OneShot(
        files=flags.pop("files"),
        target=flags.pop("target"),
        count=flags.pop("count"),
        thinking=thinking,
        raw=flags.pop("raw"),
        dry_run=flags.pop("dry_run"),
        pattern=None if template is None else template.pattern,
        extract=flags.pop("extract"),
        extract_last=flags.pop("extract_last"),
        save_template=flags.pop("save_template"),
    )


def _refuse(context: click.Context, name: str, others: tuple[str, ...]) -> None:
    for other in others:
        if not _is_given(context, other):
            continue
        if other == "save" and context.get_parameter_source(other) is not click.core.ParameterSource.COMMANDLINE:
            continue  # a general wish to save, which this command does not fulfil
        flags = f"{_flag(context, name)} cannot be combined with {_flag(context, other)}"
        raise click.UsageError(flags + _stated(context, other, name))


def _stated(context: click.Context, *names: str) -> str:
    """Where the first of these stands that was not typed."""
    origins = [origin for name in names if (origin := _origin(context, name))]
    return f" (it stands in {origins[0]})" if origins else ""


def _is_given(context: click.Context, name: str) -> bool:
    value = context.params[name]
    return value not in (None, False, "", ()) and value != _option(context, name).default


def _flag(context: click.Context, name: str) -> str:
    return max(_option(context, name).opts, key=len)


def _origin(context: click.Context, name: str) -> str | None:
    """Where a value comes from that was not typed."""
    if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT_MAP:
        return None
    assert isinstance(context.default_map, OptionDefaults)
    return context.default_map.origins.get(name)


def _option(context: click.Context, name: str) -> click.Parameter:
    return next(parameter for parameter in context.command.params if parameter.name == name)

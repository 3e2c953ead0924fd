"""What goes into the prompt: words, a saved template, a system prompt, files, pictures and sounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from ..config.saved_prompts import FilledTemplate
from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from ..framework.output import Output
from ..framework.text_arguments import FileName, absolute
from ..input.media_files import STDIN, read_audio, read_image
from ..input.pattern import INPUT, Pattern
from ..input.prompt import read_prompt, read_system
from ..input.text_files import attach
from .template_options import TEMPLATE_OPTIONS, checked_template, typed_options

if TYPE_CHECKING:
    from leap_core.messages import ChatMessage, ChatMessageContent


@dataclass(frozen=True)
class Media:
    """The files that were named: pictures, then sounds, each in their order. Raises UsageError for standard input
    twice."""

    images: tuple[str, ...] = ()
    sounds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (*self.images, *self.sounds).count(STDIN) > 1:
            raise click.UsageError("'-' stands for standard input and can be given only once")

    def __bool__(self) -> bool:
        return bool(self.images or self.sounds)

    @property
    def reads_stdin(self) -> bool:
        """Whether standard input is one of them, and so no text."""
        return STDIN in self.images or STDIN in self.sounds

    def read(self, env: Environment, output: Output) -> tuple[ChatMessageContent, ...]:
        """The parts of a message; models were trained to see and hear before they are asked. Raises UsageError."""
        pictures = (read_image(name, env, output) for name in self.images)
        return (*pictures, *(read_audio(name, env, output) for name in self.sounds))


if TYPE_CHECKING:
    from leap_core.runner.overflow import Overflow


@dataclass(frozen=True)
class Prompt:
    """What one answer is asked for. ``raw``: the model goes on from the text, without the chat template. ``save_as``:
    the name under which the question is saved instead of asked, with the ``typed`` options."""

    words: tuple[str, ...]
    system: str | None = None
    template: FilledTemplate | None = None
    files: tuple[str, ...] = ()
    raw: bool = False
    dry_run: bool = False
    save_as: str | None = None
    typed: Mapping[str, Any] = field(default_factory=dict)

    def read(self, env: Environment, output: Output, media: Media) -> str:
        """The text of the user's message, with standard input where that has a part in it. Raises UsageError."""
        return read_prompt(
            self.words,
            env,
            output,
            before=[attach(file, env) for file in self.files],
            pattern=None if self.template is None else self.template.pattern,
            stdin_is_taken=media.reads_stdin,
            may_be_empty=bool(media),
        )


@dataclass(frozen=True)
class ChatBeginning:
    """How a conversation begins: the user's ``first`` message, the ``pattern`` that it is put into, or the conversation
    in ``file``. ``jsonl``: messages are read and written as JSON. ``on_overflow``: what happens when the context is
    full, None where nothing was said about it."""

    first: str
    system: str | None
    pattern: Pattern | None
    file: str | None
    jsonl: bool
    on_overflow: Overflow | None


SYSTEM_OPTION = option(
    "-s", "--system", metavar="TEXT", saved=None, help="Give the model this system prompt; @FILE reads it from a file."
)
_OPTIONS = (
    click.argument("prompt", nargs=-1),
    *TEMPLATE_OPTIONS,
    SYSTEM_OPTION,
    option(
        "-f",
        "--file",
        "files",
        multiple=True,
        type=FileName(),
        metavar="FILE",
        saved=absolute,
        help="Put this file's text, under its name, before the prompt.",
    ),
    option("--raw", is_flag=True, help="Go on from the prompt as it stands, without the chat template."),
    option(
        "--dry-run", is_flag=True, saved=None, help="Print the prompt as the model would get it, and generate nothing."
    ),
    option(
        "--save-template",
        metavar="NAME",
        saved=None,
        help="Save prompt, system prompt and options for -t NAME; generate nothing.",
    ),
)
_CHAT_OPTIONS = (
    click.argument("prompt", nargs=-1),
    *TEMPLATE_OPTIONS,
    option(
        "-f",
        "--file",
        "files",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="Put this file's text, under its name, before the first message.",
    ),
    SYSTEM_OPTION,
    option(
        "--load", "file", type=FileName(), metavar="FILE", help="Go on with the conversation in a file of leap export."
    ),
    option(
        "--jsonl", is_flag=True, help="Read a JSON message a line (OpenAI's shape), and write a JSON message a line."
    ),
    option(
        "--on-overflow",
        type=click.Choice(["error", "oldest", "summarize"]),
        help="When the context is full: leave the oldest turns out, put a summary in their place, or fail. A terminal "
        "is asked; a pipe leaves the oldest out.",
    ),
)

_MEDIA_OPTIONS = (
    option(
        "--image",
        "images",
        multiple=True,
        type=FileName(),
        saved=absolute,
        metavar="FILE",
        help="Show the model this picture (JPEG, PNG, WebP, ...); - reads standard input.",
    ),
    option(
        "--audio",
        "sounds",
        multiple=True,
        type=FileName(),
        saved=absolute,
        metavar="FILE",
        help="Let the model hear this sound (WAV, FLAC, OGG, MP3, ...); - reads standard input.",
    ),
)


def _prompt(arguments: Arguments) -> Prompt:
    save_as = arguments["save_template"]
    return Prompt(
        arguments["prompt"],
        read_system_option(arguments),
        checked_template(arguments["template"]),
        **arguments.of("files", "raw", "dry_run"),
        save_as=save_as,
        typed={} if save_as is None else typed_options(arguments),
    )


def _chat_beginning(arguments: Arguments) -> ChatBeginning:
    template = checked_template(arguments["template"])
    pattern = None if template is None or template.pattern.text == INPUT else template.pattern
    parts = [*(attach(file, arguments.env) for file in arguments["files"]), " ".join(arguments["prompt"])]
    first = "\n\n".join(part for part in parts if part.strip())
    if arguments["jsonl"] and (first or pattern is not None):
        raise click.UsageError("--jsonl takes its messages from standard input; leave PROMPT, -f and --template out")
    if not arguments["jsonl"] and arguments.is_typed("top_logprobs"):
        raise click.UsageError("--top-logprobs needs --jsonl: its messages have the probabilities beside the content")
    from leap_core.runner.overflow import Overflow

    overflow = None if arguments["on_overflow"] is None else Overflow(arguments["on_overflow"])
    return ChatBeginning(first, read_system_option(arguments), pattern, arguments["file"], arguments["jsonl"], overflow)


def with_media(parts: tuple[ChatMessageContent, ...], text: str) -> ChatMessage | str:
    """The user's message: the text alone where there are no other parts."""
    if not parts:
        return text
    from leap_core.messages import ChatMessage, Text

    return ChatMessage("user", [*parts, *([Text(text)] if text else [])])


def read_system_option(arguments: Arguments) -> str | None:
    """The system prompt that the option means. Raises UsageError for a file that cannot be read."""
    return None if arguments["system"] is None else read_system(arguments["system"], arguments.env)


PROMPT = OptionGroup(
    "prompt",
    "Prompt",
    _OPTIONS,
    _prompt,
    {
        "raw": (
            *("images", "sounds", "system", "tool", "tools_file", "tool_choice", "think", "show_thinking"),
            *("background", "continue_last", "session", "save"),
        ),
        "dry_run": ("background", "speak", "play"),
        "save_template": ("background", "dry_run", "target", "template"),
    },
)
MEDIA = OptionGroup(
    "media", "Prompt", _MEDIA_OPTIONS, lambda arguments: Media(arguments["images"], arguments["sounds"])
)
CHAT_BEGINNING = OptionGroup("beginning", "Prompt", _CHAT_OPTIONS, _chat_beginning, {"file": ("continue_last",)})

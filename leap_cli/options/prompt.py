"""What goes into the prompt: words, a saved template, a system prompt, files, images and audio."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import click

from leap_core.system.dataclass import dataclass

from ..config.saved import (
    NAME,
    TEMPLATES,
    FilledTemplate,
    PromptTemplate,
    read_parameters,
    read_template,
    write_template,
)
from ..framework.arguments import FileName, absolute, text_argument
from ..framework.environment import Environment
from ..framework.option_defaults import OptionDefaults, option_name, options_of
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import LeapOption, option
from ..framework.output import Output
from ..input.files import STDIN, attach, kind_of_file, pictures_in, read_audio, read_image
from ..input.prompt import INPUT, Pattern, names_in, read_prompt, read_system

if TYPE_CHECKING:
    from leap_core.conversation.conversation import Overflow
    from leap_core.conversation.messages import ChatMessage, ChatMessageContent

MEANS_ANOTHER_THING = {"batch": ("format",)}
"""Options of ``leap generate`` that mean another thing in a command, and are passed over there."""


def _take(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """Fill the template when the second of both options is read, in either order: that is before every option whose
    default it may be. The value of ``template`` is then what it was filled to."""
    if option.name == "param":
        value = tuple(text_argument(each, "--param") for each in value)
    other = "param" if option.name == "template" else "template"
    if other not in context.params or context.resilient_parsing:
        return value
    if option.name == "template":
        return _filled(context, value, context.params["param"])
    context.params["template"] = _filled(context, context.params["template"], value)
    return value


TEMPLATE_OPTIONS = (
    option(
        "-t",
        "--template",
        metavar="TEMPLATE",
        callback=_take,
        saved=None,
        heading="Prompt",
        help="Use this saved template: prompt, system prompt, options.",
    ),
    option(
        "-p",
        "--param",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_take,
        saved=None,
        heading="Prompt",
        help="Set a variable of the template.",
    ),
)
"""Options whose values come after those on the command line and before all others; they must be a command's first.
The value of ``template`` is a FilledTemplate, or None."""


def checked_template(filled: FilledTemplate | None, *, of_lines: bool = False) -> FilledTemplate | None:
    """The template. Raises UsageError naming variables without a value. ``of_lines``: each line of a batch brings
    values for the prompt, so only those of the system prompt must be known."""
    if filled is not None:
        filled.check(names_in(filled.template.system) if of_lines else filled.template.declared)
    return filled


def _filled(context: click.Context, name: str | None, values: tuple[str, ...]) -> FilledTemplate | None:
    typed = context.get_parameter_source("param") is click.core.ParameterSource.COMMANDLINE
    defaults = context.default_map
    assert isinstance(defaults, OptionDefaults)
    if name is not None and "{" in name and not NAME.fullmatch(name) and context.command.name == "batch":
        defaults.prefer({"pattern": name}, "--template")  # what --template was before templates were for batches too
        name = None
    if name is None:
        if typed:
            raise click.UsageError("-p gives values to a template: name one with -t")
        return None
    env = context.ensure_object(Environment)
    template = read_template(env, name)
    parameters = read_parameters(values)
    if not typed:  # a general wish of the configuration
        known = (*template.declared, *template.undeclared)
        parameters = {name: value for name, value in parameters.items() if name in known}
    filled = template.with_values(parameters)
    file = str(TEMPLATES.path(env, name))
    for each in template.undeclared:
        if each not in parameters:
            Output(env).note(f'{{{each}}} stands as it is: variables = ["{each}"] in {file} makes it a variable')
    options = _options_here(context, template.options, name, file)
    if filled.system is not None:
        options["system"] = f"@{filled.system}" if filled.system.startswith("@") else filled.system
    defaults.prefer(options, file)
    return filled


def _options_here(context: click.Context, options: dict[str, Any], template: str, file: str) -> dict[str, Any]:
    """The options that this command has; a note names those of ``leap generate`` alone, which are left out."""
    from ..command_table import command_line

    _check_saved(options, context.command, file)
    own = _names(context.command)
    other = MEANS_ANOTHER_THING.get(str(context.command.name), ())
    missing = [name for name in options if name not in own]
    if missing and context.command.name != "generate":
        generate = command_line.get_command(context, "generate")
        assert generate is not None
        _check_saved(options, generate, file)
        missing = [name for name in missing if name in _names(generate)]
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        if missing:
            Output(context.ensure_object(Environment)).note(
                f"the template {template}: leap {context.command.name} has no {flags}; left out"
            )
        options = {name: value for name, value in options.items() if name not in missing}
    return {name: value for name, value in options.items() if name not in other}


def _names(command: click.Command) -> set[str]:
    return {option_name(option) for option in options_of(command)}


def _check_saved(options: dict[str, Any], command: click.Command, file: str) -> None:
    for each in options_of(command):
        if isinstance(each, LeapOption) and each.saved is None and option_name(each) in options:
            raise click.UsageError(f"{file}: the option {option_name(each)} cannot be part of a template")


def check_options(template: PromptTemplate, file: str) -> None:
    """Raises UsageError for options of a template that ``leap generate`` could not take."""
    from ..command_table import command_line
    from ..config.settings import find

    generate = command_line.get_command(click.Context(command_line), "generate")
    assert generate is not None
    _check_saved(template.options, generate, file)
    for name, value in template.options.items():
        find(f"options.generate.{name}").from_toml(value, f"{file}: {name}")


def typed_options(arguments: Arguments) -> dict[str, Any]:
    """The options that were typed, by their names, as a saved prompt keeps them. Raises what reading a schema or a
    grammar raises."""
    typed: dict[str, Any] = {}
    for each, value in arguments.typed_options():
        if isinstance(each, LeapOption) and each.saved is not None:
            texts = [_saved(each, one, arguments.env) for one in value] if each.multiple else None
            typed[option_name(each)] = _saved(each, value, arguments.env) if texts is None else texts
    return typed


def _saved(option: LeapOption, value: Any, env: Environment) -> Any:
    if not isinstance(value, str) or option.saved is None:
        return value
    return option.saved(text_argument(value, f"--{option_name(option).replace('_', '-')}"), env)


def save_template(env: Environment, template: PromptTemplate, defaults: dict[str, str], *, replace: bool) -> str:
    """Write a template that declares the names in its texts, with these defaults; where it is. Raises UsageError for
    one that is there, and for a default of nothing."""
    path = TEMPLATES.free(env, template.name, replace=replace)
    if not template.prompt.strip():
        raise click.UsageError("the prompt is empty; {input} alone is the prompt as it is asked")
    if template == PromptTemplate(template.name, about=template.about):
        raise click.UsageError("there is nothing to save: give a prompt, --system or options")
    variables = names_in(template.system, template.prompt)
    for name in defaults:
        if name not in variables:
            raise click.UsageError(
                f"-p gives {name} a default, but {{{name}}} is neither in the prompt nor in the system prompt"
            )
    whole = PromptTemplate(
        template.name,
        about=template.about,
        system=template.system,
        prompt=template.prompt,
        options=template.options,
        variables=variables,
        defaults=defaults,
    )
    write_template(env, whole)
    needs = [name for name in variables if name not in defaults]
    return f"saved {path}" + (f"; it needs {' '.join(f'-p {name}=...' for name in needs)}" if needs else "")


@dataclass(frozen=True)
class Media:
    """The files that were named: pictures, then sounds, each in their order. Raises UsageError for standard input
    twice."""

    images: tuple[str, ...] = ()
    sounds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (*self.images, *self.sounds).count(STDIN) > 1:
            raise click.UsageError("'-' means standard input and can be given only once")

    def __bool__(self) -> bool:
        return bool(self.images or self.sounds)

    @property
    def reads_stdin(self) -> bool:
        """Whether standard input is one of them, and so no text."""
        return STDIN in self.images or STDIN in self.sounds

    def read(self, env: Environment, output: Output, files: Sequence[str] = ()) -> tuple[ChatMessageContent, ...]:
        """The parts of a message, with the pages of ``files`` that are pictures; models were trained to see and hear
        before they are asked. Raises UsageError."""
        pictures = (read_image(name, env, output) for name in self.images)
        return (*pictures, *pictures_in(files, env), *(read_audio(name, env, output) for name in self.sounds))


@dataclass(frozen=True)
class Prompt:
    """What one answer is asked for. ``raw``: the model continues from the text, without the chat template. ``save_as``:
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


def _files(meaning: str, **more: Any) -> Callable[[Any], Any]:
    return option("-f", "--file", "files", multiple=True, type=FileName(), help=meaning, **more)


SYSTEM_OPTION = option("-s", "--system", saved=None, help="System prompt; @FILE reads it from a file.")
_OPTIONS = (
    click.argument("prompt", nargs=-1),
    *TEMPLATE_OPTIONS,
    SYSTEM_OPTION,
    _files("Add this file's or URL's text before the prompt; documents, images and audio work, too.", saved=absolute),
    option("--raw", is_flag=True, help="Complete the raw prompt without the chat template."),
    option("--dry-run", is_flag=True, saved=None, help="Print the rendered prompt and generate nothing."),
    option(
        "--save-template",
        metavar="NAME",
        saved=None,
        help="Save prompt, system prompt and options as -t NAME; generate nothing.",
    ),
)
_CHAT_OPTIONS = (
    click.argument("prompt", nargs=-1),
    *TEMPLATE_OPTIONS,
    _files("Add this file's or URL's text before the first message; documents and images work, too."),
    SYSTEM_OPTION,
    option("--load", "file", type=FileName(), help="Continue the conversation in a file of leap export."),
    option("--jsonl", is_flag=True, help="Read and write one JSON message per line (OpenAI's format)."),
    option(
        "--on-overflow",
        type=click.Choice(["error", "oldest", "summarize"]),
        help="When the context window is full: drop the oldest turns, summarize them, or fail. A terminal asks; a "
        "pipe drops them.",
    ),
)

_MEDIA_OPTIONS = (
    option(
        "--image",
        "images",
        multiple=True,
        type=FileName(),
        saved=absolute,
        help="Add this image (JPEG, PNG, WebP, ...); - reads standard input.",
    ),
    option(
        "--audio",
        "sounds",
        multiple=True,
        type=FileName(),
        saved=absolute,
        help="Add this audio (WAV, FLAC, OGG, MP3, ...); - reads standard input.",
    ),
)


def _prompt(arguments: Arguments) -> Prompt:
    save_as, files = arguments["save_template"], _texts(arguments)
    if arguments["raw"] and files != arguments["files"]:
        raise click.UsageError("--raw completes plain text and cannot be combined with images or audio")
    return Prompt(
        arguments["prompt"],
        read_system_option(arguments),
        checked_template(arguments["template"]),
        **arguments.of("raw", "dry_run"),
        files=files,
        save_as=save_as,
        typed={} if save_as is None else typed_options(arguments),
    )


def _texts(arguments: Arguments) -> tuple[str, ...]:
    """The files that are no pictures and no sounds."""
    return tuple(name for name in arguments["files"] if kind_of_file(name, arguments.env) is None)


def _media(arguments: Arguments) -> Media:
    """A picture or a sound that was given as any file goes where its kind belongs."""
    kinds = [(kind_of_file(name, arguments.env), name) for name in arguments.get("files") or ()]
    images, sounds = ([name for each, name in kinds if each == kind] for kind in ("image", "audio"))
    return Media((*arguments["images"], *images), (*arguments["sounds"], *sounds))


def _chat_beginning(arguments: Arguments) -> ChatBeginning:
    template = checked_template(arguments["template"])
    pattern = None if template is None or template.pattern.text == INPUT else template.pattern
    parts = [*(attach(file, arguments.env) for file in _texts(arguments)), " ".join(arguments["prompt"])]
    first = "\n\n".join(part for part in parts if part.strip())
    if arguments["jsonl"] and (first or pattern is not None):
        raise click.UsageError("--jsonl takes its messages from standard input; leave PROMPT, -f and --template out")
    if not arguments["jsonl"] and arguments.is_typed("top_logprobs"):
        raise click.UsageError("--top-logprobs needs --jsonl: its messages have the probabilities beside the content")
    from leap_core.conversation.conversation import Overflow

    overflow = None if arguments["on_overflow"] is None else Overflow(arguments["on_overflow"])
    return ChatBeginning(first, read_system_option(arguments), pattern, arguments["file"], arguments["jsonl"], overflow)


def with_media(parts: tuple[ChatMessageContent, ...], text: str) -> ChatMessage | str:
    """The user's message: the text alone where there are no other parts."""
    if not parts:
        return text
    from leap_core.conversation.messages import ChatMessage, Text

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
            *("images", "sounds", "system", "tool", "tools_file", "tool_choice", "think"),
            *("background", "continue_last", "session", "save"),
        ),
        "dry_run": ("speak", "play"),
        "save_template": ("background", "dry_run", "target", "template"),
    },
)
MEDIA = OptionGroup("media", "Prompt", _MEDIA_OPTIONS, _media)
CHAT_BEGINNING = OptionGroup("beginning", "Prompt", _CHAT_OPTIONS, _chat_beginning, {"file": ("continue_last",)})

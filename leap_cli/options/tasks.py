"""The options that task commands share: where texts come from and where answers go, the model, and how it is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..framework.environment import Environment
from ..framework.option_defaults import OptionDefaults
from ..framework.output import Output
from ..input.prompt import read_standard_input
from ..input.text_files import read_text_file
from .background import background_flags
from .loading import loading_flags

if TYPE_CHECKING:
    from leap_core.messages import ChatMessage
    from leap_core.options import GenerationOptions
    from leap_core.tasks.task import RecipeTask

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
LOADING = ("context_size", "cpu_threads", "n_gpu_layers")
OWN = ("files", "lines", "target", "errors", "dry_run", "model", "verbose", "background", "priority", "job_retries")
SAMPLING = ("temperature", "rng_seed", "max_tokens")
STDIN = "-"


def task_flags(function: Decorated) -> Decorated:
    """Add FILES and the options that all tasks have; ``take_flags`` takes them."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return click.argument("files", metavar="[FILE]...", nargs=-1)(function)


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--lines", is_flag=True, help="Take each line as a text of its own."),
    click.option("-o", "--output", "target", metavar="FILE", help="Write the answers to this file."),
    click.option("--errors", metavar="FILE", help="Write the texts that failed, and why, to this file as JSONL."),
    click.option(
        "--dry-run", is_flag=True, help="Print the prompts as the model would get them, and generate nothing."
    ),
    loading_flags,
    click.option(
        "--temperature", type=float, metavar="N", help="Draw tokens with this randomness, in the place of the recipe's."
    ),
    click.option(
        "--seed", "rng_seed", type=int, metavar="N", help="Sample with this seed, which makes the answer repeatable."
    ),
    click.option("--max-tokens", type=int, metavar="N", help="End each answer of the model after this many tokens."),
    background_flags(),
)


@dataclass(frozen=True)
class TaskFlags:
    """The values of the options that all tasks have."""

    files: tuple[str, ...]
    lines: bool
    target: str | None
    errors: str | None
    dry_run: bool
    model: str | None
    verbose: bool
    background: bool
    priority: int
    job_retries: int
    loading: dict[str, Any]
    overrides: GenerationOptions


@dataclass(frozen=True)
class TaskInput:
    """What a task is done to, and its name: a file's, with a line's number where each line is one. ``picture``: the
    file that it is a picture of."""

    name: str
    message: ChatMessage
    picture: str | None = None


def take_flags(flags: dict[str, Any]) -> TaskFlags:
    """Take the flags out of ``flags``. Raises UsageError or LeapOptionsError."""
    from leap_core.options import GenerationOptions

    defaults = click.get_current_context().default_map
    if isinstance(defaults, OptionDefaults) and "temperature" in defaults.for_all & _not_typed("temperature"):
        flags["temperature"] = None  # meant for answers in general; a task is asked as its recipe says
    loading = {name: flags.pop(name) for name in LOADING}
    overrides = GenerationOptions(**{name: flags.pop(name) for name in SAMPLING})
    values = TaskFlags(**{name: flags.pop(name) for name in OWN}, loading=loading, overrides=overrides)
    if values.dry_run and values.background:
        raise click.UsageError("--dry-run cannot be combined with --background")
    return values


def read_inputs(flags: TaskFlags, env: Environment) -> list[TaskInput]:
    """The texts of the FILEs, or of standard input without any. Raises UsageError where there is none."""
    from leap_core.messages import ChatMessage

    parts = [part for name in flags.files or (STDIN,) for part in _texts_of(name, flags, env)]
    if not any(text.strip() for _, text in parts):
        raise click.UsageError("there is no text: give FILEs, or the text on standard input")
    return named_apart([TaskInput(name, ChatMessage("user", text)) for name, text in parts])


def named_apart(inputs: Sequence[TaskInput]) -> list[TaskInput]:
    """The inputs with names that differ."""
    from dataclasses import replace

    counts: dict[str, int] = {}
    apart = []
    for each in inputs:
        counts[each.name] = counts.get(each.name, 0) + 1
        apart.append(each if counts[each.name] == 1 else replace(each, name=f"{each.name}#{counts[each.name]}"))
    return apart


def read_source(name: str, env: Environment) -> str:
    """The whole text of a file, or with ``-`` of standard input. Raises UsageError."""
    return read_standard_input(env, Output(env)) if name == STDIN else read_text_file(name, env)


def read_task_of(fields: dict[str, Any], env: Environment) -> RecipeTask:
    """The task that these fields describe, with the user's recipe or leap's. Raises UsageError for a parameter."""
    from leap_core.errors import LeapOptionsError, LeapSerializationError
    from leap_core.tasks.reading import read_task

    try:
        return read_task(fields, own_recipes(env, fields["task"]))[0]
    except (LeapSerializationError, LeapOptionsError) as error:
        hint = f" ({error.hint})" if error.hint else ""
        raise click.UsageError(f"--{error.message}{hint}") from None


def own_recipes(env: Environment, name: str = "*") -> dict[str, str]:
    """The texts of the user's own recipes, or of the one of this name. Raises LeapOptionsError where one cannot be
    read."""
    paths = sorted(path for path in recipes_directory(env).glob(f"{name}.toml") if not path.name.startswith("."))
    if not paths:
        return {}
    from leap_core.tasks.recipe import text_of_recipe

    return {path.stem: text_of_recipe(path) for path in paths}


def recipes_directory(env: Environment) -> Path:
    """Where the user's own recipes stand."""
    return env.directories.config / "recipes"


def _not_typed(name: str) -> set[str]:
    source = click.get_current_context().get_parameter_source(name)
    return {name} if source is click.core.ParameterSource.DEFAULT_MAP else set()


def _texts_of(name: str, flags: TaskFlags, env: Environment) -> list[tuple[str, str]]:
    text = read_source(name, env).rstrip("\r\n")
    if not flags.lines:
        return [(name, text)]
    return [(f"{name}:{n}", line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]

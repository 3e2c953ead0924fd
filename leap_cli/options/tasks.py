"""The options that task commands share: where texts come from, the model, and showing the prompt only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..framework.environment import Environment
from ..framework.output import Output
from ..input.prompt import read_text
from ..input.text_files import read_text_file
from .loading import load_model, loading_flags

if TYPE_CHECKING:
    from leap_core.messages import ChatMessage
    from leap_core.options import GenerationOptions
    from leap_core.runner.contract import ModelRunner
    from leap_core.tasks.recipe import Wording

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
LOADING = ("context_size", "cpu_threads", "n_gpu_layers")


def task_flags(function: Decorated) -> Decorated:
    """Add FILES, --lines, --dry-run and the options of loading; ``take_task`` takes them."""
    function = click.option(
        "--dry-run", is_flag=True, help="Print the prompts as the model would get them, and generate nothing."
    )(function)
    function = click.option("--lines", is_flag=True, help="Take each line as a text of its own.")(function)
    function = loading_flags(function)
    return click.argument("files", metavar="[FILE]...", nargs=-1)(function)


@dataclass(frozen=True)
class TaskTexts:
    """What a task is done to, and how. ``texts``: names and contents, in order."""

    task: str
    texts: list[tuple[str, str]]
    dry_run: bool
    model: str | None
    loading: dict[str, Any]
    verbose: bool
    env: Environment

    @contextmanager
    def opened(self) -> Iterator[tuple[ModelRunner, Wording]]:
        """The model, and the recipe's wording for it."""
        from leap_core.tasks.recipe import read_recipe

        recipe = read_recipe(self.task, [recipes_directory(self.env)])
        with load_model(self.env, self.model, self.loading, verbose=self.verbose) as runner:
            yield runner, recipe.wording_for(runner.model_id)

    def show(self, runner: ModelRunner, messages: list[ChatMessage], options: GenerationOptions) -> None:
        """Print the prompt that the model would get."""
        Output(self.env).text(runner.render(messages, (), options).text + "\n")


def take_task(task: str, flags: dict[str, Any], env: Environment) -> TaskTexts:
    """Take the flags out of ``flags`` and read the texts: FILEs, or standard input without any. Raises UsageError."""
    files, lines, dry_run = flags.pop("files"), flags.pop("lines"), flags.pop("dry_run")
    texts = []
    for name in files or ("-",):
        text = read_text(env, Output(env)) if name == "-" else read_text_file(name, env)
        parts = [line for line in text.splitlines() if line.strip()] if lines else [text]
        texts += [(f"{name}:{n}" if lines else name, part) for n, part in enumerate(parts, 1)]
    if not any(text.strip() for _, text in texts):
        raise click.UsageError("there is no text: give FILEs, or the text on standard input")
    loading = {name: flags.pop(name) for name in LOADING}
    return TaskTexts(task, texts, dry_run, flags.pop("model"), loading, flags.pop("verbose"), env)


def recipes_directory(env: Environment) -> Path:
    """Where the user's own recipes stand."""
    return env.directories.config / "recipes"

"""``leap summarize``."""

from __future__ import annotations

from typing import Any

import click

from ..exit_codes import ExitCode
from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..framework.output import Output
from ..options.tasks import recipes_directory, take_task, task_flags

KINDS = ("executive", "detailed", "actions", "decisions", "participants", "topics")


@leap_command("summarize")
@task_flags
@click.option(
    "--kind", type=click.Choice(KINDS), default="executive", show_default=True, help="Write this kind of summary."
)
@click.pass_obj
def command(env: Environment, /, kind: str, **flags: Any) -> ExitCode:
    """Summarize FILEs, or standard input. A text beyond the context is cut, and the summaries of its pieces are
    summarized, until one is left."""
    from leap_core.tasks.extraction import pieces_that_fit
    from leap_core.tasks.recipe import read_recipe

    from ..answers.tasks import answer_text, fits_in_context

    task, output = take_task("summarize", flags, env), Output(env)
    instruction = read_recipe("summarize", [recipes_directory(env)]).kinds.get(kind, kind)
    with task.opened() as (runner, wording):
        options = wording.generation_options()

        def messages(text: str) -> list[Any]:
            return wording.messages({"kind": instruction, "text": text})

        def summary(text: str, level: int = 0) -> str:
            pieces = pieces_that_fit(text, lambda piece: fits_in_context(runner, messages(piece)))
            if task.verbose:
                output.note(
                    f"{'  ' * level}{len(pieces)} piece{'s' if len(pieces) > 1 else ''} of {len(text)} characters"
                )
            answers = [answer_text(runner, messages(piece), options).strip() for piece in pieces]
            joined = "\n\n".join(answers)
            return joined if len(pieces) == 1 or len(joined) >= len(text) else summary(joined, level + 1)

        for _, text in task.texts:
            if task.dry_run:
                for piece in pieces_that_fit(text, lambda piece: fits_in_context(runner, messages(piece))):
                    task.show(runner, messages(piece), options)
            else:
                output.text(summary(text) + "\n")
    return ExitCode.DONE

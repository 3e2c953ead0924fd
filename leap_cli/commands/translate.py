"""``leap translate``."""

from __future__ import annotations

from typing import Any

import click

from ..exit_codes import ExitCode
from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..framework.output import Output
from ..options.tasks import take_task, task_flags

LANGUAGES = {
    "ar": "Arabic",
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "fr": "French",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "no": "Norwegian",
    "pt": "Portuguese",
    "sv": "Swedish",
    "zh": "Chinese",
}


@leap_command("translate")
@task_flags
@click.option(
    "--to",
    "language",
    required=True,
    metavar="LANGUAGE",
    help="Translate into this language: a code such as ja, or a name.",
)
@click.pass_obj
def command(env: Environment, /, language: str, **flags: Any) -> ExitCode:
    """Translate FILEs, or standard input, paragraph by paragraph where a text is too long for the model."""
    from leap_core.errors import LeapOptionsError
    from leap_core.tasks.extraction import pieces_that_fit

    from ..answers.tasks import answer_text, fits_in_context

    task = take_task("translate", flags, env)
    name, output = LANGUAGES.get(language.lower(), language.capitalize()), Output(env)
    with task.opened() as (runner, wording):
        if wording.only is not None and name not in wording.only:
            raise LeapOptionsError("to", f"{runner.model_id} translates to {' and '.join(wording.only)} only")
        options = wording.generation_options()

        def messages(text: str) -> list[Any]:
            return wording.messages({"language": name, "text": text})

        for _, text in task.texts:
            for piece in pieces_that_fit(text.strip("\n"), lambda piece: fits_in_context(runner, messages(piece))):
                if task.dry_run:
                    task.show(runner, messages(piece), options)
                else:
                    output.text(answer_text(runner, messages(piece), options).rstrip("\n") + "\n")
    return ExitCode.DONE

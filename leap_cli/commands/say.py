"""``leap say``: a text, read aloud."""

from __future__ import annotations

from typing import Any

import click

from leap_core.speech.voices import DEFAULT_VOICE, VOICES, voice_prompt

from ..exit_codes import ExitCode
from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..framework.output import Output
from ..input.prompt import read_prompt
from ..options.background import background_flags, policy_of, tell_id
from ..options.generation import generation_options, spoken_generation_flags
from ..options.loading import (
    host_for_job,
    load_model,
    loading_flags,
    model_reference,
    note_builtin,
    telling_the_default,
)
from ..options.speech import SpeechTarget, check_target


@leap_command("say")
@click.argument("text", nargs=-1)
@click.option(
    "--voice",
    type=click.Choice(list(VOICES), case_sensitive=False),
    default=DEFAULT_VOICE,
    show_default=True,
    help="Speak with this voice; the model knows no others.",
)
@click.option(
    "-o",
    "--output",
    "file",
    metavar="FILE",
    help="Write this WAV file; - is standard output, FILE.pcm gets bare samples.",
)
@click.option("--play", is_flag=True, help="Play the sound as it is made. Needs leap-edge[play].")
@loading_flags
@spoken_generation_flags
@click.option("--stats", is_flag=True, help="Show token counts and speed on stderr.")
@background_flags()
@click.pass_obj
def command(
    env: Environment,
    /,
    text: tuple[str, ...],
    voice: str,
    file: str | None,
    play: bool,
    model: str | None,
    context_size: int | None,
    cpu_threads: int | None,
    n_gpu_layers: int | str,
    verbose: bool,
    stats: bool,
    background: bool,
    priority: int,
    job_retries: int,
    **flags: Any,
) -> ExitCode:
    """Read TEXT aloud, from the arguments and standard input. The model has to be one that speaks.

    Ctrl-C stops the voice and keeps what has been said.
    """
    from ..answers.show import show_answer
    from ..answers.speech import SpokenOutput

    output = Output(env)
    target = SpeechTarget(file, play or file is None)
    check_target(target, env, "-o")
    options = generation_options(flags)
    system = voice_prompt(voice)
    words = read_prompt(text, env, output)
    loading = {"context_size": context_size, "cpu_threads": cpu_threads, "n_gpu_layers": n_gpu_layers}
    if background:
        if target.play or target.is_stdout or file is None:
            raise click.UsageError("--background speaks into a file only: give -o a file's name")
        from jobs.client import JobsClient

        with telling_the_default(env, model), JobsClient(env.variables, on_warning=output.note) as jobs:
            id = jobs.generate(
                words,
                model=model_reference(env, model),
                system=system,
                options=options,
                loading=loading,
                host=host_for_job(),
                policy=policy_of(priority, job_retries),
                cwd=env.cwd,
                speech=env.cwd / file,
            )
        tell_id(output, id)
        return ExitCode.DONE
    with (
        SpokenOutput(target, env, output) as spoken,
        load_model(env, model, loading, verbose=verbose) as runner,
    ):
        spoken.check(runner)
        conversation = runner.create_conversation(system)
        complete = show_answer(
            spoken.hearing(conversation.generate_response(words, options)),
            Output(spoken.text_place(env)),
            model=runner.model_id,
            show_stats=stats,
            before_first=lambda: note_builtin(env, model, output),
        )
        if complete.finish_reason.value == "interrupted":
            raise click.exceptions.Exit(ExitCode.INTERRUPTED)
    return ExitCode.DONE

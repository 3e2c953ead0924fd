"""``leap generate``: one prompt, one answer."""

from __future__ import annotations

from typing import Any

import click

from leap_core.speech.voices import CONVERSATION_PROMPT

from ..answers.file import writing_to
from ..config.saved_prompts import PromptTemplate
from ..exit_codes import ExitCode
from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..framework.output import Format, Output
from ..input.pattern import INPUT
from ..input.prompt import read_prompt, read_system
from ..input.text_files import attach
from ..options.background import background_flags, policy_of, refuse_typed, tell_id
from ..options.constraints import constraint_flags, take_constraint
from ..options.generation import generation_flags, generation_options
from ..options.generation_details import generation_details
from ..options.loading import (
    host_for_job,
    load_model,
    loading_flags,
    model_reference,
    note_builtin,
    telling_the_default,
)
from ..options.loading_details import loading_fields
from ..options.media import media_flags, take_media, with_media
from ..options.one_shot import one_shot_flags, take_one_shot
from ..options.output_format import FormatChoice
from ..options.saved_prompts import chosen_template, template_flags
from ..options.saving_prompts import save_template, typed_options
from ..options.sessions import session_flags, session_model, take_session
from ..options.speech import speech_flags, take_speech
from ..options.tools import take_tools, tool_flags


@leap_command("generate")
@click.argument("prompt", nargs=-1)
@template_flags
@click.option("-s", "--system", metavar="TEXT", help="Give the model this system prompt; @FILE reads it from a file.")
@media_flags
@one_shot_flags
@speech_flags
@loading_flags
@generation_flags
@generation_details
@constraint_flags
@tool_flags
@session_flags(saves=False)
@click.option("--stream/--no-stream", default=True, help="Print the answer as it comes (default), or at its end.")
@click.option(
    "--format",
    type=FormatChoice([Format.TEXT.value, Format.JSON.value, Format.JSONL.value]),
    default=Format.TEXT.value,
    help="Print text, one json document, or jsonl: each event as it comes.",
)
@click.option("--stats", is_flag=True, help="Show token counts and speed on stderr.")
@background_flags()
@click.pass_context
def command(
    ctx: click.Context,
    /,
    prompt: tuple[str, ...],
    system: str | None,
    model: str | None,
    context_size: int | None,
    cpu_threads: int | None,
    n_gpu_layers: int | str,
    verbose: bool,
    stream: bool,
    format: str,
    stats: bool,
    background: bool,
    priority: int,
    job_retries: int,
    **flags: Any,
) -> ExitCode:
    """Answer one PROMPT, from files, the arguments and standard input, with a blank line between them.

    The answer goes to stdout and everything else to stderr. Ctrl-C stops the answer and keeps what has come. The name
    of the command may be left out where the first argument has a space in it: leap "What is the capital of Italy?"
    """
    from ..answers.one_shot import Question
    from ..answers.speech import SpokenOutput

    env = ctx.ensure_object(Environment)
    shot = take_one_shot(flags)
    media = take_media(flags)
    target = take_speech(flags, env)
    output = Output(env, format)
    shape = take_constraint(flags, env)
    tools = take_tools(flags, env)
    shot.check_tools(tools)
    sessions = shot.take_part(take_session(flags, saves=False))
    options = generation_options({**flags, **shape, "tool_choice": tools.choice}, enable_thinking=shot.thinks)
    if system is not None:
        system = read_system(system, env)
    elif target and background:
        system = CONVERSATION_PROMPT
    if shot.save_template is not None:
        output.note(_save(ctx, env, shot.save_template, " ".join(prompt), system))
        return ExitCode.DONE
    text = read_prompt(
        prompt,
        env,
        output,
        before=[attach(file, env) for file in shot.files],
        pattern=shot.pattern,
        stdin_is_taken=media.reads_stdin,
        may_be_empty=bool(media),
    )
    message = with_media(media.read(env, output), text)
    loading = {"context_size": context_size, "cpu_threads": cpu_threads, "n_gpu_layers": n_gpu_layers}
    if background:
        if sessions.continues:
            raise click.UsageError("--background answers one prompt alone: leave -c and --session out")
        if sessions.save:
            refuse_typed("save", "--save")
        if target.play or target.is_stdout:
            raise click.UsageError("--background speaks into a file only: give --speak a file's name")
        if any(function.call is not None for function in tools.functions):
            raise click.UsageError("--background cannot ask before it runs tools; declare them without code")
        from jobs.client import JobsClient

        with telling_the_default(env, model), JobsClient(env.variables, on_warning=output.note) as jobs:
            id = jobs.generate(
                message if isinstance(message, str) else [message],
                model=model_reference(env, model),
                system=system,
                options=options,
                functions=tools.functions,
                loading={**loading, **loading_fields(env)},
                host=host_for_job(),
                policy=policy_of(priority, job_retries),
                cwd=env.cwd,
                speech=None if target.file is None else env.cwd / target.file,
            )
        note_builtin(env, model, output)
        tell_id(output, id)
        return ExitCode.DONE
    with (
        writing_to(shot.target, env) as place,
        SpokenOutput(target, env, output) as spoken,
        sessions.open(env) as recorder,
        load_model(
            env, model := session_model(recorder, env, model), shot.with_slots(loading), verbose=verbose
        ) as runner,
    ):
        if target and system is None and recorder.session is None:
            system = CONVERSATION_PROMPT
        question = Question(shot, runner, recorder, tools, system, message)
        if shot.dry_run:
            question.show_prompt(options, place, format)
            return ExitCode.DONE
        spoken.check(runner)
        code = question.answer(
            options,
            spoken.text_place(place),
            format,
            streaming=stream,
            show_stats=stats,
            spoken=spoken,
            before_first=lambda: note_builtin(env, model, output),
        )
        if code is ExitCode.INTERRUPTED:
            raise click.exceptions.Exit(code)  # so that an output file stays where nothing has come
    return code


def _save(ctx: click.Context, env: Environment, name: str, prompt: str, system: str | None) -> str:
    """Save the question under this name; what there is to say of it."""
    if chosen_template() is not None:
        raise click.UsageError("--save-template cannot be combined with --template")
    template = PromptTemplate(name, system=system, prompt=prompt or INPUT, options=typed_options(ctx, env))
    return save_template(env, template, {}, replace=False)

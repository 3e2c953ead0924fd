"""``leap generate``: one prompt, one answer."""

from __future__ import annotations

from typing import Any

import click

from ..background_flags import background_flags, policy_of, tell_id
from ..command_line import leap_command
from ..constraint_flags import constraint_flags, take_constraint
from ..environment import Environment
from ..exit_codes import ExitCode
from ..generation_flags import generation_flags, generation_options
from ..loading_flags import load_model, loading_flags, model_reference, note_builtin
from ..output import Format, Output
from ..prompt import read_prompt, text_argument
from ..session_flags import session_flags, take_session
from ..tool_flags import take_tools, tool_flags


@leap_command("generate")
@click.argument("prompt", nargs=-1)
@click.option("-s", "--system", metavar="TEXT", help="System prompt.")
@loading_flags
@generation_flags
@constraint_flags
@tool_flags
@session_flags(saves=False)
@click.option("--stream/--no-stream", default=True, help="Print the answer as it comes (default), or at its end.")
@click.option(
    "--format",
    type=click.Choice([Format.TEXT.value, Format.JSON.value, Format.JSONL.value]),
    default=Format.TEXT.value,
    help="text, one json document, or jsonl: each event as it comes.",
)
@click.option("--stats", is_flag=True, help="Show token counts and speed on stderr.")
@click.option("--show-thinking", is_flag=True, help="Let the model reason, and show that on stderr.")
@background_flags()
@click.pass_obj
def command(
    env: Environment,
    /,
    prompt: tuple[str, ...],
    system: str | None,
    model: str | None,
    context_size: int | None,
    cpu_threads: int | None,
    n_gpu_layers: int,
    verbose: bool,
    stream: bool,
    format: str,
    stats: bool,
    show_thinking: bool,
    background: bool,
    priority: int,
    job_retries: int,
    **flags: Any,
) -> ExitCode:
    """Answer one PROMPT, from the arguments, standard input, or both (then a blank line stands between them).

    The answer goes to stdout and everything else to stderr. Ctrl-C stops the answer and keeps what has come.
    """
    from ..answer import show_answer

    output = Output(env, format)
    shape = take_constraint(flags, env)
    tools = take_tools(flags, env)
    sessions = take_session(flags, saves=False)
    options = generation_options({**flags, **shape, "tool_choice": tools.choice}, enable_thinking=show_thinking)
    if system is not None:
        system = text_argument(system, "--system")
    text = read_prompt(prompt, env, output)
    loading = {"context_size": context_size, "cpu_threads": cpu_threads, "n_gpu_layers": n_gpu_layers}
    if background:
        if sessions.continues:
            raise click.UsageError("--background answers one prompt alone: leave -c and --session out")
        if any(function.call is not None for function in tools.functions):
            raise click.UsageError("--background cannot ask before it runs tools; declare them without code")
        from jobs.client import JobsClient

        with JobsClient(env.variables) as jobs:
            id = jobs.generate(
                text,
                model=model_reference(env, model),
                system=system,
                options=options,
                functions=tools.functions,
                loading=loading,
                policy=policy_of(priority, job_retries),
                cwd=env.cwd,
            )
        note_builtin(env, model, output)
        tell_id(output, id)
        return ExitCode.DONE
    with (
        sessions.open(env) as session,
        load_model(env, model := session.model_for(env, model), loading, verbose=verbose) as runner,
    ):
        conversation = session.conversation(runner, system)
        conversation.register_functions(tools.functions)
        answer = session.keeping(tools.respond(conversation, text, options), conversation, text)
        complete = show_answer(
            answer,
            output,
            model=runner.model_id,
            streaming=stream,
            show_thinking=show_thinking,
            show_stats=stats,
            document_only=options.json_schema_constraint is not None,
            calls=tools.calls(),
            before_first=lambda: note_builtin(env, model, output),
        )
    if complete.finish_reason.value == "interrupted":
        return ExitCode.INTERRUPTED
    return ExitCode.TOOL if getattr(answer, "refused", False) else ExitCode.DONE

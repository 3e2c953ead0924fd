"""``leap chat``: a conversation, line by line."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import click

from leap_core.responses import Complete
from leap_core.speech.voices import CONVERSATION_PROMPT

from ..answers.reasoning_only import ReasoningOnly
from ..exit_codes import ExitCode
from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..framework.output import Output
from ..input.pattern import INPUT
from ..input.prompt import read_system
from ..input.text_files import attach
from ..options.constraints import constraint_flags, is_shaped, take_constraint
from ..options.generation import generation_flags, generation_options
from ..options.generation_details import generation_details
from ..options.loading import load_model, loading_flags, note_builtin
from ..options.media import media_flags, take_media
from ..options.saved_prompts import chosen_template, template_flags
from ..options.sessions import session_flags, session_model, take_session
from ..options.speech import speech_flags, take_speech
from ..options.thinking import Thinking, take_thinking, thinking_flags
from ..options.tools import take_tools, tool_flags

if TYPE_CHECKING:
    from leap_core.runner.streams import Stream

    from ..chat.dialogue import Dialogue


@leap_command("chat")
@click.argument("prompt", nargs=-1)
@template_flags
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Put this file's text, under its name, before the first message.",
)
@click.option("-s", "--system", metavar="TEXT", help="Give the model this system prompt; @FILE reads it from a file.")
@media_flags
@speech_flags
@loading_flags
@generation_flags
@generation_details
@constraint_flags
@tool_flags
@session_flags(saves=True)
@click.option("--load", "file", metavar="FILE", help="Go on with the conversation in a file of leap export.")
@click.option(
    "--jsonl", is_flag=True, help="Read a JSON message a line (OpenAI's shape), and write a JSON message a line."
)
@click.option("--stream/--no-stream", default=True, help="Print answers as they come (default), or at their end.")
@click.option("--stats", is_flag=True, help="Show token counts and speed on stderr after each answer.")
@thinking_flags
@click.pass_obj
def command(
    env: Environment,
    /,
    prompt: tuple[str, ...],
    files: tuple[str, ...],
    system: str | None,
    model: str | None,
    context_size: int | None,
    cpu_threads: int | None,
    n_gpu_layers: int | str,
    verbose: bool,
    file: str | None,
    jsonl: bool,
    stream: bool,
    stats: bool,
    **flags: Any,
) -> ExitCode:
    """Talk with a model; it remembers what was said. PROMPT is the first message, with what --image and --audio name.

    At a terminal Ctrl-C stops an answer and keeps what has come, Ctrl-D leaves, and /help lists the commands. From a
    pipe each line is one turn, and the answers go to stdout one after the other.
    """
    from ..answers.show import show_answer
    from ..answers.speech import SpokenOutput
    from ..answers.tool_use import shown_calls
    from ..chat.conversation_files import read_conversation
    from ..chat.dialogue import Dialogue
    from ..chat.piped import answer_lines, answer_messages, read_through

    output = Output(env)
    media, target = take_media(flags), take_speech(flags, env)
    shape = take_constraint(flags, env)
    tools = take_tools(flags, env)
    sessions = take_session(flags, saves=True)
    if file is not None and sessions.continue_last:
        raise click.UsageError("--load brings a conversation and -c continues one: give one of them")
    loaded = None if file is None else read_conversation(file, env)
    thinking = take_thinking(flags)
    if jsonl and thinking is Thinking.ONLY:
        raise click.UsageError("--think only is for text; --jsonl has the reasoning beside the answer")
    if not jsonl:
        _refuse_logprobs(flags)
    options = generation_options({**flags, **shape, "tool_choice": tools.choice}, enable_thinking=thinking is not None)
    if system is not None:
        system = read_system(system, env)
    template = chosen_template()
    pattern = None if template is None or template.pattern.text == INPUT else template.pattern
    first = _first_message(prompt, files, env)
    if jsonl and (first or pattern is not None):
        raise click.UsageError("--jsonl takes its messages from standard input; leave PROMPT, -f and --template out")
    loading = {"context_size": context_size, "cpu_threads": cpu_threads, "n_gpu_layers": n_gpu_layers}

    numbers = count(1)

    def show(dialogue: Dialogue, answer: Stream) -> Complete:
        with SpokenOutput(target, env, output, next(numbers), demanded=False) as spoken:
            stream = spoken.hearing(answer)
            if jsonl:
                return read_through(dialogue, stream)
            return show_text(dialogue, stream, Output(spoken.text_place(env)) if target.is_stdout else output)

    def show_text(dialogue: Dialogue, answer: Stream, output: Output) -> Complete:
        return show_answer(
            ReasoningOnly(answer) if dialogue.thinking is Thinking.ONLY else answer,
            output,
            model=dialogue.conversation.model_runner.model_id,
            streaming=stream,
            show_thinking=dialogue.thinking is Thinking.SHOW,
            show_stats=stats,
            markdown=env.stdin_is_terminal and not is_shaped(dialogue.options),
            calls=shown_calls(dialogue.tools, always=env.stdin_is_terminal),
        )

    with (
        sessions.open(env) as session,
        load_model(env, model := session_model(session, env, model), loading, verbose=verbose) as runner,
    ):
        note_builtin(env, model, output)
        if loaded is not None:
            if session.session is not None:
                raise click.UsageError(f"the session {session.session.label} has begun; --load begins one")
            session.history = loaded
        if target and system is None and session.session is None and loaded is None:
            system = CONVERSATION_PROMPT
        conversation = session.conversation(runner, system)
        dialogue = Dialogue(conversation, options, tools, session, show, thinking, pattern)
        try:
            if target:
                SpokenOutput(target, env, output).check(runner)
            if media:
                dialogue.say(first, media.read(env, output))
                first = ""
            if media.reads_stdin:
                return ExitCode.DONE
            if jsonl:
                answer_messages(dialogue, env, output)
            elif env.stdin_is_terminal:
                from ..chat.terminal import talk_at_terminal

                talk_at_terminal(
                    dialogue, env, output, lambda name: load_model(env, name, loading, verbose=verbose), first
                )
            else:
                answer_lines(dialogue, env, first)
        finally:
            dialogue.conversation.model_runner.unload()
    return ExitCode.DONE


def _refuse_logprobs(flags: dict[str, Any]) -> None:
    """Only messages as JSON have a place for probabilities; a general wish for them is passed over."""
    context = click.get_current_context()
    if context.get_parameter_source("top_logprobs") is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--top-logprobs needs --jsonl: its messages have the probabilities beside the content")
    flags["top_logprobs"] = None


def _first_message(words: tuple[str, ...], files: tuple[str, ...], env: Environment) -> str:
    """What is said before anything is typed; empty where that is nothing."""
    parts = [*(attach(file, env) for file in files), " ".join(words)]
    return "\n\n".join(part for part in parts if part.strip())

"""``leap generate``: one prompt, one answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from leap_core.inference.speech.voices import CONVERSATION_PROMPT
from leap_core.system.dataclass import dataclass

from ...answers.file import check_place, is_standard, writing_to
from ...config.saved import PromptTemplate
from ...exit_codes import ExitCode
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Output
from ...input.prompt import INPUT
from ...options.answer import ANSWER, AnswerOutput
from ...options.background import BACKGROUND, Background
from ...options.constraints import SHAPE, Constraint
from ...options.conversation import SessionChoice, session_group, session_model
from ...options.loading import (
    MODEL,
    ModelChoice,
    load_model,
    note_builtin,
    submit,
)
from ...options.prompt import MEDIA, PROMPT, Media, Prompt, save_template, with_media
from ...options.sampling import SAMPLING, Sampling
from ...options.tools import TOOLS, Tools

if TYPE_CHECKING:
    from jobs.client import JobsClient
    from leap_core.conversation.messages import ChatMessage
    from leap_core.conversation.options import GenerationOptions


SMALLEST_CONTEXT = 256
"""A number below is no size of a context."""


@dataclass(frozen=True)
class GenerateArguments:
    """What is typed after ``leap generate``."""

    prompt: Prompt
    model: ModelChoice
    sampling: Sampling
    shape: Constraint
    media: Media
    tools: Tools
    session: SessionChoice
    answer: AnswerOutput
    background: Background


@leap_command("generate", into=GenerateArguments)
@PROMPT
@MEDIA
@ANSWER
@SHAPE
@SAMPLING
@TOOLS
@session_group(saves=False)
@MODEL
@BACKGROUND
def command(env: Environment, /, args: GenerateArguments) -> ExitCode:
    """Answer one PROMPT: the text of files, the arguments and standard input, joined by blank lines.

    The answer goes to stdout and everything else to stderr. Ctrl-C stops the answer and keeps what was generated. You
    may omit the command's name if the prompt contains a space: leap "What is the capital of Italy?"
    """
    from ...answers.one_shot import OneShot, hearing

    prompt, answer, tools, output = args.prompt, args.answer, args.tools, Output(env, args.answer.format)
    answer.check_tools(tools)
    _check_habits(args)
    options = args.sampling.options(args.shape, tool_choice=tools.choice, enable_thinking=answer.thinking is not None)
    if prompt.save_as is not None:
        output.note(_save(env, prompt, prompt.save_as))
        return ExitCode.DONE
    text = prompt.read(env, output, args.media)
    message = with_media(args.media.read(env, output, prompt.files), text)
    if args.background:
        return _submit(env, args, message, options)
    session = args.session
    if prompt.raw or prompt.dry_run or answer.count > 1:  # only one answer of a conversation can be a part of it
        session = replace(session, save=False)
    with (
        writing_to(answer.target, env) as place,
        session.open(env) as recorder,
        load_model(env, model := session_model(recorder, env, args.model), slots=answer.slots) as runner,
        hearing(answer.speech, env, output, runner) as spoken,
    ):
        system = prompt.system
        if answer.speech and system is None and recorder.session is None:
            system = CONVERSATION_PROMPT
        question = OneShot(answer, prompt.raw, tools.folding(runner), recorder, tools, system, message)
        if prompt.dry_run:
            question.show_prompt(options, place)
            return ExitCode.DONE
        code = question.answer(
            options, place, spoken=spoken, before_first=lambda: note_builtin(env, model.name, output)
        )
        if code is ExitCode.INTERRUPTED:
            raise click.exceptions.Exit(code)  # so that an output file stays where nothing has come
    return code


def _submit(
    env: Environment, args: GenerateArguments, message: ChatMessage | str, options: GenerationOptions
) -> ExitCode:
    """Hand the question to the background and print the job's id."""
    model, tools, answer, background = args.model, args.tools, args.answer, args.background
    output, speech = Output(env, answer.format), answer.speech
    if speech.play or speech.is_stdout:
        raise click.UsageError("--background speaks into a file only: give --speak a file's name")
    if tools.fold is not None:
        raise click.UsageError("--tool-search needs a command that waits for the answer: leave out --background")
    if any(function.call is not None for function in tools.functions):
        raise click.UsageError("--background cannot ask before it runs tools; declare them without code")
    target = None if answer.target is None or is_standard(answer.target) else answer.target
    if target is not None:
        check_place(env.cwd / target, target)

    def ask(jobs: JobsClient, **request: Any) -> str:
        return jobs.generate(
            message if isinstance(message, str) else [message],
            system=CONVERSATION_PROMPT if speech and args.prompt.system is None else args.prompt.system,
            options=options,
            functions=tools.functions,
            speech=speech.file,
            form=answer.form,
            output=target,
            format=answer.format,
            logged=answer.logged,
            **request,
        )

    return submit(env, output, model, background, ask)


def _check_habits(args: GenerateArguments) -> None:
    """Raise UsageError for the options of other programs that mean something else here: ``-o NAME VALUE`` of llm and
    ``-c SIZE`` of llama.cpp."""
    target, words = str(args.answer.target or ""), args.prompt.words
    flags = [flag for each in click.get_current_context().command.params for flag in each.opts]
    name = "--" + target.replace("_", "-")
    if name in flags and len(words) > 1:
        raise click.UsageError(
            f"-o {target} names the output file; write {name} {words[0]}, or -o ./{target} for a file of this name"
        )
    if args.session.continue_last and len(words) > 1 and words[0].isdecimal() and int(words[0]) >= SMALLEST_CONTEXT:
        raise click.UsageError(
            f"-c continues the last session; write --context-size {words[0]}, or put the prompt in quotation marks"
        )


def _save(env: Environment, prompt: Prompt, name: str) -> str:
    """Save the question under this name; what there is to say of it."""
    words = " ".join(prompt.words) or INPUT
    template = PromptTemplate(name, system=prompt.system, prompt=words, options=dict(prompt.typed))
    return save_template(env, template, {}, replace=False)

"""``leap chat``: a conversation, line by line."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import click

from leap_core.inference.speech.voices import CONVERSATION_PROMPT
from leap_core.system.dataclass import dataclass

from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Output
from ...options.answer import CHAT_ANSWERS, AnswerOutput, Thinking
from ...options.constraints import SHAPE, Constraint, is_shaped
from ...options.conversation import GUARD, GuardChoice, SessionChoice, session_group, session_model
from ...options.loading import MODEL, ModelChoice, load_model, note_builtin
from ...options.prompt import CHAT_BEGINNING, MEDIA, ChatBeginning, Media
from ...options.sampling import SAMPLING, Sampling
from ...options.tools import TOOLS, Tools

if TYPE_CHECKING:
    from leap_core.conversation.responses import Complete
    from leap_core.conversation.runner import ModelRunner
    from leap_core.conversation.streams import Stream

    from ...chat.dialogue import Dialogue


@dataclass(frozen=True)
class ChatArguments:
    """What is typed after ``leap chat``."""

    beginning: ChatBeginning
    model: ModelChoice
    sampling: Sampling
    shape: Constraint
    media: Media
    tools: Tools
    guard: GuardChoice
    session: SessionChoice
    answers: AnswerOutput


@leap_command("chat", into=ChatArguments)
@CHAT_BEGINNING
@MEDIA
@CHAT_ANSWERS
@SHAPE
@SAMPLING
@TOOLS
@GUARD
@session_group(saves=True)
@MODEL
def command(env: Environment, /, args: ChatArguments) -> None:
    """Chat with a model interactively. PROMPT is the first message, with the files of --image and --audio.

    In a terminal, Ctrl-C stops an answer and keeps it, Ctrl-D exits, and /help lists the commands. From a pipe, each
    line is one turn, and the answers go to stdout in order.
    """
    from ...answers.sound import SpokenOutput
    from ...chat.dialogue import Dialogue, FullContext
    from ...chat.piped import answer_lines, answer_messages, read_conversation

    beginning, answers, tools, output = args.beginning, args.answers, args.tools, Output(env)
    loaded = None if beginning.file is None else read_conversation(beginning.file, env)
    more = {"tool_choice": tools.choice, "enable_thinking": answers.thinking is not None}
    if not beginning.jsonl:
        more["top_logprobs"] = None  # only messages as JSON have a place for probabilities
    options = args.sampling.options(args.shape, **more)
    first, system, target = beginning.first, beginning.system, answers.speech
    with (
        args.session.open(env) as recorder,
        load_model(env, model := session_model(recorder, env, args.model)) as runner,
        args.guard.opened(env, model) as opened_guard,
    ):
        note_builtin(env, model.name, output)
        if loaded is not None:
            if recorder.session is not None:
                raise click.UsageError(f"the session {recorder.session.label} has begun; --load begins one")
            recorder.history = loaded
        if target and system is None and recorder.session is None and loaded is None:
            system = CONVERSATION_PROMPT
        conversation = recorder.conversation(tools.folding(runner), system)
        show = _Shown(env, answers, jsonl=beginning.jsonl)
        full = FullContext(env, beginning.on_overflow)
        dialogue = Dialogue(conversation, options, tools, recorder, show, full, answers.thinking, opened_guard)
        dialogue.pattern = beginning.pattern
        try:
            if target:
                SpokenOutput(target, env, output).check(runner)
            if args.media:
                dialogue.say(first, args.media.read(env, output))
                first = ""
            if args.media.reads_stdin:
                return
            if beginning.jsonl:
                answer_messages(dialogue, env, output)
            elif env.stdin_is_terminal:
                _talk(dialogue, env, first, tools, model)
            else:
                answer_lines(dialogue, env, first)
        finally:
            dialogue.conversation.model_runner.unload()


def _talk(dialogue: Dialogue, env: Environment, first: str, tools: Tools, model: ModelChoice) -> None:
    from ...chat.terminal import WELCOME, note_saved, talk_at_terminal

    def load(name: str) -> ModelRunner:
        return tools.folding(load_model(env, replace(model, name=name)))

    output = Output(env)
    output.note(f"{dialogue.conversation.model_runner.model_id}; {WELCOME}")
    talk_at_terminal(dialogue, env, output, load, first)
    note_saved(dialogue, output, "chat")


class _Shown:
    """Shows one answer after the other, as text or as messages of JSON, and plays them."""

    def __init__(self, env: Environment, answers: AnswerOutput, *, jsonl: bool) -> None:
        self._env, self._answers, self._jsonl = env, answers, jsonl
        self._numbers = count(1)

    def __call__(self, dialogue: Dialogue, answer: Stream) -> Complete:
        from ...answers.sound import SpokenOutput
        from ...chat.piped import read_through

        env, target, output = self._env, self._answers.speech, Output(self._env)
        with SpokenOutput(target, env, output, next(self._numbers), demanded=False) as spoken:
            stream = spoken.hearing(answer, dialogue.conversation.model_runner)
            if self._jsonl:
                return read_through(dialogue, stream)
            return self._show_text(dialogue, stream, Output(spoken.text_place(env)) if target.is_stdout else output)

    def _show_text(self, dialogue: Dialogue, answer: Stream, output: Output) -> Complete:
        from leap_core.conversation.answer_forms import ReasoningOnly

        from ...answers.show import Display, show_answer, shown_calls

        display = Display(
            streaming=self._answers.stream,
            thinking=dialogue.thinking is Thinking.SHOW,
            stats=self._answers.stats,
            markdown=self._env.stdin_is_terminal and not is_shaped(dialogue.options),
        )
        return show_answer(
            ReasoningOnly(answer) if dialogue.thinking is Thinking.ONLY else answer,
            output,
            model=dialogue.conversation.model_runner.model_id,
            display=display,
            calls=shown_calls(dialogue.tools, always=self._env.stdin_is_terminal),
        )

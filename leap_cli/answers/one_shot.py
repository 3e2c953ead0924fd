"""One prompt and its answers: what ``leap generate`` does once a model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from leap_core.conversation.answer_forms import SEPARATOR, ReadAhead
from leap_core.conversation.responses import Complete
from leap_core.conversation.streams import Stream
from leap_core.errors import LeapError, LeapGenerationPromptExceedContextLengthError
from leap_core.system.dataclass import dataclass

from ..exit_codes import ExitCode
from ..framework.environment import Environment
from ..framework.interrupts import stopping_on_interrupt
from ..framework.output import Format, Output
from ..options.answer import AnswerOutput, SpeechTarget, Thinking
from ..options.constraints import is_shaped
from .show import Display, RefusalNote, respond, show_answer, shown_calls

if TYPE_CHECKING:
    from leap_core.conversation.calls import LeapFunction
    from leap_core.conversation.conversation import Conversation
    from leap_core.conversation.messages import ChatMessage
    from leap_core.conversation.options import GenerationOptions
    from leap_core.conversation.runner import ModelRunner
    from leap_core.conversation.session_recorder import SessionRecorder

    from ..options.tools import Tools
    from .sound import SpokenOutput


def show_prompt(
    runner: ModelRunner,
    prompt: Sequence[ChatMessage] | str,
    functions: Sequence[LeapFunction],
    options: GenerationOptions,
    env: Environment,
    format: str,
) -> None:
    """Print the prompt. Raises LeapGenerationPromptExceedContextLengthError, after it, where generating would."""
    rendered = runner.render(prompt, functions, options)
    output = Output(env, format)
    if output.format is Format.TEXT:
        open_line = env.stdout_is_terminal and not rendered.text.endswith("\n")
        output.text(rendered.text + ("\n" if open_line else ""))
        output.note(f"{rendered.tokens} tokens for {runner.model_id}, whose context holds {runner.context_size}")
    else:
        record = {
            "model": runner.model_id,
            "prompt": rendered.text,
            "tokens": rendered.tokens,
            "context_size": runner.context_size,
        }
        output.document(record) if output.format is Format.JSON else output.event(record)
    if rendered.tokens > runner.context_size:
        raise LeapGenerationPromptExceedContextLengthError(rendered.tokens, runner.context_size)


def hearing(
    target: SpeechTarget, env: Environment, output: Output, runner: ModelRunner
) -> AbstractContextManager[SpokenOutput | None]:
    """What takes the sound out of answers; nothing where none is asked for and the model has no voice."""
    if not target and not runner.speaks:
        return nullcontext()
    from .sound import SpokenOutput

    return SpokenOutput(target, env, output)


@dataclass(frozen=True)
class OneShot:
    """A ``message`` of the user for a model, with everything that goes with it; text alone is a string."""

    output: AnswerOutput
    raw: bool
    runner: ModelRunner
    session: SessionRecorder
    tools: Tools
    system: str | None
    message: ChatMessage | str

    def show_prompt(self, options: GenerationOptions, env: Environment) -> None:
        """Print the prompt and generate nothing."""
        from leap_core.conversation.messages import ChatMessage

        message = self.message
        if self.raw:
            assert isinstance(message, str)
            show_prompt(self.runner, message, (), options, env, self.output.format)
        else:
            question = ChatMessage("user", message) if isinstance(message, str) else message
            messages = [*self._conversation().history, question]
            show_prompt(self.runner, messages, self.tools.functions, options, env, self.output.format)

    def answer(
        self,
        options: GenerationOptions,
        env: Environment,
        *,
        spoken: SpokenOutput | None,
        before_first: Callable[[], object],
    ) -> ExitCode:
        """Generate and show as many answers as are asked for. ``spoken`` plays them."""
        count, format = self.output.count, self.output.format
        streams = [self._begin(each) for each in self.output.form.options(options)]
        if spoken is not None:
            spoken.check(self.runner)
            env = spoken.text_place(env)
            streams = [spoken.hearing(stream, self.runner) for stream in streams]
        if self.tools.functions:
            streams = [RefusalNote(stream) for stream in streams]

        display = Display(
            streaming=self.output.stream,
            thinking=self.output.thinking is Thinking.SHOW,
            stats=self.output.stats,
            markdown=count == 1 and not self.raw and not is_shaped(options),
        )

        def show(stream: Stream, output: Output, before_first: Callable[[], object] | None) -> Complete:
            return show_answer(
                stream,
                output,
                model=self.runner.model_id,
                display=display,
                calls=shown_calls(self.tools),
                before_first=before_first,
            )

        if count == 1:
            ends = [show(streams[0], Output(env, format), before_first)]
        else:
            ends = show_answers(streams, env, format, show, before_first)
        if any(end.finish_reason.value == "interrupted" for end in ends):
            return ExitCode.INTERRUPTED
        refused = any(isinstance(stream, RefusalNote) and stream.refused for stream in streams)
        return ExitCode.TOOL if refused else ExitCode.DONE

    def _begin(self, options: GenerationOptions) -> Stream:
        if self.raw:
            assert isinstance(self.message, str), "media are refused beside --raw"
            return self.runner.start_text(
                self.message, replace(options, function_call_parser=None, inline_thinking_tags=True)
            )
        conversation = self._conversation()
        answer = respond(self.tools, conversation, self.message, options)
        return self.output.form.part_of(self.session.keeping(answer, conversation, self.message))

    def _conversation(self) -> Conversation:
        conversation = self.session.conversation(self.runner, self.system)
        conversation.register_functions(self.tools.functions)
        return conversation


Show: TypeAlias = "Callable[[Stream, Output, Callable[[], object] | None], Complete]"


def show_answers(
    streams: Sequence[Stream], env: Environment, format: str, show: Show, before_first: Callable[[], object]
) -> list[Complete]:
    """Show every answer with ``show``; json is one array, and each document or event has the ``index`` of its answer.
    Ctrl-C stops them all and keeps what has come.

    An answer that fails does not keep the others from being shown; then its error is raised.
    """

    def stop() -> None:
        for stream in streams:
            stream.stop()

    finished: list[Complete] = []
    failures: list[LeapError] = []
    documents: list[object] = []
    with stopping_on_interrupt(stop), ExitStack() as running:
        ahead = [running.enter_context(closing(ReadAhead(stream, stop))) for stream in streams]
        for index, stream in enumerate(ahead):
            output = IndexedOutput(env, format, index, documents)
            if index and output.format is Format.TEXT:
                output.text(f"{SEPARATOR}\n")
            try:
                finished.append(show(stream, output, None if index else before_first))
            except LeapError as error:
                failures.append(error)
                output.failed(error)
    if documents:
        Output(env, format).document(documents)
    if failures:
        if len(failures) < len(ahead):
            failures[0].message = f"{len(failures)} of {len(ahead)} answers failed: {failures[0].message}"
        raise failures[0]
    return finished


class IndexedOutput(Output):
    """Output in which everything for programs has the index of its answer. ``documents`` collects those of json."""

    def __init__(self, env: Environment, format: str, index: int, documents: list[object]) -> None:
        super().__init__(env, format)
        self._index, self._documents = index, documents

    def document(self, value: object) -> None:
        self._documents.append(self._with_index(value))

    def event(self, value: object) -> None:
        super().event(self._with_index(value) if self.format is Format.JSONL else value)

    def failed(self, error: LeapError) -> None:
        """Say to programs that this answer has failed; people read it on stderr."""
        if self.format is Format.JSON:
            self.document({"error": error.message})
        elif self.format is Format.JSONL:
            self.event({"type": "error", "error": error.message})

    def _with_index(self, value: object) -> object:
        return {"index": self._index, **value} if isinstance(value, dict) else value

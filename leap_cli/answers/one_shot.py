"""One prompt and its answers: what ``leap generate`` does once a model is loaded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leap_core.runner.streams import Stream

from ..exit_codes import ExitCode
from ..framework.environment import Environment
from ..framework.output import Output
from ..options.answer import AnswerOutput, SpeechTarget, Thinking
from ..options.constraints import is_shaped
from .dry_run import show_prompt
from .fenced_block import FencedBlock
from .reasoning_only import ReasoningOnly
from .show import show_answer
from .tool_use import RefusalNote, respond, shown_calls

if TYPE_CHECKING:
    from leap_core.messages import ChatMessage
    from leap_core.options import GenerationOptions
    from leap_core.responses import Complete
    from leap_core.runner.contract import ModelRunner
    from leap_core.runner.conversation import Conversation
    from leap_core.sessions.recorder import SessionRecorder

    from ..options.tool_options import Tools
    from .spoken_output import SpokenOutput


def hearing(
    target: SpeechTarget, env: Environment, output: Output, runner: ModelRunner
) -> AbstractContextManager[SpokenOutput | None]:
    """What takes the sound out of answers; nothing where none is asked for and the model has no voice."""
    if not target and not runner.speaks:
        return nullcontext()
    from .spoken_output import SpokenOutput

    return SpokenOutput(target, env, output)


@dataclass(frozen=True)
class Question:
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
        from leap_core.messages import ChatMessage

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
        """Generate and show as many answers as are asked for. ``spoken`` hears them."""
        count, format = self.output.count, self.output.format
        if count == 1:
            streams = [self._begin(options)]
        else:
            from .several import seeded, show_answers

            streams = [self._begin(seeded(options, index)) for index in range(count)]
        if spoken is not None:
            spoken.check(self.runner)
            env = spoken.text_place(env)
            streams = [spoken.hearing(stream, self.runner) for stream in streams]
        if self.tools.functions:
            streams = [RefusalNote(stream) for stream in streams]

        def show(stream: Stream, output: Output, before_first: Callable[[], object] | None) -> Complete:
            return show_answer(
                stream,
                output,
                model=self.runner.model_id,
                streaming=self.output.stream,
                show_thinking=self.output.thinking is Thinking.SHOW,
                show_stats=self.output.stats,
                markdown=count == 1 and not self.raw and not is_shaped(options),
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
        stream = self.session.keeping(answer, conversation, self.message)
        if self.output.extract or self.output.extract_last:
            stream = FencedBlock(stream, last=self.output.extract_last)
        return ReasoningOnly(stream) if self.output.thinking is Thinking.ONLY else stream

    def _conversation(self) -> Conversation:
        conversation = self.session.conversation(self.runner, self.system)
        conversation.register_functions(self.tools.functions)
        return conversation

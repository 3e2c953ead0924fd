"""One prompt and its answers: what ``leap generate`` does once a model is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leap_core.runner.streams import Stream

from ..exit_codes import ExitCode
from ..framework.environment import Environment
from ..framework.output import Output
from ..options.constraints import is_shaped
from ..options.thinking import Thinking
from .dry_run import show_prompt
from .fenced_block import FencedBlock
from .reasoning_only import ReasoningOnly
from .several import seeded, show_answers
from .show import show_answer
from .speech import SpokenOutput
from .tool_use import RefusalNote, respond, shown_calls

if TYPE_CHECKING:
    from leap_core.messages import ChatMessage
    from leap_core.options import GenerationOptions
    from leap_core.responses import Complete
    from leap_core.runner.contract import ModelRunner
    from leap_core.runner.conversation import Conversation
    from leap_core.sessions.recorder import SessionRecorder

    from ..options.one_shot import OneShot
    from ..options.tools import Tools


@dataclass(frozen=True)
class Question:
    """A ``message`` of the user for a model, with everything that goes with it; text alone is a string."""

    shot: OneShot
    runner: ModelRunner
    session: SessionRecorder
    tools: Tools
    system: str | None
    message: ChatMessage | str

    def show_prompt(self, options: GenerationOptions, env: Environment, format: str) -> None:
        """Print the prompt and generate nothing."""
        from leap_core.messages import ChatMessage

        message = self.message
        if self.shot.raw:
            assert isinstance(message, str)
            show_prompt(self.runner, message, (), options, env, format)
        else:
            question = ChatMessage("user", message) if isinstance(message, str) else message
            messages = [*self._conversation().history, question]
            show_prompt(self.runner, messages, self.tools.functions, options, env, format)

    def answer(
        self,
        options: GenerationOptions,
        env: Environment,
        format: str,
        *,
        streaming: bool,
        show_stats: bool,
        spoken: SpokenOutput,
        before_first: Callable[[], object],
    ) -> ExitCode:
        """Generate and show as many answers as are asked for. ``spoken`` hears them."""
        count = self.shot.count
        streams = [RefusalNote(spoken.hearing(self._begin(seeded(options, index)))) for index in range(count)]

        def show(stream: Stream, output: Output, before_first: Callable[[], object] | None) -> Complete:
            return show_answer(
                stream,
                output,
                model=self.runner.model_id,
                streaming=streaming,
                show_thinking=self.shot.thinking is Thinking.SHOW,
                show_stats=show_stats,
                markdown=count == 1 and not self.shot.raw and not is_shaped(options),
                calls=shown_calls(self.tools),
                before_first=before_first,
            )

        if count == 1:
            ends = [show(streams[0], Output(env, format), before_first)]
        else:
            ends = show_answers(streams, env, format, show, before_first)
        if any(end.finish_reason.value == "interrupted" for end in ends):
            return ExitCode.INTERRUPTED
        return ExitCode.TOOL if any(stream.refused for stream in streams) else ExitCode.DONE

    def _begin(self, options: GenerationOptions) -> Stream:
        if self.shot.raw:
            assert isinstance(self.message, str), "take_one_shot refuses media beside --raw"
            return self.runner.start_text(self.message, self.shot.adapt(options))
        conversation = self._conversation()
        answer = respond(self.tools, conversation, self.message, options)
        stream = self.session.keeping(answer, conversation, self.message)
        if self.shot.extract or self.shot.extract_last:
            stream = FencedBlock(stream, last=self.shot.extract_last)
        return ReasoningOnly(stream) if self.shot.thinking is Thinking.ONLY else stream

    def _conversation(self) -> Conversation:
        conversation = self.session.conversation(self.runner, self.system)
        conversation.register_functions(self.tools.functions)
        return conversation

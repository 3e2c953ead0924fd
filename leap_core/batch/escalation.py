"""Near first: a line that one model fails, refuses or is unsure of goes to a second model."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ..conversation.generator import Functions, Generation, MaybeOptions, Messages, PassingGeneration
from ..conversation.messages import ChatMessage, ChatMessageRole
from ..conversation.options import GenerationOptions
from ..conversation.responses import Complete, GenerationFinishReason
from ..conversation.runner import ModelRunner, PassingRunner
from ..conversation.streams import last_of
from ..errors import LeapConstraintError, LeapGenerationPromptExceedContextLengthError, LeapOptionsError
from ..system.dataclass import dataclass
from ..tasks.decisions.deciding import decide
from ..tasks.decisions.questions import Decision, Question
from ..tasks.task import TaskReply
from .options import BatchEscalation

INVALID, UNCERTAIN, REFUSED, CHECK = "invalid", "uncertain", "refused", "check"
QUESTION = "Does the answer do what was asked for?"
FORMS = "invalid, uncertain<0.8, refused, check<0.5"
REFUSAL = re.compile(r"\s*(I'?m|I am) (very |so )?sorry\b|\s*(Sorry|I can'?t|I cannot|I'm unable|I am unable)\b", re.I)
"""How models begin to decline, in English."""


@dataclass(frozen=True)
class When:
    """``invalid``: no answer that matches its schema, or none that the context has space for. ``certainty``: an answer
    that is less probable is uncertain. ``refused``: the model declines. ``check``: yes to ``question`` about an answer
    is less probable, as the first model decides."""

    invalid: bool = False
    certainty: float | None = None
    refused: bool = False
    check: float | None = None
    question: str = QUESTION

    @staticmethod
    def parse(text: str, question: str | None = None) -> When:
        """``invalid,uncertain<0.8,refused,check<0.5``, or some of these. Raises LeapOptionsError."""
        when = When(question=question or QUESTION)
        for word in filter(None, re.split(r"[,|\s]+", text)):
            name, less, number = word.partition("<")
            is_share = re.fullmatch(r"0?\.\d+|1|1\.0*", number) is not None
            if name == INVALID and not less:
                when = replace(when, invalid=True)
            elif name == REFUSED and not less:
                when = replace(when, refused=True)
            elif name == UNCERTAIN and is_share:
                when = replace(when, certainty=float(number))
            elif name == CHECK and is_share:
                when = replace(when, check=float(number))
            else:
                raise LeapOptionsError("when", f"{word!r} is not one of {FORMS}")
        if when == When(question=when.question):
            raise LeapOptionsError("when", f"say when: {FORMS}")
        if question is not None and when.check is None:
            raise LeapOptionsError("check", "a question needs --escalate-when check<P")
        return when

    def reason(self, complete: Complete) -> str | None:
        """Why an answer is not good enough; None where it is."""
        if complete.finish_reason is GenerationFinishReason.INTERRUPTED:
            return None
        text = complete.full_message.text
        if self.refused and ("the model refused" in complete.warnings or REFUSAL.match(text)):
            return REFUSED
        if self.certainty is not None and probability(complete) < self.certainty:
            return UNCERTAIN
        return None


def probability(complete: Complete) -> float:
    """How sure the model was: of a shape, what its tokens together had among the allowed ones; of a free text,
    the mean of its tokens. 1 where nothing is known."""
    scores = complete.logprobs
    if not scores:
        return 1.0
    allowed = [each.allowed_logprob for each in scores if each.allowed_logprob is not None]
    if len(allowed) == len(scores):
        return math.exp(sum(allowed))
    return math.exp(sum(each.logprob for each in scores) / len(scores))


class EscalatingRunner(PassingRunner):
    """``near`` answers, and where that is not good enough, ``far``. ``escalated`` answers of ``answers`` went there,
    and took ``prompt_tokens`` and ``completion_tokens`` of it."""

    def __init__(
        self,
        near: ModelRunner,
        far: ModelRunner,
        when: When,
        on_end: Callable[[EscalatingRunner], object] = lambda _: None,
    ) -> None:
        """``on_end`` is called when it is unloaded."""
        self._on_end = on_end
        super().__init__(near)
        self._near, self._far, self._when = near, far, when
        self._guard = threading.Lock()
        self.answers = self.escalated = self.prompt_tokens = self.completion_tokens = 0

    @property
    def speaks(self) -> bool:
        return False  # an answer is passed on whole

    def start(self, messages: Messages, functions: Functions = (), options: MaybeOptions = None) -> Generation:
        options = options or GenerationOptions()
        asked = options
        if self._when.certainty is not None and not options.wants_logprobs:
            asked = replace(options, logprobs=True, forced_logprobs=False)

        def far() -> Generation:
            return self._far.start(messages, functions, options)

        try:
            near: Generation | None = self._near.start(messages, functions, asked)
        except LeapGenerationPromptExceedContextLengthError:
            if not self._when.invalid:
                raise
            near = None
        return _EscalatingGeneration(self, messages, near, far, keep_logprobs=asked is options)

    def unload(self) -> None:
        super().unload()
        self._far.unload()
        self._on_end(self)

    def judge(self, complete: Complete, messages: Messages) -> str | None:
        """Why the near answer is not good enough; None where it is. Counts it."""
        with self._guard:
            self.answers += 1
        reason = self._when.reason(complete)
        interrupted = complete.finish_reason is GenerationFinishReason.INTERRUPTED
        if reason is not None or interrupted or self._when.check is None:
            return reason
        asked = next((each.text for each in reversed(messages) if each.role is ChatMessageRole.USER), "")
        state = {"asked": asked, "answer": complete.full_message.text}
        (answer,) = decide(self._near, Decision(state, (Question.predicate(self._when.question),))).answers
        return CHECK if answer.probability < self._when.check else None

    def summary(self, model: str) -> str:
        """``12 of 100 answers (12 %) came from far, for 3400 tokens of prompts and 800 of answers``"""
        share = 100 * self.escalated / max(self.answers, 1)
        return (
            f"{self.escalated} of {self.answers} answers ({share:.0f} %) came from {model},"
            f" for {self.prompt_tokens} tokens of prompts and {self.completion_tokens} of answers"
        )

    def fails(self) -> bool:
        """Count an answer that the near model could not give; whether the far one is asked."""
        with self._guard:
            self.answers += 1
        return self._when.invalid

    def answered_by_far(self, complete: Complete, reason: str) -> Complete:
        """The far answer, with who gave it and why."""
        with self._guard:
            self.escalated += 1
            if complete.stats is not None:
                self.prompt_tokens += complete.stats.prompt_tokens
                self.completion_tokens += complete.stats.completion_tokens
        was = "did not pass the check" if reason == CHECK else f"was {reason}"
        note = f"answered by {self._far.model_id}: the answer of {self._near.model_id} {was}"
        details = {"answered_by": self._far.model_id, "escalated": reason}
        return TaskReply(**{**vars(complete), "warnings": (*complete.warnings, note), "details": details})


class _EscalatingGeneration(PassingGeneration):
    """Reads the near answer to its end before anything of it is passed on."""

    def __init__(
        self,
        runner: EscalatingRunner,
        messages: Messages,
        near: Generation | None,
        far: Callable[[], Generation],
        *,
        keep_logprobs: bool,
    ) -> None:
        super().__init__(near)
        self._messages = messages
        self._runner, self._begin_far, self._keep = runner, far, keep_logprobs

    def _receive(self) -> None:
        self._ended = True
        self._ready.append(self._answer())

    def _answer(self) -> Complete:
        complete, reason = self._near_answer()
        if reason is not None and self._begin(self._begin_far) and self._current is not None:
            return self._runner.answered_by_far(last_of(self._current), reason)
        complete = complete or Complete(ChatMessage(ChatMessageRole.ASSISTANT), GenerationFinishReason.INTERRUPTED)
        if reason is not None:
            complete = replace(complete, finish_reason=GenerationFinishReason.INTERRUPTED)
        return complete if self._keep else replace(complete, logprobs=())

    def _near_answer(self) -> tuple[Complete | None, str | None]:
        if self._current is None:
            self._runner.fails()
            return None, INVALID
        try:
            complete = last_of(self._current)
        except LeapConstraintError:
            if self._runner.fails():
                return None, INVALID
            raise
        return complete, self._runner.judge(complete, self._messages)


def escalation_of(
    given: BatchEscalation, far: ModelRunner, on_end: Callable[[EscalatingRunner], object] = lambda _: None
) -> Callable[[ModelRunner], ModelRunner]:
    """Puts the second model of a batch behind the first. Raises LeapOptionsError. ``on_end`` is called when both are
    unloaded."""
    return partial(EscalatingRunner, far=far, when=When.parse(given.when, given.check), on_end=on_end)

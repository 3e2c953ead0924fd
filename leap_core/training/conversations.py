"""Which conversations are trained on, and on which side of the split they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..errors import LeapError
from ..messages import ChatMessage, ChatMessageRole
from ..prompt_log.logged_documents import FINISHED
from ..sessions.marks import UNMARKED, Mark
from .rendering import UnfitError

if TYPE_CHECKING:
    from ..functions import LeapFunction
    from ..options import GenerationOptions
    from ..prompt_log.entry import Entry


@dataclass(frozen=True)
class Wanted:
    """Which answers are trained on. ``rating``: only those of this rating; None: all but bad ones. ``unedited``: only
    those that a model is known to have written as they are."""

    rating: str | None = None
    unedited: bool = False

    def reason_against(self, mark: Mark) -> str | None:
        """Why an answer is not trained on; None where it is."""
        if mark.finish is not None and mark.finish not in FINISHED:
            return "its answer did not come to its own end"
        if mark.finish is None and self.unedited:
            return "it is not known that its answer is as a model wrote it"
        if self.rating is None:
            return "its answer is rated bad" if mark.rating == "bad" else None
        return None if mark.rating == self.rating else f"its answer is not rated {self.rating}"


ALL = Wanted()


@dataclass(frozen=True)
class TrainingConversation:
    """``history`` ends with an answer. ``functions``: those that the model could call. ``passed_over``: the numbers of
    earlier answers that are context alone, and not trained on."""

    history: Sequence[ChatMessage]
    functions: Sequence[LeapFunction] = field(default=())
    passed_over: frozenset[int] = frozenset()

    def is_test(self, share: float) -> bool:
        """Whether this is one of the ``share`` that the trained model is tested with. What is asked first decides, so
        that a conversation is always on the same side, and with it all that begin like it."""
        first = next((n for n, each in enumerate(self.history) if each.role is ChatMessageRole.USER), 0)
        text = json.dumps([message.to_json() for message in self.history[: first + 1]], sort_keys=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") < share * 2**64


def of_history(
    history: Sequence[ChatMessage],
    functions: Sequence[LeapFunction] = (),
    marks: Sequence[Mark] = (),
    wanted: Wanted = ALL,
) -> TrainingConversation:
    """A conversation up to its last answer that is wanted, without questions that got none. ``marks``: of each message,
    or none of any. Raises UnfitError for one without such an answer, with an empty one, or with a call of a function
    that is not declared."""
    from ..sessions.recorder import answered

    of_message = {id(message): mark for message, mark in zip(history, marks, strict=False)}
    kept = list(answered(history))
    reasons = {
        n: wanted.reason_against(of_message.get(id(message), UNMARKED))
        for n, message in enumerate(kept)
        if message.role is ChatMessageRole.ASSISTANT
    }
    if not reasons:
        raise UnfitError("there is no answer in it")
    last = max((n for n, reason in reasons.items() if reason is None), default=-1)
    if last < 0:
        raise UnfitError(str(reasons[max(reasons)]))
    kept = kept[: last + 1]
    names = {function.name for function in functions}
    for message in kept:
        if message.role is ChatMessageRole.ASSISTANT and not (message.text.strip() or message.function_calls):
            raise UnfitError("an answer in it is empty")
        for call in message.function_calls or ():
            if call.name not in names:
                raise UnfitError(f"it calls {call.name!r}, which no tool declares")
    calls = any(message.function_calls for message in kept)
    passed_over = frozenset(n for n, reason in reasons.items() if reason is not None and n < last)
    return TrainingConversation(kept, functions if calls else (), passed_over)


def of_answer(
    messages: Sequence[ChatMessage],
    options: GenerationOptions,
    answer: ChatMessage,
    mark: Mark,
    wanted: Wanted = ALL,
    functions: Sequence[LeapFunction] = (),
) -> TrainingConversation:
    """One answer and what was asked for it, of the log, a job or a batch. Raises UnfitError, also where the answer is
    not whole, or not the document that it was to be."""
    if options.stop:
        raise UnfitError("its answer did not come to its own end")
    schema = options.json_schema_constraint
    if schema is not None:
        from ..constraints import inject_schema
        from ..schemas.json_schema import read_schema

        try:
            if options.inject_schema_into_prompt:
                messages = inject_schema(list(messages), schema)
            problems = read_schema(schema).problems(answer.text)
        except LeapError as error:
            raise UnfitError(error.message) from None
        if problems and mark.finish in FINISHED:
            raise UnfitError("its answer is not a document of its schema")
    marks = [*[UNMARKED] * len(messages), mark]
    conversation = of_history([*messages, answer], functions, marks, wanted)
    earlier = [n for n, each in enumerate(conversation.history[:-1]) if each.role is ChatMessageRole.ASSISTANT]
    return replace(conversation, functions=functions, passed_over=frozenset(earlier))


def of_entry(entry: Entry, wanted: Wanted = ALL) -> TrainingConversation:
    """An entry of the log of prompts. Raises UnfitError, also where the log does not hold all of it."""
    from ..prompt_log.replay import request_of

    try:
        messages, options = request_of(entry)
    except LeapError as error:
        raise UnfitError(error.message) from None
    answer = ChatMessage("assistant", entry.answer, entry.reasoning)
    return of_answer(messages, options, answer, Mark(entry.finish or "", entry.rating), wanted)

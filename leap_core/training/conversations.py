"""Which conversations are trained on, and on which side of the split they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import LeapError
from ..messages import ChatMessage, ChatMessageRole
from .rendering import UnfitError

if TYPE_CHECKING:
    from ..functions import LeapFunction
    from ..prompt_log.entry import Entry


@dataclass(frozen=True)
class TrainingConversation:
    """``history`` ends with an answer. ``functions``: those that the model could call."""

    history: Sequence[ChatMessage]
    functions: Sequence[LeapFunction] = field(default=())

    def is_test(self, share: float) -> bool:
        """Whether this is one of the ``share`` that the trained model is tested with. What is asked first decides, so
        that a conversation is always on the same side, and with it all that begin like it."""
        first = next((n for n, each in enumerate(self.history) if each.role is ChatMessageRole.USER), 0)
        text = json.dumps([message.to_json() for message in self.history[: first + 1]], sort_keys=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") < share * 2**64


def of_history(history: Sequence[ChatMessage], functions: Sequence[LeapFunction] = ()) -> TrainingConversation:
    """A conversation up to its last answer, without questions that got none. Raises UnfitError for one without an
    answer, with an empty one, or with a call of a function that is not declared."""
    from ..sessions.recorder import answered

    kept = list(answered(history))
    while kept and kept[-1].role is not ChatMessageRole.ASSISTANT:
        kept.pop()
    if not kept:
        raise UnfitError("there is no answer in it")
    names = {function.name for function in functions}
    for message in kept:
        if message.role is ChatMessageRole.ASSISTANT and not (message.text.strip() or message.function_calls):
            raise UnfitError("an answer in it is empty")
        for call in message.function_calls or ():
            if call.name not in names:
                raise UnfitError(f"it calls {call.name!r}, which no tool declares")
    calls = any(message.function_calls for message in kept)
    return TrainingConversation(kept, functions if calls else ())


def of_entry(entry: Entry) -> TrainingConversation:
    """An entry of the log of prompts. Raises UnfitError where the log does not hold all of it, or its answer is not
    whole or not the document that it was to be."""
    from ..prompt_log.documents import FINISHED
    from ..prompt_log.replay import request_of

    try:
        messages, options = request_of(entry)
        if entry.schema is not None and options.inject_schema_into_prompt:
            from ..constraints import inject_schema

            messages = inject_schema(messages, entry.schema)
    except LeapError as error:
        raise UnfitError(error.message) from None
    if entry.finish not in FINISHED or options.stop:
        raise UnfitError("its answer did not come to its own end")
    if entry.schema is not None:
        from ..schemas.schema import read_schema

        if read_schema(entry.schema).problems(entry.answer):
            raise UnfitError("its answer is not a document of its schema")
    return of_history([*messages, ChatMessage("assistant", entry.answer, entry.reasoning)])

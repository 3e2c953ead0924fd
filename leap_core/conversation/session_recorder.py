"""The session that a conversation continues, and its way into it: each message is stored as soon as it is finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import (
    LeapError,
    LeapGenerationPromptExceedContextLengthError,
    LeapGuardError,
    LeapOptionsError,
    LeapSchemaError,
    LeapSessionError,
    LeapUnsupportedMediaError,
)
from ..system.dataclass import dataclass
from .conversation import NOTHING, Omission
from .messages import ChatMessage, ChatMessageRole
from .responses import Complete, FunctionResult, GenerationFinishReason, MessageResponse
from .streams import PassingStream

if TYPE_CHECKING:
    from .conversation import Conversation
    from .runner import ModelRunner
    from .sessions import Mark, Session, SessionStore
    from .streams import Stream

SHORTEST_OF_ID = 4
"""Characters from which on a new session's name is taken for the beginning of an id."""

MESSAGES = (FunctionResult, Complete)
"""Responses that finish a message."""
REFUSALS = (
    LeapGenerationPromptExceedContextLengthError,
    LeapGuardError,
    LeapOptionsError,
    LeapSchemaError,
    LeapUnsupportedMediaError,
)
"""What says of a question that it gets no answer, however often it is asked."""


@dataclass
class SessionRecorder:
    """Stores a conversation as a session, message by message. Before ``open`` nothing is stored.

    ``file``: the database of sessions. ``on_warning`` receives what went wrong while nothing was lost. ``required``:
    leaving the recorder raises the last failure to store; otherwise it is only a warning.
    """

    file: Path
    on_warning: Callable[[str], object]
    name: str | None = None
    required: bool = False
    session: Session | None = field(default=None, init=False)
    """What is continued; None where a session begins."""
    history: Sequence[ChatMessage] = ()
    """What was said in it. Questions that got no answer, because their process was killed or failed, are left out."""
    omission: Omission = field(default=NOTHING, init=False)
    """What of the history the model no longer gets, as it is stored."""
    unanswered: ChatMessage | None = field(default=None, init=False)
    """The last thing that was asked in it, if the answer never came."""
    model: str | None = None
    """The reference of the model that a session begins with."""
    _store: SessionStore | None = None
    _id: str | None = None
    _kept: list[ChatMessage] = field(default_factory=list)
    _written: int = 0
    """How many messages the session has, as far as is known here."""
    _question: ChatMessage | None = None
    _failure: LeapError | None = None

    def open(self) -> None:
        """Store from now on. Raises LeapError when the database cannot be used."""
        from .sessions import SessionStore

        self._store = SessionStore(self.file)

    def resume(self, *, last: bool) -> None:
        """Find what is continued: the last session, or that of the name."""
        assert self._store is not None
        self.session = self._store.latest() if last else self._store.get(str(self.name))
        if self.session is not None:
            self._id = self.session.id
            written = self._store.history(self._id)
            self._written = len(written)
            self.history = answered(written)
            self._kept = list(self.history)
            self.omission = self._store.omission(self._id)
            if len(self.history) < len(written) and written[-1].role is ChatMessageRole.USER:
                self.unanswered = written[-1]
        elif last:
            raise LeapSessionError(
                "there is no session to continue",
                hint="leap chat begins one, and so does leap generate with --save or --session NAME",
            )
        else:
            self._check_new(self._store, str(self.name))

    def _check_new(self, store: SessionStore, name: str) -> None:
        """Raises LeapSessionError for what is no name, and for what was rather meant as an id."""
        store.check_name(name)
        begins = store.matching(name) if len(name) >= SHORTEST_OF_ID else []
        if begins:
            raise LeapSessionError(
                f"there is no session called {name!r}, and the id of {begins[0].id} begins so",
                hint="give the whole id to continue it, or another name to begin a session",
            )

    @property
    def is_open(self) -> bool:
        """Whether what is said is kept."""
        return self._store is not None

    @property
    def has_begun(self) -> bool:
        """Whether there is a session that what is said goes to."""
        return self._store is not None and self._id is not None

    @property
    def label(self) -> str | None:
        """How to call the session that is being written: its name, or its id; None before it begins."""
        session = self._store.get(self._id) if self._store is not None and self._id is not None else None
        return None if session is None else session.label

    def save_as(self, name: str, history: Sequence[ChatMessage]) -> None:
        """Give the session this name; where nothing was kept so far, begin it. Raises LeapSessionError for a name that
        is taken or is none."""
        if self._store is None:
            self.open()
            self.begin_another()
        assert self._store is not None
        if self._id is None:
            self._id = self._store.create(model=self.model, name=name).id
            self.keep(history)
        else:
            self._store.rename(self._id, name)

    def move_to(self, reference: str) -> Sequence[ChatMessage]:
        """Continue in another session, which is only read where nothing is kept; its history. Raises
        LeapSessionError."""
        from .sessions import SessionStore

        store = self._store or SessionStore(self.file)
        try:
            session = store.find(reference)
            written, omission = store.history(session.id), store.omission(session.id)
        finally:
            if store is not self._store:
                store.close()
        self.begin_another()
        history = answered(written)
        if self.is_open:
            self._id, self._kept, self._written = session.id, list(history), len(written)
        self.omission = omission
        return history

    def begin_another(self) -> None:
        """Continue in a new session, which begins with the next message."""
        self.name = self._id = self._question = None
        self._kept, self._written, self.omission = [], 0, NOTHING

    def conversation(self, runner: ModelRunner, system: str | None) -> Conversation:
        """The conversation that continues; a system prompt takes the place of the one it had."""
        history = list(self.history)
        if system is not None:
            had = bool(history) and history[0].role is ChatMessageRole.SYSTEM
            history[: 1 if had else 0] = [ChatMessage(ChatMessageRole.SYSTEM, system)]
        conversation = runner.create_conversation_from_history(history)
        conversation.omission = self.omission
        return conversation

    def keeping(self, stream: Stream, conversation: Conversation, question: ChatMessage | str) -> Stream:
        """The stream of the answer to ``question``: the question is kept before it begins, then each message as it is
        finished. Where nothing is kept, the stream itself."""
        if not self.is_open:
            return stream
        if isinstance(question, str):
            question = ChatMessage(ChatMessageRole.USER, question)
        return _RecordedStream(self, stream, conversation, question)

    def ask(self, history: Sequence[ChatMessage], question: ChatMessage) -> None:
        """Keep a question before it is answered, and ``history``, which it follows."""
        self.keep(history)
        if self._store is None or self._question == question:
            return
        try:
            self._append(self._store, question)
            self._question = question
        except LeapError as error:
            self.not_saved(error)

    def withdraw(self) -> None:
        """Take back the question that was kept last, because it is refused; a session that holds nothing else ends."""
        if self._store is None or self._id is None or self._question is None:
            return
        try:
            before = self._store.history(self._id)[:-1]
            if not before:
                self._store.remove(self._id)
                self._id, self._written = None, 0
            elif self._store.replace(self._id, before, instead_of=self._written):
                self._written -= 1
            self._question = None
        except LeapError as error:
            self.not_saved(error)

    def keep(self, history: Sequence[ChatMessage], finish: GenerationFinishReason | None = None) -> None:
        """Make the session's messages these, writing what is new or, when something else has changed, all of them.
        ``finish``: why the model ended the new answers; None where it is not known to have written them."""
        if self._store is None:
            return
        from .sessions import UNMARKED, Mark  # here, because most answers are kept in no session

        mark = UNMARKED if finish is None else Mark(finish.value)
        try:
            if list(history[: len(self._kept)]) != self._kept:
                self._rewrite(self._store, history, mark)
            for message in history[len(self._kept) :]:
                if message != self._question:
                    is_answer = message.role is ChatMessageRole.ASSISTANT
                    self._append(self._store, message, mark if is_answer else UNMARKED)
                self._question = None
                self._kept.append(message)
            self._failure = None
        except LeapError as error:
            self.not_saved(error)

    def keep_omission(self, omission: Omission) -> None:
        """Remember what of the session the model no longer gets, so that it can be continued."""
        if omission == self.omission or self._store is None or self._id is None:
            return
        try:
            self._store.omit(self._id, omission)
            self.omission = omission
        except LeapError as error:
            self.not_saved(error)

    def rate(self, rating: str) -> None:
        """Rate the last answer, good or bad. Raises LeapSessionError where none is kept."""
        if self._store is None:
            raise LeapSessionError("this conversation is not being saved", hint="/save NAME begins that")
        if self._id is None:
            raise LeapSessionError("there is no answer yet that could be rated")
        self._store.rate(self._id, rating)

    def _append(self, store: SessionStore, message: ChatMessage, mark: Mark | None = None) -> None:
        store.append(self._begun(store), message, mark)
        self._written += 1

    def _rewrite(self, store: SessionStore, history: Sequence[ChatMessage], mark: Mark) -> None:
        """Put this history in the place of what was kept; where another process has added something, that stays as it
        is, and the conversation continues in a session of its own."""
        if store.replace(self._begun(store), history, instead_of=self._written, answered=mark):
            self._kept, self._written, self._question = list(history), len(history), None
            return
        other = self.label
        self.begin_another()
        new = self._begun(store)
        self.on_warning(f"another process wrote to the session {other}: this conversation is now kept as {new}")

    def not_saved(self, error: LeapError) -> None:
        """Warn, once until it works again: the answers are worth more than their being kept."""
        if self._failure is None:
            self.on_warning(f"this conversation is not saved: {error.message}")
        self._failure = error

    def close(self) -> None:
        """From now on nothing is kept."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def __enter__(self) -> SessionRecorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is None and self.required and self._failure is not None:
            raise self._failure

    def _begun(self, store: SessionStore) -> str:
        """The session's id; it begins with its first message."""
        if self._id is None:
            named = None if self.name is None else store.named(self.name, model=self.model)
            self._id = (named or store.create(model=self.model)).id
        return self._id


class _RecordedStream(PassingStream):
    """A stream whose messages are stored."""

    def __init__(
        self, recorder: SessionRecorder, stream: Stream, conversation: Conversation, question: ChatMessage
    ) -> None:
        super().__init__(stream)
        self._recorder, self._conversation = recorder, conversation
        self._question: ChatMessage | None = question

    def __next__(self) -> MessageResponse:
        if self._question is not None:
            self._recorder.ask(self._conversation.history, self._question)
            self._question = None
        try:
            response = super().__next__()
        except REFUSALS:
            self._recorder.withdraw()
            raise
        if isinstance(response, MESSAGES):
            reason = response.finish_reason if isinstance(response, Complete) else GenerationFinishReason.STOP
            self._recorder.keep(self._conversation.history, reason)
        return response


def answered(history: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """The history without questions that nothing was answered to: many models refuse two of them in a row."""
    asks = [message.role is ChatMessageRole.USER for message in history] + [True]
    return [message for n, message in enumerate(history) if not (asks[n] and asks[n + 1])]

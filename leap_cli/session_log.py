"""The session that a conversation continues, and its way into it: each message is kept as soon as it is finished."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leap_core.errors import LeapError, LeapSessionError
from leap_core.messages import ChatMessage, ChatMessageRole
from leap_core.responses import AudioSample, Chunk, MessageResponse, ReasoningChunk
from leap_core.runner.streams import PassingStream

from .framework.environment import Environment
from .framework.output import Output
from .options.loading import model_reference

if TYPE_CHECKING:
    from leap_core.runner.contract import ModelRunner
    from leap_core.runner.conversation import Conversation
    from leap_core.runner.streams import Stream
    from leap_core.sessions.store import Session, SessionStore

SHORTEST_OF_ID = 4
"""Characters from which on a new session's name is taken for the beginning of an id."""

PIECES = (Chunk, ReasoningChunk, AudioSample)
"""Responses that finish no message."""


@dataclass
class SessionLog:
    """The session that a conversation continues, and its way into it. Without a store nothing is kept.

    ``wanted``: saving was asked for, so that where it failed the command fails at its end; otherwise it only warns.
    """

    output: Output
    name: str | None = None
    wanted: bool = False
    session: Session | None = field(default=None, init=False)
    """What is continued; None where a session begins."""
    history: Sequence[ChatMessage] = ()
    """What was said in it. Questions that got no answer, because their process was killed or failed, are left out."""
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

    def open(self, env: Environment) -> None:
        from leap_core.sessions.store import SessionStore

        self._store = SessionStore(env.directories.sessions_file)

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
            if len(self.history) < len(written) and written[-1].role is ChatMessageRole.USER:
                self.unanswered = written[-1]
        elif last:
            raise LeapSessionError("there is no session to continue", hint="leap chat begins one")
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
        found = self._store.get(self._id) if self._store is not None and self._id is not None else None
        return None if found is None else found.label

    def save_as(self, name: str, env: Environment, history: Sequence[ChatMessage]) -> None:
        """Give the session this name; where nothing was kept so far, begin it. Raises LeapSessionError for a name that
        is taken or is none."""
        if self._store is None:
            self.open(env)
            self.begin_another()
        assert self._store is not None
        if self._id is None:
            self._id = self._store.create(model=self.model, name=name).id
            self.keep(history)
        else:
            self._store.rename(self._id, name)

    def move_to(self, reference: str, env: Environment) -> Sequence[ChatMessage]:
        """Go on in another session, which is only read where nothing is kept; its history. Raises LeapSessionError."""
        from leap_core.sessions.store import SessionStore

        store = self._store or SessionStore(env.directories.sessions_file)
        try:
            found = store.find(reference)
            written = store.history(found.id)
        finally:
            if store is not self._store:
                store.close()
        self.begin_another()
        history = answered(written)
        if self.is_open:
            self._id, self._kept, self._written = found.id, list(history), len(written)
        return history

    def begin_another(self) -> None:
        """Go on in a new session, which begins with the next message."""
        self.name = self._id = self._question = None
        self._kept, self._written = [], 0

    def model_for(self, env: Environment, model: str | None) -> str | None:
        """The model that was named, else that of the session, else None; and remember it for a session that begins."""
        if model is None and self.session is not None:
            model = self.session.model
        self.model = model_reference(env, model)
        if os.path.isfile(env.cwd / self.model):  # the session may be continued from another directory
            self.model = str((env.cwd / self.model).absolute())
        return model

    def conversation(self, runner: ModelRunner, system: str | None) -> Conversation:
        """The conversation that goes on; a system prompt takes the place of the one it had."""
        history = list(self.history)
        if system is not None:
            had = bool(history) and history[0].role is ChatMessageRole.SYSTEM
            history[: 1 if had else 0] = [ChatMessage(ChatMessageRole.SYSTEM, system)]
        return runner.create_conversation_from_history(history)

    def keeping(self, stream: Stream, conversation: Conversation, question: ChatMessage | str) -> Stream:
        """The stream of the answer to ``question``: the question is kept before it begins, then each message as it is
        finished."""
        if isinstance(question, str):
            question = ChatMessage(ChatMessageRole.USER, question)
        return _Kept(self, stream, conversation, question)

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

    def keep(self, history: Sequence[ChatMessage]) -> None:
        """Make the session's messages these, writing what is new or, when something else has changed, all of them."""
        if self._store is None:
            return
        try:
            if list(history[: len(self._kept)]) != self._kept:
                self._rewrite(self._store, history)
            for message in history[len(self._kept) :]:
                if message != self._question:
                    self._append(self._store, message)
                self._question = None
                self._kept.append(message)
            self._failure = None
        except LeapError as error:
            self.not_saved(error)

    def _append(self, store: SessionStore, message: ChatMessage) -> None:
        store.append(self._begun(store), message)
        self._written += 1

    def _rewrite(self, store: SessionStore, history: Sequence[ChatMessage]) -> None:
        """Put this history in the place of what was kept; where another process has added something, that stays as it
        is, and the conversation goes on in a session of its own."""
        if store.replace(self._begun(store), history, instead_of=self._written):
            self._kept, self._written, self._question = list(history), len(history), None
            return
        other = self.label
        self.begin_another()
        new = self._begun(store)
        self.output.warning(f"another process wrote to the session {other}: this conversation is now kept as {new}")

    def not_saved(self, error: LeapError) -> None:
        """Warn, once until it works again: the answers are worth more than their being kept."""
        if self._failure is None:
            self.output.warning(f"this conversation is not saved: {error.message}")
        self._failure = error

    def close(self) -> None:
        """From now on nothing is kept."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def __enter__(self) -> SessionLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is None and self.wanted and self._failure is not None:
            raise self._failure

    def _begun(self, store: SessionStore) -> str:
        """The session's id; it begins with its first message."""
        if self._id is None:
            named = None if self.name is None else store.named(self.name, model=self.model)
            self._id = (named or store.create(model=self.model)).id
        return self._id


class _Kept(PassingStream):
    """A stream whose messages are kept."""

    def __init__(self, log: SessionLog, stream: Stream, conversation: Conversation, question: ChatMessage) -> None:
        super().__init__(stream)
        self._log, self._conversation = log, conversation
        self._question: ChatMessage | None = question

    def __next__(self) -> MessageResponse:
        if self._question is not None:
            self._log.ask(self._conversation.history, self._question)
            self._question = None
        response = super().__next__()
        if not isinstance(response, PIECES):
            self._log.keep(self._conversation.history)
        return response


def answered(history: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """The history without questions that nothing was answered to: many models refuse two of them in a row."""
    asks = [message.role is ChatMessageRole.USER for message in history] + [True]
    return [message for n, message in enumerate(history) if not (asks[n] and asks[n + 1])]

"""One generation in this process: the tokens of a request become responses, in the thread that iterates."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..chat_format.reply_builder import ReplyBuilder
from ..constraints.finishing import FinishingConstraint
from ..engine.request import Finished, Request
from ..responses import GenerationFinishReason, MessageResponse
from ..runner.contract import Generation

if TYPE_CHECKING:
    from ..engine.sampling.token_scores import TokenScore
    from .modalities.voice import Listener


class InProcessGeneration(Generation):
    """Reads a submitted ``request`` and builds its ``reply``. ``remember`` is called once that has ended well.
    ``listener``: for a request that speaks."""

    def __init__(
        self, request: Request, reply: ReplyBuilder, remember: Callable[[], None], listener: Listener | None = None
    ) -> None:
        self._sequence = request
        self.prompt_tokens = len(request.prompt)
        self._reply = reply
        self._remember = remember
        self._listener = listener
        self._ready: deque[MessageResponse] = deque()
        self._ended = False
        self._stopped = False
        self._met_stop_string = False

    def __next__(self) -> MessageResponse:
        while not self._ready:
            if self._ended:
                raise StopIteration
            self._receive()
        return self._ready.popleft()

    def _receive(self) -> None:
        event = self._sequence.events.get()
        if isinstance(event, Finished):
            self._ended = True
            if event.error is not None:
                raise event.error
            self._remember()
            if self._listener is not None:
                self._ready.extend(self._listener.end())
                self._reply.add_speech(self._listener.speech)
            self._ready.extend(self._reply.finish(self._reason(event), event.stats, *self._scores()))
        elif self._stopped or self._met_stop_string:
            return
        elif isinstance(event, tuple):
            assert self._listener is not None
            self._ready.extend(self._listener.take_frame(event))
        else:
            if self._listener is not None:
                self._listener.take_token(event)
            self._ready.extend(self._reply.feed(event))
            if self._reply.met_stop_string:
                self._met_stop_string = True
                self._sequence.cancel()

    def _scores(self) -> tuple[Sequence[TokenScore], Sequence[TokenScore]]:
        recorder = self._sequence.prompt_recorder
        return self._sequence.scores, recorder.scores if recorder is not None else ()

    def _reason(self, event: Finished) -> GenerationFinishReason:
        if self._met_stop_string:
            return GenerationFinishReason.STOP
        if self._stopped:
            return GenerationFinishReason.INTERRUPTED
        constraint, watch = self._sequence.constraint, self._sequence.watch
        if event.reason is GenerationFinishReason.REPETITION and watch is not None:
            self._reply.warn(f"the answer went in circles of {watch.period} tokens and was ended (--no-loop-stop)")
        if not isinstance(constraint, FinishingConstraint) or not constraint.cut:
            return event.reason
        self._reply.warn(f"the shape was ended the shortest way, within {constraint.room} tokens")
        by_option = self._sequence.max_tokens == constraint.room
        return GenerationFinishReason.MAX_TOKENS if by_option else GenerationFinishReason.EXCEED_CONTEXT

    def stop(self) -> None:
        self._stopped = True  # tokens that were generated ahead of the reader are dropped: the answer ends here
        self._sequence.cancel()

    def __del__(self) -> None:
        self._sequence.cancel()

    def close(self) -> None:
        self._sequence.cancel()
        while not self._ended:  # nothing goes on behind the caller's back
            self._ended = isinstance(self._sequence.events.get(), Finished)
        self._ready.clear()
        if self._listener is not None:
            self._listener.close()

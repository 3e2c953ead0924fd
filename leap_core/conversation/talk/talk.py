"""A spoken conversation over sound that a program brings and takes.

talk.feed(samples)                 in the microphone's thread: mono, at ``sample_rate``
samples = talk.play(480)           in the loudspeaker's thread: mono, 24 kHz
for event in talk.hold(runner.create_conversation(CONVERSATION_PROMPT)):
    states, utterances, the answers' responses, interruptions
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from ...errors import LeapOptionsError
from ...system.dataclass import dataclass
from ..media.audio import RATE
from ..messages import ChatMessage, ChatMessageContent, ChatMessageRole
from ..responses import AudioSample, Complete, MessageResponse
from ..streams import PassingStream, Stream
from .hearing import FRAME, PAUSE, QUIETEST, Ears, Echo, Interrupted, StateChange, TalkEvent, TalkState, Utterance
from .playback import Playback

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from ..conversation import Conversation
    from ..options import GenerationOptions

POLL = 0.2
"""Seconds between two looks of a thread that waits, so that Ctrl-C reaches it on every system."""


@dataclass(frozen=True)
class TalkSettings:
    """``pause``: seconds of quiet that end an utterance. ``push``: only what is said between ``press`` and ``release``
    is one. ``interrupts``: whether speaking stops an answer; otherwise the input is ignored while one plays.
    ``hears_itself``: whether the loudspeaker may come back through the microphone; then a voice over an answer has to
    be louder than that."""

    pause: float = PAUSE
    push: bool = False
    interrupts: bool = True
    hears_itself: bool = True

    def __post_init__(self) -> None:
        if not 0.2 <= self.pause <= 5.0:
            raise LeapOptionsError("pause", f"{self.pause:g} is not from 0.2 to 5 seconds")


class Talk:
    """Takes audio input, plays answers, and stops them when the user speaks. Any thread may call.

    ``sample_rate``: Hz of what is fed. ``on_event`` is called with each state, utterance and interruption, in the
    thread that feeds or answers.
    """

    def __init__(
        self,
        settings: TalkSettings | None = None,
        *,
        sample_rate: int = RATE,
        on_event: Callable[[TalkEvent], object] | None = None,
    ) -> None:
        self._settings = settings or TalkSettings()
        self._ears = Ears(self._settings.pause)
        self._echo = Echo()
        self._playback = Playback()
        self._resampler = _resampler(sample_rate)
        self._on_event = on_event or (lambda _: None)
        self._guard = threading.RLock()
        self._rest: NDArray[float32] | None = None
        self._utterances: deque[Utterance] = deque()
        self._answer: SpokenAnswer | None = None
        self._consumer_waits = False
        self._ended = False
        self.state = TalkState.IDLE

    def feed(self, samples: NDArray[float32]) -> None:
        """The microphone's next samples: mono, from -1 to 1."""
        import numpy as np

        with self._guard:
            samples = self._resampler(np.asarray(samples, np.float32))
            if self._rest is not None and len(self._rest):
                samples = np.concatenate([self._rest, samples])
            whole = len(samples) // FRAME * FRAME
            for start in range(0, whole, FRAME):
                self._hear(samples[start : start + FRAME])
            self._rest = samples[whole:]

    def play(self, count: int) -> NDArray[float32]:
        """The next samples for the loudspeaker, mono at 24 kHz; silence where the model says nothing."""
        return self._playback.read(count)

    def play_all(self, count: int) -> NDArray[float32]:
        """The same, for one who does not play in real time: waits while an answer is made and has too few samples."""
        with self._playback.changed:
            while not self._is_ready(count):
                self._playback.changed.wait(POLL)
            return self._playback.read(count)

    def press(self) -> None:
        """What is said from now on is an utterance, until ``release``; an answer is stopped."""
        with self._guard:
            if not self._ended:
                self._interrupt()
                self._ears.press()
                self._change(TalkState.LISTENING)

    def release(self) -> Utterance | None:
        """The utterance is over; what it is, None where nothing was said."""
        with self._guard:
            return self._take(self._ears.end())

    @property
    def is_pressed(self) -> bool:
        """Whether ``press`` waits for its ``release``."""
        return self._ears.is_pressed

    def end(self) -> None:
        """The input ends: so does the current utterance, and those that wait are still answered."""
        with self._guard:
            self._take(self._ears.end())
            self._ended = True
        with self._playback.changed:
            self._playback.changed.notify_all()

    def close(self) -> None:
        """Stop the answer, the input and the playback."""
        with self._guard:
            self._ears.forget()
            self._ended = True
            self._playback.close()
            answer = self._answer
        if answer is not None:
            answer.interrupt()

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._playback.is_closed

    @property
    def has_ended(self) -> bool:
        """Whether the input has ended."""
        return self._ended

    @property
    def has_utterance(self) -> bool:
        """Whether something waits to be answered."""
        return bool(self._utterances)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is left to be answered or played."""
        with self._playback.changed:
            return self._playback.is_closed or (self._consumer_waits and not self._utterances)

    def next_utterance(self, *, wait: bool = True) -> Utterance | None:
        """The next thing to answer; None when there is none, or after the end. Whoever asks has answered the one
        before."""
        changed = self._playback.changed
        with changed:
            self._consumer_waits = True
            changed.notify_all()
            while wait and not self._utterances and not self._ended:
                changed.wait(POLL)
            if not self._utterances:
                return None
            self._consumer_waits = False
            return self._utterances.popleft()

    def speaking(self, stream: Stream) -> SpokenAnswer:
        """The answer ``stream``, which is played while it is read, and ends when it was played or interrupted."""
        return SpokenAnswer(stream, self, self._playback)

    def hold(
        self, conversation: Conversation, options: GenerationOptions | None = None
    ) -> Iterator[TalkEvent | MessageResponse]:
        """Answer utterance after utterance until ``end`` or ``close``; everything that happens, in order. What a user
        says before the first word of an answer joins what that was to answer.

        Raises what answering raises; the talk may be held again.
        """
        events: SimpleQueue[TalkEvent] = SimpleQueue()
        before, self._on_event = self._on_event, events.put
        unanswered: list[ChatMessageContent] = []
        try:
            while True:
                utterance = None if self.is_closed else self.next_utterance(wait=False)
                if utterance is None:
                    if self._ended and events.empty():
                        return
                    with suppress(Empty):
                        yield events.get(timeout=POLL)
                    continue
                yield from _all(events)
                unanswered += utterance.parts()
                message = ChatMessage(ChatMessageRole.USER, unanswered)
                with closing(self.speaking(conversation.generate_response(message, options))) as stream:
                    yield from _all(events)
                    for response in stream:
                        yield from _all(events)
                        yield response
                        if isinstance(response, Complete) and not response.is_lost:
                            unanswered = []
        finally:
            self._on_event = before

    def _is_ready(self, count: int) -> bool:
        playback = self._playback
        if playback.waiting >= count or (self._consumer_waits and not self._utterances) or playback.is_closed:
            return True
        return bool(playback.waiting) and playback.has_all

    def _hear(self, frame: NDArray[float32]) -> None:
        played = self._playback.level if self._settings.hears_itself else QUIETEST
        sounds = self._answer is not None
        opens = not self._settings.push and not self._ended and (self._settings.interrupts or not sounds)
        was_hearing = self._ears.is_hearing
        utterance = self._ears.hear(frame, opens=opens, at_least=self._echo.drowned_out_from(played))
        if sounds and not self._ears.is_hearing:
            self._echo.hear(played, self._ears.level)
        if self._ears.is_hearing and not was_hearing:
            self._interrupt()
            self._change(TalkState.LISTENING)
        if was_hearing and not self._ears.is_hearing:
            self._take(utterance)

    def _take(self, utterance: Utterance | None) -> Utterance | None:
        if utterance is not None:
            with self._playback.changed:
                self._utterances.append(utterance)
                self._playback.changed.notify_all()
            self._on_event(utterance)
        elif self.state is TalkState.LISTENING:
            self._change(TalkState.IDLE if self._answer is None else TalkState.RESPONDING)
        return utterance

    def _interrupt(self) -> None:
        answer = self._answer
        if answer is None or answer.is_stopped:
            return
        heard = self._playback.drop()
        answer.interrupt()
        self._on_event(Interrupted(self._ears.seconds, heard))

    def _begin(self, answer: SpokenAnswer) -> None:
        with self._guard:
            self._answer = answer
            self._playback.begin()
            if self.is_closed or self._ears.is_hearing:  # the user went on while the answer before was being stopped
                answer.interrupt()
            else:
                self._change(TalkState.RESPONDING)

    def _finish(self, answer: SpokenAnswer) -> None:
        with self._guard:
            if self._answer is answer:
                self._answer = None
                if self.state is TalkState.RESPONDING:
                    self._change(TalkState.IDLE)

    def _change(self, state: TalkState) -> None:
        if state is not self.state:
            self.state = state
            self._on_event(StateChange(state, self._ears.seconds))


class SpokenAnswer(PassingStream):
    """An answer whose sound is played while it is read."""

    def __init__(self, stream: Stream, talk: Talk, playback: Playback) -> None:
        super().__init__(stream)
        self._talk, self._playback = talk, playback
        self.is_stopped = False
        self.is_interrupted = False
        """Whether the user's voice stopped it, or the end of the talk."""
        talk._begin(self)

    def __next__(self) -> MessageResponse:
        response = super().__next__()
        if isinstance(response, AudioSample):
            self._playback.write(response.samples)
        elif isinstance(response, Complete):
            self._playback.finish()
            self._talk._finish(self)
        return response

    def interrupt(self) -> None:
        """Stop because the user speaks."""
        self.is_interrupted = True
        self.stop()

    def stop(self) -> None:
        self.is_stopped = True
        self._playback.drop()
        super().stop()

    def close(self) -> None:
        super().close()
        self._playback.drop()
        self._talk._finish(self)


def _all(events: SimpleQueue[TalkEvent]) -> Iterator[TalkEvent]:
    while not events.empty():
        yield events.get()


def _resampler(rate: int) -> Callable[[NDArray[float32]], NDArray[float32]]:
    if rate == RATE:
        return lambda samples: samples
    if not 1000 <= rate <= 768_000:
        raise LeapOptionsError("sample_rate", f"{rate} is not from 1000 to 768000 Hz")
    import soxr

    stream = soxr.ResampleStream(rate, RATE, 1, dtype="float32")
    return lambda samples: stream.resample_chunk(samples)

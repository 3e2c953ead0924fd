"""A spoken conversation, with a scripted model and with the miniature, in the time of its samples."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from leap_core import Leap
from leap_core.conversation.conversation import Conversation
from leap_core.conversation.media.audio import RATE
from leap_core.conversation.messages import Audio, ChatMessage
from leap_core.conversation.responses import AudioSample, Complete
from leap_core.conversation.runner import ModelRunner
from leap_core.conversation.talk.hearing import Interrupted, StateChange, TalkState, Utterance
from leap_core.conversation.talk.playback import RATE as PLAYED
from leap_core.conversation.talk.talk import Talk, TalkSettings
from leap_core.errors import LeapGenerationError, LeapOptionsError
from leap_core.inference.speech.voices import CONVERSATION_PROMPT
from leap_core.testing.miniature_speech import TONES
from leap_core.testing.scripted import ScriptedModelRunner, Stall

from .sound import Samples, devices, note, quiet, recording, tones

HUM = AudioSample(tuple(0.3 * np.sin(2 * np.pi * 450 * np.arange(PLAYED) / PLAYED)), PLAYED)
"""A second of sound."""
IDLE, LISTENING, RESPONDING = TalkState.IDLE, TalkState.LISTENING, TalkState.RESPONDING


def talked(talk: Talk, runner: ModelRunner, samples: Samples) -> tuple[list[object], list[Samples], list[ChatMessage]]:
    conversation = runner.create_conversation(CONVERSATION_PROMPT)
    with devices(talk, samples) as played:
        events = list(talk.hold(conversation))
    return events, played, conversation.history


@contextmanager
def holding(talk: Talk, conversation: Conversation) -> Iterator[list[object]]:
    """Hold the talk in another thread until the block is over; what happens."""
    events: list[object] = []
    reader = threading.Thread(target=lambda: events.extend(talk.hold(conversation)))
    reader.start()
    try:
        yield events
    finally:
        talk.close()
        reader.join()


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def of_kind(events: list[object], *kinds: type) -> list[object]:
    return [event for event in events if isinstance(event, kinds)]


@pytest.fixture(scope="module")
def runner(hearing_miniature: Path) -> Iterator[ModelRunner]:
    with Leap.load(str(hearing_miniature)) as runner:
        yield runner


@pytest.mark.slow
def test_each_utterance_gets_the_answer_that_belongs_to_it(runner: ModelRunner) -> None:
    said = ["do", "mi", "la"]
    samples = recording(0.5, *(piece for name in said for piece in (note(name), 2.6)))
    events, played, history = talked(Talk(), runner, samples)
    assert [hertz for _, _, hertz in tones(played)] == pytest.approx([TONES["low"], TONES["mid"], TONES["high"]], abs=3)
    assert [message.role.value for message in history] == ["system", *["user", "assistant"] * 3]
    states = [event.state for event in of_kind(events, StateChange)]
    assert states == [LISTENING, RESPONDING, IDLE] * 3
    heard = of_kind(events, Utterance)
    assert [event.start for event in heard] == pytest.approx([0.3, 3.8, 7.3], abs=0.1)
    assert all(0.9 < event.seconds < 1.4 for event in heard)


@pytest.mark.slow
def test_speaking_stops_the_answer_at_once(runner: ModelRunner) -> None:
    samples = recording(0.5, note("la"), 1.1, note("do"), 2.5)
    spoken_from = 0.5 + 0.9 + 1.1 + 0.15
    events, played, history = talked(Talk(), runner, samples)
    (interruption,) = of_kind(events, Interrupted)
    first, second = tones(played)
    assert first[1] - spoken_from == pytest.approx(0.1, abs=0.1), "stopped within 200 ms"
    assert (first[2], second[2]) == pytest.approx((TONES["high"], TONES["low"]), abs=3)
    assert interruption.heard == pytest.approx(first[1] - first[0], abs=0.1)
    assert len(history) == 5, "what was heard of the answer stays in the conversation"


@pytest.mark.slow
def test_an_uninterruptible_answer_is_played_to_its_end(runner: ModelRunner) -> None:
    samples = recording(0.5, note("la"), 1.1, note("do"), 2.5)
    events, played, _ = talked(Talk(TalkSettings(interrupts=False)), runner, samples)
    assert not of_kind(events, Interrupted) and len(of_kind(events, Utterance)) == 1
    assert len(tones(played)) == 1


def test_the_model_does_not_run_far_ahead_of_the_loudspeaker() -> None:
    runner = ScriptedModelRunner([HUM] * 60, [HUM], speaks=True)
    events, _, _ = talked(Talk(), runner, recording(0.5, note("la"), 3.0, note("do")[:8000], 0.3))
    kept = sum(len(event.samples) for event in of_kind(events, AudioSample)) / PLAYED
    (interruption,) = of_kind(events, Interrupted)
    assert interruption.heard == pytest.approx(2.65, abs=0.15)
    kept -= 1  # the second answer
    assert kept <= interruption.heard + 3, "a second waits, one goes beyond it, and one is held back"


def test_speech_before_the_first_word_of_an_answer_belongs_to_the_question() -> None:
    runner = ScriptedModelRunner([Stall(seconds=60)], [HUM], speaks=True)
    conversation = runner.create_conversation()
    with holding(talk := Talk(), conversation) as events:
        talk.feed(recording(0.5, note("la"), 0.8))
        wait_for(lambda: talk.state is RESPONDING)
        talk.feed(recording(note("do"), 0.8))
        with devices(talk, quiet(0.1)):
            wait_for(lambda: bool(conversation.history))
    assert len(of_kind(events, Complete)) == 2
    question, _ = conversation.history
    assert len(question.content) == 2 and all(isinstance(part, Audio) for part in question.content)


def test_a_long_utterance_is_one_message_of_several_audio_parts() -> None:
    spoken = recording(*[piece for _ in range(60) for piece in (note("do", 1.0), 0.1)])
    utterance = Utterance(0.0, len(spoken) / 16_000, spoken)
    parts = utterance.message().content
    lengths = [part.format.seconds for part in parts]
    assert len(parts) == 2 and max(lengths) <= 60.0 and sum(lengths) == pytest.approx(utterance.seconds, abs=0.01)


def test_all_audio_between_press_and_release_is_an_utterance() -> None:
    runner = ScriptedModelRunner([HUM], speaks=True)
    talk = Talk(TalkSettings(push=True))
    talk.feed(recording(0.5, note("la"), 1.0))
    assert talk.state is IDLE
    talk.press()
    talk.feed(recording(note("do"), 1.0, note("mi")))
    assert talk.state is LISTENING
    utterance = talk.release()
    assert utterance is not None and utterance.seconds == pytest.approx(2.8, abs=0.03)
    talk.press()
    assert talk.release() is None, "nothing was said"
    assert talk.state is IDLE
    assert talk.next_utterance() is utterance
    assert runner.requests == []


def test_closing_a_talk_wakes_all_waiting_threads() -> None:
    runner = ScriptedModelRunner([HUM] * 60, speaks=True)
    talk = Talk()
    talk.feed(recording(0.5, note("la"), 1.0))
    events = []
    for event in talk.hold(runner.create_conversation()):
        events.append(event)
        if isinstance(event, AudioSample):
            talk.close()
    assert isinstance(events[-1], (StateChange, Complete))
    assert talk.next_utterance() is None


def test_nothing_is_answered_after_the_close() -> None:
    runner = ScriptedModelRunner(*[[HUM] * 60] * 3, speaks=True)
    talk = Talk()
    for name in ("la", "do"):
        talk.feed(recording(0.5, note(name), 1.0))
    talk.close()
    assert not of_kind(list(talk.hold(runner.create_conversation())), Complete)
    assert runner.requests == []
    with closing(talk.speaking(runner.create_conversation().generate_response("Hum."))) as answer:
        assert answer.is_interrupted and not of_kind(list(answer), AudioSample)


def test_an_error_of_the_model_leaves_the_talk_usable() -> None:
    runner = ScriptedModelRunner([LeapGenerationError("broken")], [HUM], speaks=True)
    talk = Talk()
    talk.feed(recording(0.5, note("la"), 1.0))
    conversation = runner.create_conversation()
    with pytest.raises(LeapGenerationError):
        list(talk.hold(conversation))
    assert talk.state is IDLE
    with devices(talk, recording(note("do"), 1.0)) as played:
        list(talk.hold(conversation))
    assert len(tones(played)) == 1


def test_other_sample_rates_are_accepted() -> None:
    talk = Talk(sample_rate=8000)
    talk.feed(recording(0.5, note("la"), 1.0)[::2])
    utterance = talk.next_utterance()
    assert utterance is not None and utterance.seconds == pytest.approx(1.2, abs=0.2)
    with pytest.raises(LeapOptionsError):
        Talk(sample_rate=10)
    with pytest.raises(LeapOptionsError):
        TalkSettings(pause=0.0)


def test_an_answer_is_not_interrupted_by_its_own_echo() -> None:
    """What is played comes back through the microphone half as loud, 100 ms later; a voice over it still interrupts."""
    talk, question = Talk(), recording(0.5, note("la"), 1.0)
    voice = recording(0.5, 1.2 * note("do", 0.5), 1.0)[:RATE]
    delayed = [np.zeros(320, np.float32)] * 5

    def live(samples: Samples) -> None:
        for start in range(0, len(samples) // 320 * 320, 320):
            talk.feed(samples[start : start + 320] + 0.5 * delayed.pop(0))
            delayed.append(np.interp(np.arange(320) * 1.5, np.arange(480), talk.play_all(480)).astype(np.float32))

    with holding(talk, ScriptedModelRunner([HUM] * 5, speaks=True).create_conversation()) as events:
        talk.feed(question)
        wait_for(lambda: talk.state is RESPONDING)
        live(quiet(3.0))
        assert talk.state is RESPONDING and not of_kind(events, Interrupted)
        live(voice)
        assert talk.state is LISTENING
    assert len(of_kind(events, Interrupted)) == 1

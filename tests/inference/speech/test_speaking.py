"""A model that speaks, through the library: from the words of a prompt to samples that are measured."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from leap_core import Leap
from leap_core.conversation.media.wav import check_wav
from leap_core.conversation.messages import ChatMessage, Speech, Text
from leap_core.conversation.options import GenerationOptions, ModelLoadingOptions
from leap_core.conversation.responses import AudioSample, Chunk, Complete, GenerationFinishReason, MessageResponse
from leap_core.conversation.runner import ModelRunner
from leap_core.errors import LeapModelLoadingError
from leap_core.inference.speech.voices import CONVERSATION_PROMPT, VOICES
from leap_core.testing.miniature_speech import FRAMES, INTERLEAVED_TEXT, PLAIN_TEXT, TONES, VOCODER_FILE
from tests.wav_bytes import wav_of

SYNTHESIS = VOICES["us-female"]


@pytest.fixture(scope="module")
def runner(miniature: Path) -> Iterator[ModelRunner]:
    with Leap.load(str(miniature)) as runner:
        yield runner


def samples_of(responses: Sequence[MessageResponse]) -> list[float]:
    return [value for each in responses if isinstance(each, AudioSample) for value in each.samples]


def frequency(samples: Sequence[float], rate: int = 24_000) -> float:
    """The loudest frequency in Hz."""
    spectrum = np.abs(np.fft.rfft(np.array(samples) * np.hanning(len(samples))))
    return float(spectrum.argmax() * rate / len(samples))


def answer(
    runner: ModelRunner, text: str, system: str | None = SYNTHESIS, options: GenerationOptions | None = None
) -> tuple[list[MessageResponse], Complete]:
    responses = list(runner.create_conversation(system).generate_response(text, options))
    end = responses[-1]
    assert isinstance(end, Complete)
    return responses, end


@pytest.mark.parametrize("word", FRAMES)
def test_the_requested_tone_is_spoken(runner: ModelRunner, word: str) -> None:
    assert runner.speaks
    responses, end = answer(runner, f"Hum a {word} tone.")
    samples = samples_of(responses)
    assert len(samples) == 1920 * FRAMES[word]
    assert frequency(samples) == pytest.approx(TONES[word], abs=5)
    assert max(samples[4000:-4000]) == pytest.approx(0.3, abs=0.01)
    assert end.finish_reason is GenerationFinishReason.STOP and end.full_message.text == ""
    assert not [each for each in responses if isinstance(each, Chunk)], "markers are no text"


def test_each_frame_is_a_chunk(runner: ModelRunner) -> None:
    responses, _ = answer(runner, "A high tone.")
    lengths = [len(each.samples) for each in responses if isinstance(each, AudioSample)]
    assert lengths == [1440, *[1920] * (FRAMES["high"] - 1), 480]


def test_the_message_contains_audio_and_codes(runner: ModelRunner) -> None:
    responses, end = answer(runner, "A low tone.")
    (speech,) = end.full_message.content
    assert isinstance(speech, Speech)
    assert check_wav(speech.data).samples == len(samples_of(responses))
    frames = [item for item in speech.turn if isinstance(item, tuple)]
    assert len(frames) == FRAMES["low"] + 1 and frames[-1] == (2048,) * 8
    assert end.stats is not None and end.stats.completion_tokens == len(speech.turn)


def test_text_and_audio_alternate(runner: ModelRunner) -> None:
    responses, end = answer(runner, "Please: mid.", CONVERSATION_PROMPT)
    kinds = "".join("a" if isinstance(each, AudioSample) else "t" for each in responses[:-1])
    assert kinds == "t" * 6 + "a" * 12 + "t" * 2 + "a" * 5
    assert end.full_message.text == "".join(INTERLEAVED_TEXT)
    assert frequency(samples_of(responses)) == pytest.approx(TONES["mid"], abs=5)
    assert len(samples_of(responses)) == 1920 * 16


def test_without_a_tone_it_answers_in_text(runner: ModelRunner) -> None:
    responses, end = answer(runner, "Hello.", None)
    assert end.full_message.text == "".join(PLAIN_TEXT) and not samples_of(responses)


@pytest.mark.slow
def test_concurrent_speech_and_text_do_not_change_each_other(runner: ModelRunner) -> None:
    _, alone = answer(runner, "Hello.", None)
    results: dict[int, list[MessageResponse]] = {}

    def run(n: int) -> None:
        results[n] = answer(runner, f"A {list(FRAMES)[n % 3]} tone.")[0] if n < 6 else answer(runner, "Hello.", None)[0]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(6):
        word = list(FRAMES)[n % 3]
        samples = samples_of(results[n])
        assert len(samples) == 1920 * FRAMES[word] and frequency(samples) == pytest.approx(TONES[word], abs=5)
    for n in range(6, 10):
        assert isinstance(end := results[n][-1], Complete)
        assert end.full_message == alone.full_message


def test_stopped_speech_is_complete_so_far(runner: ModelRunner) -> None:
    stream = runner.create_conversation(SYNTHESIS).generate_response("A high tone.")
    responses = []
    for response in stream:
        responses.append(response)
        if len(responses) == 3:
            stream.stop()
    end = responses[-1]
    assert isinstance(end, Complete) and end.finish_reason is GenerationFinishReason.INTERRUPTED
    samples = samples_of(responses)
    assert len(samples) == 3 * 1920
    (speech,) = end.full_message.content
    assert isinstance(speech, Speech) and speech.format.samples == len(samples)
    again, _ = answer(runner, "A low tone.")
    assert frequency(samples_of(again)) == pytest.approx(450, abs=5)


def test_closing_speech_early_leaves_nothing_behind(runner: ModelRunner) -> None:
    conversation = runner.create_conversation(SYNTHESIS)
    stream = conversation.generate_response("A high tone.")
    next(stream)
    stream.close()
    assert len(conversation.history) == 1
    assert samples_of(answer(runner, "A low tone.")[0])


def test_max_tokens_counts_frames(runner: ModelRunner) -> None:
    responses, end = answer(runner, "A high tone.", options=GenerationOptions(max_tokens=4))
    assert end.finish_reason is GenerationFinishReason.MAX_TOKENS
    assert len(samples_of(responses)) == 3 * 1920


def test_speech_works_with_async_iteration(runner: ModelRunner) -> None:
    async def listen() -> list[MessageResponse]:
        stream = runner.create_conversation(SYNTHESIS).generate_response("A mid tone.")
        return [response async for response in stream]

    assert frequency(samples_of(asyncio.run(listen()))) == pytest.approx(600, abs=5)


def test_constrained_answers_are_text(runner: ModelRunner) -> None:
    options = GenerationOptions(choices_constraint=["yes", "no"])
    responses, end = answer(runner, "A low tone?", options=options)
    assert end.full_message.text in ("yes", "no") and not samples_of(responses)


def test_unloading_while_speaking_ends_the_stream(miniature: Path) -> None:
    runner = Leap.load(str(miniature))
    stream = runner.create_conversation(SYNTHESIS).generate_response("A high tone.")
    next(stream)
    runner.unload()
    try:
        rest = list(stream)  # the frames that had been made before are still heard, or are an error
    except Exception as error:
        assert "unloaded" in str(error)
    else:
        assert isinstance(rest[-1], Complete)


def test_the_companion_can_be_set_by_an_option(miniature: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    vocoder = tmp_path / "some voice.gguf"
    shutil.copy(miniature, model)
    shutil.copy(miniature.with_name(VOCODER_FILE), vocoder)
    with Leap.load(str(model)) as mute:
        assert not mute.speaks
        assert not samples_of(answer(mute, "A low tone.", options=GenerationOptions(max_tokens=8))[0])
    with Leap.load(str(model), ModelLoadingOptions(audio_decoder_path=vocoder)) as runner:
        assert runner.speaks and samples_of(answer(runner, "A low tone.")[0])


def test_a_named_companion_must_exist(miniature: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.gguf", miniature):
        with pytest.raises(LeapModelLoadingError):
            Leap.load(str(miniature), ModelLoadingOptions(audio_decoder_path=path))


def test_a_damaged_companion_is_one_error(miniature: Path, tmp_path: Path) -> None:
    shutil.copy(miniature, tmp_path / miniature.name)
    data = miniature.with_name(VOCODER_FILE).read_bytes()
    (tmp_path / VOCODER_FILE).write_bytes(data[: len(data) // 2])
    with pytest.raises(LeapModelLoadingError, match=f"{VOCODER_FILE} is a damaged GGUF file"):
        Leap.load(str(tmp_path / miniature.name))


def test_a_first_generation_voice_is_not_used(miniature: Path, tmp_path: Path) -> None:
    shutil.copy(miniature, tmp_path / "LFM2-Audio-1.5B-F16.gguf")
    shutil.copy(miniature.with_name(VOCODER_FILE), tmp_path / "audiodecoder-LFM2-Audio-1.5B-F16.gguf")
    (tmp_path / "tokenizer-LFM2-Audio-1.5B.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    options = ModelLoadingOptions(audio_tokenizer_path=tmp_path / "tokenizer-LFM2-Audio-1.5B.safetensors")
    with Leap.load(str(tmp_path / "LFM2-Audio-1.5B-F16.gguf"), options) as runner:
        assert not runner.speaks
        _, end = answer(runner, "Hello.", SYNTHESIS)
        assert "Mimi" in end.warnings[0]
        assert not answer(runner, "Hello.", None)[1].warnings


def test_a_second_turn_continues_the_first(runner: ModelRunner) -> None:
    conversation = runner.create_conversation(SYNTHESIS)
    first = list(conversation.generate_response("A low tone."))
    second = list(conversation.generate_response("And now, if you would be so kind, a high one."))
    assert frequency(samples_of(first)) == pytest.approx(450, abs=5)
    assert frequency(samples_of(second)) == pytest.approx(900, abs=5)
    assert [len(message.content) for message in conversation.history] == [1] * 5
    exported = conversation.export_to_json()
    again = runner.create_conversation_from_history([ChatMessage.from_json(message) for message in exported])
    third = list(again.generate_response("That was fine. Once more a mid one, and that will be all."))
    assert frequency(samples_of(third)) == pytest.approx(600, abs=5)


@pytest.mark.slow
def test_twelve_seconds_of_audio_keep_their_tone(runner: ModelRunner) -> None:
    """The sound stays as it began; nothing drifts or grows."""
    stream = runner.create_conversation(SYNTHESIS).generate_response("A drone.", GenerationOptions(max_tokens=150))
    samples = samples_of(list(stream))
    assert len(samples) == 149 * 1920
    for start in (5000, len(samples) // 2, len(samples) - 30_000):
        assert frequency(samples[start : start + 24_000]) == pytest.approx(300, abs=2)
        assert max(samples[start : start + 24_000]) == pytest.approx(0.3, abs=0.01)


@pytest.mark.slow
def test_the_second_turn_has_the_first_cached(runner: ModelRunner) -> None:
    conversation = runner.create_conversation(CONVERSATION_PROMPT)
    first = list(conversation.generate_response("A low tone, in a conversation of its own."))[-1]
    second = list(conversation.generate_response("And then, after a while, a high one."))
    assert isinstance(first, Complete) and first.stats is not None
    assert isinstance(end := second[-1], Complete) and end.stats is not None
    known = first.stats.prompt_tokens + first.stats.completion_tokens
    assert end.stats.cached_prompt_tokens >= known - 1, "what was said is not read again"
    assert frequency(samples_of(second)) == pytest.approx(900, abs=5)


@pytest.mark.slow
def test_a_loaded_history_has_the_same_codes(miniature: Path) -> None:
    """The prompt of a conversation that another process held is the same, position by position."""
    with Leap.load(str(miniature)) as there:
        conversation = there.create_conversation(CONVERSATION_PROMPT)
        list(conversation.generate_response("A low tone."))
        exported = conversation.export_to_json()
        counted = there.get_prompt_tokens_size(conversation.history)
    with Leap.load(str(miniature)) as here:
        history = [ChatMessage.from_json(message) for message in exported]
        assert here.get_prompt_tokens_size(history) == counted
        again = here.create_conversation_from_history(history)
        assert frequency(samples_of(list(again.generate_response("Now a mid one.")))) == pytest.approx(600, abs=5)
        text = here.render(history).text
        assert "<|audio_start|>" not in text and " tokens]" in text and "".join(INTERLEAVED_TEXT[:6]) in text


def test_speech_of_another_model_is_read_as_text(runner: ModelRunner) -> None:
    foreign = Speech(wav_of([0.0] * 100, 24_000), (3, (1, 2)))
    history = [ChatMessage("user", "Hum."), ChatMessage("assistant", [Text("Hm."), foreign])]
    assert "Hm." in runner.render(history).text
    _, end = answer(runner, "Hello.", None)
    assert end.full_message.text == "".join(PLAIN_TEXT)

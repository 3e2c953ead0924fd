"""Pictures and sound through the runner, on small random models, whose answers change with every wrong number."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as pillow

from leap_core.conversation.messages import (
    Audio,
    AudioPcmF32,
    ChatMessage,
    ChatMessageContent,
    Image,
    PagePicture,
    Text,
)
from leap_core.conversation.options import CacheOptions, GenerationOptions, ModelLoadingOptions
from leap_core.conversation.responses import Complete, MessageResponse
from leap_core.errors import (
    LeapGenerationPromptExceedContextLengthError,
    LeapModelLoadingError,
    LeapSerializationError,
    LeapUnsupportedMediaError,
)
from leap_core.inference.media import MediaReader
from leap_core.inference.runner import InProcessRunner
from tests.support.random_models import TINY_LFM2, write_random_model
from tests.support.random_projectors import TINY_AUDIO, TINY_VISION, write_random_projector

Load = Callable[..., InProcessRunner]


def picture(seed: int, size: tuple[int, int] = (96, 96)) -> Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), np.uint8)
    return Image.from_pil_image(pillow.fromarray(pixels))


def noise(seconds: float, seed: int = 1) -> Audio:
    samples = np.random.default_rng(seed).uniform(-0.4, 0.4, int(seconds * 16_000))
    return Audio.from_float_samples(samples.tolist(), 16_000)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("media")
    model = write_random_model(directory / "model.gguf", TINY_LFM2, "f32")
    projector = write_random_projector(
        directory / "mmproj.gguf", TINY_LFM2.width, vision=TINY_VISION, audio=TINY_AUDIO, quantization="f32"
    )
    return model, projector


@pytest.fixture
def load(files: tuple[Path, Path]) -> Iterator[Load]:
    loaded: list[InProcessRunner] = []

    def load_model(**options: Any) -> InProcessRunner:
        # With these, batches of different size round alike, so that answers can be compared.
        exact = {"flash_attention": False, "kv_type_k": "f32", "kv_type_v": "f32", "cpu_threads": 1}
        options = {"mm_proj_path": files[1], **exact, **options}
        loaded.append(InProcessRunner(files[0], "tiny", ModelLoadingOptions(**options)))
        return loaded[-1]

    yield load_model
    for runner in loaded:
        runner.unload()


GREEDY = GenerationOptions(temperature=0.0, max_tokens=12, repetition_penalty=1.0)


def ask(runner: InProcessRunner, *parts: ChatMessageContent | str, options: GenerationOptions = GREEDY) -> Complete:
    content = [Text(part) if isinstance(part, str) else part for part in parts]
    end = list(runner.start([ChatMessage("user", content)], (), options))[-1]
    assert isinstance(end, Complete)
    return end


def encoded(runner: InProcessRunner) -> int:
    assert isinstance(runner.media, MediaReader)
    return runner.media.cache.encoded


def test_the_token_count_of_a_prompt_with_an_image(load: Load) -> None:
    runner = load()
    words = runner.get_prompt_tokens_size([ChatMessage("user", "What is this?")])
    for size, tiles, tokens in (((96, 96), False, 64), ((512, 512), False, 256), ((1024, 768), True, 1770)):
        options = GenerationOptions(image_tiles=tiles)
        message = ChatMessage("user", [picture(1, size), Text("What is this?")])
        markers = 2 + (7 if tiles else 0)
        assert runner.render([message], (), options).tokens == words + tokens + markers
    small = runner.render([ChatMessage("user", picture(1, (512, 512)))], (), GenerationOptions(image_tokens=64))
    assert "<|image_start|>[64 tokens]<|image_end|>" in small.text
    assert encoded(runner) == 0, "nothing is encoded to count"


def test_answers_depend_on_the_picture_and_on_the_sound(load: Load) -> None:
    runner = load()
    answers = {ask(runner, picture(seed), "What is this?").full_message.text for seed in range(3)}
    assert len(answers) == 3
    heard = {ask(runner, noise(1.0, seed), "What is this?").full_message.text for seed in range(3)}
    assert len(heard) == 3 and not answers & heard


@pytest.mark.slow
def test_the_same_picture_twice_is_encoded_once(load: Load) -> None:
    runner = load(slots=2)
    first = ask(runner, picture(1), "What is this?")
    again = ask(runner, picture(1), "Which colour has it?")
    assert encoded(runner) == 1
    assert again.stats is not None and again.stats.cached_prompt_tokens >= 64, "nor is it read again"
    elsewhere = ask(runner, "Look at this other one:", picture(1))
    assert encoded(runner) == 1, "in another place its rows are the same"
    assert elsewhere.full_message.text == ask(load(), "Look at this other one:", picture(1)).full_message.text
    assert first.full_message.text == ask(load(), picture(1), "What is this?").full_message.text
    assert again.full_message.text == ask(load(), picture(1), "Which colour has it?").full_message.text


def test_media_beyond_the_caches_limit_are_encoded_again(load: Load) -> None:
    runner = load(media_cache_bytes=0, slots=1)
    one, two = (ask(runner, "a", picture(1)).full_message.text for _ in range(2))
    other = ask(runner, "another beginning", picture(1))
    assert one == two and other.finish_reason.value == "max_tokens"
    assert encoded(runner) == 2, "the second answer found the picture in the model's memory"


@pytest.mark.slow
def test_a_conversation_continues_with_its_media(load: Load) -> None:
    runner = load()
    conversation = runner.create_conversation("Be brief.")
    sizes = []
    turns = ([picture(1), Text("What is this?")], [Text("And what colour?")], [noise(0.5), Text("And this?")])
    for most, parts in zip((1, 1, 12), turns, strict=True):  # a reply of one token reads back as it was written
        options = GenerationOptions(temperature=0.0, max_tokens=most, repetition_penalty=1.0)
        end = list(conversation.generate_response(ChatMessage("user", parts), options))[-1]
        assert isinstance(end, Complete) and end.stats is not None
        sizes.append((end.stats.cached_prompt_tokens, end.stats.prompt_tokens))
    assert encoded(runner) == 2
    assert sizes[1][0] > 64 and sizes[2][0] > sizes[1][0], "each turn begins where the one before ended"
    fresh = load()
    history = conversation.history
    answer = list(fresh.start(history[:-1], (), GREEDY))[-1]
    assert isinstance(answer, Complete) and answer.full_message.text == history[-1].text


@pytest.mark.slow
def test_snapshots_on_disk_hold_media(load: Load, tmp_path: Path) -> None:
    cache = CacheOptions(path=tmp_path, enabled=True)
    first = load(cache_options=cache)
    expected = ask(first, picture(1), "What is this?").full_message.text
    first.unload()
    second = load(cache_options=cache)
    end = ask(second, picture(1), "What is this?")
    assert end.stats is not None and end.stats.cached_prompt_tokens > 64 and encoded(second) == 0
    assert end.full_message.text == expected
    other = ask(second, picture(2), "What is this?")
    assert other.full_message.text == ask(load(), picture(2), "What is this?").full_message.text


@pytest.mark.slow
def test_concurrent_questions_are_answered_as_alone(load: Load) -> None:
    questions: list[tuple[ChatMessageContent | str, ...]] = [
        (picture(1, (512, 384)), "What is this?"),
        (picture(2), "And this?"),
        ("Only words, and a lot of them, go on and on?",),
        (noise(2.0), "Who speaks?"),
    ]
    options = GenerationOptions(temperature=0.0, max_tokens=40, repetition_penalty=1.0)
    expected = [ask(load(), *question, options=options).full_message.text for question in questions]
    runner = load(slots=4)
    answers: dict[int, str] = {}

    def answer(n: int) -> None:
        answers[n] = ask(runner, *questions[n], options=options).full_message.text

    threads = [threading.Thread(target=answer, args=(n,)) for n in range(len(questions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [answers[n] for n in range(len(questions))] == expected
    assert encoded(runner) == 3


def test_penalties_ignore_media_tokens(load: Load) -> None:
    options = GenerationOptions(temperature=0.0, max_tokens=5, repetition_penalty=1.2, repeat_last_n=-1)
    assert ask(load(), picture(1), "What is this?", options=options).full_message.text


def test_the_context_limit_is_checked_before_anything_is_encoded(load: Load) -> None:
    runner = load(context_size=200)
    with pytest.raises(LeapGenerationPromptExceedContextLengthError) as failure:
        ask(runner, picture(1, (512, 512)), "What is this?")
    assert failure.value.prompt_tokens > 256 and failure.value.context_size == 200
    assert encoded(runner) == 0
    assert ask(runner, picture(1, (512, 512)), options=GenerationOptions(image_tokens=64, max_tokens=3))


def test_raw_samples_give_the_same_answer_as_a_wav(load: Load) -> None:
    samples = np.random.default_rng(5).uniform(-0.4, 0.4, 24_000).astype(np.float32).tolist()
    runner = load()
    raw = ask(runner, AudioPcmF32(samples, 24_000), "Who is it?").full_message.text
    assert raw == ask(runner, Audio.from_float_samples(samples, 24_000), "Who is it?").full_message.text


@pytest.mark.slow
def test_short_audio_has_a_warning_and_too_long_audio_is_refused(load: Load) -> None:
    runner = load()
    end = ask(runner, noise(0.3), "Who is it?")
    assert end.warnings == ("the sound is 0.30 s long; below 1 s models understand it badly",)
    assert ask(runner, noise(1.5), "Who is it?").warnings == ()
    for seconds, says in ((0.05, "too short: 0.050 s"), (61, "too long: 61.0 s, and at most 60 s")):
        with pytest.raises(LeapSerializationError, match=says):
            ask(runner, noise(seconds))


def test_a_damaged_picture_is_one_error_before_any_work(load: Load) -> None:
    whole = picture(1).data
    runner = load()
    for data in (whole[: len(whole) // 2], whole[:100], b"\xff\xd8\xff\xe0 no picture"):
        with pytest.raises(LeapSerializationError, match="picture"):
            ask(runner, Image(data), "What is this?")
    assert ask(runner, picture(1), "What is this?").full_message.text, "the runner goes on"


def test_a_model_without_projector_says_so(load: Load, files: tuple[Path, Path], tmp_path: Path) -> None:
    runner = load(mm_proj_path=None)
    with pytest.raises(LeapUnsupportedMediaError, match="contains a picture, and tiny reads text only"):
        ask(runner, picture(1), "What is this?")
    with pytest.raises(LeapUnsupportedMediaError, match="contains a sound, and tiny reads text only"):
        ask(runner, noise(1), "What is this?")
    with pytest.raises(LeapUnsupportedMediaError, match=r"^a.png \(1 of 2\): the message contains a picture"):
        ask(runner, Image(picture(1).data, name="a.png"), picture(2), "What are these?")
    with pytest.raises(LeapUnsupportedMediaError, match="^1 of 2: the message contains a picture"):
        ask(runner, picture(1), noise(1), picture(2), "What are these?")
    for name, medium in (("LFM2.5-VL-450M-Q4_0.gguf", picture(1)), ("LFM2.5-Audio-1.5B-Q4_0.gguf", noise(1))):
        path = tmp_path / name
        path.write_bytes(files[0].read_bytes())
        model_id = name.partition("-Q4")[0]
        with (
            InProcessRunner(path, model_id, ModelLoadingOptions()) as unseeing,
            pytest.raises(LeapUnsupportedMediaError, match=f"needs its projector .* mmproj-{path.stem}.gguf") as error,
        ):
            ask(unseeing, medium)
        assert error.value.hint is not None and f"leap download {model_id}" in error.value.hint


def page_picture(**fields: Any) -> PagePicture:
    return PagePicture(picture(1).data, "a.pdf", 2, **fields)


def test_a_text_model_leaves_out_a_page_that_is_an_image(load: Load) -> None:
    runner = load(mm_proj_path=None)
    with_page = ChatMessage("user", [page_picture(), Text("What is this?")])
    without = ChatMessage("user", "What is this?")
    assert runner.render([with_page]).text == runner.render([without]).text
    said = ask(runner, page_picture(), "What is this?")
    assert said.left_out == ("page 2 of a.pdf is a picture and was left out",)
    assert said.full_message == ask(runner, "What is this?").full_message
    assert MessageResponse.from_json(said.to_json()) == said
    with pytest.raises(LeapUnsupportedMediaError) as error:
        ask(runner, page_picture(is_needed=True), "What is this?")
    assert error.value.message.startswith("pages of a.pdf are pictures: the message contains a picture")
    seeing = load()
    assert not ask(seeing, page_picture(), "What is this?").left_out and encoded(seeing) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vision", "audio"])
def test_a_projector_for_one_kind_of_media_refuses_the_other(load: Load, tmp_path: Path, kind: str) -> None:
    shapes: dict[str, Any] = {"vision": TINY_VISION} if kind == "vision" else {"audio": TINY_AUDIO}
    runner = load(mm_proj_path=write_random_projector(tmp_path / "mmproj.gguf", TINY_LFM2.width, **shapes))
    refused, taken = (noise(1), picture(1)) if kind == "vision" else (picture(1), noise(1))
    assert ask(runner, taken, "Well?").full_message.text
    with pytest.raises(
        LeapUnsupportedMediaError, match="not accept audio" if kind == "vision" else "not accept images"
    ):
        ask(runner, refused, "Well?")


def test_a_projector_of_another_model_is_refused_at_loading(load: Load, tmp_path: Path) -> None:
    path = write_random_projector(tmp_path / "mmproj.gguf", 96, vision=TINY_VISION)
    with pytest.raises(LeapModelLoadingError, match="embeddings of width 96, and model.gguf has 64"):
        load(mm_proj_path=path)
    with pytest.raises(LeapModelLoadingError, match="is a model, not a projector"):
        load(mm_proj_path=write_random_model(tmp_path / "other.gguf"))


def test_too_many_media_are_refused(load: Load) -> None:
    with pytest.raises(LeapSerializationError, match="65 images and audio clips; at most 64"):
        ask(load(), *[picture(1)] * 65)

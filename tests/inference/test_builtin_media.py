"""The built-in models that see and hear, through leap: right answers about media that they were not trained on."""

from __future__ import annotations

import json
import random

import pytest

from leap_core import ChatMessage, GenerationOptions, Leap, ModelLoadingOptions
from leap_core.conversation.messages import Audio, Image, Text
from leap_core.conversation.responses import Complete
from leap_core.testing.pictures import Figure, Scene
from leap_core.testing.sounds import RATE, Clip, clip_of, random_clip
from tests.support.picture_questions import ask
from tests.support.random_scenes import random_scene
from tests.support.sound_questions import TRANSCRIBE, transcribe


def heard(clip: Clip) -> Audio:
    return Audio.from_float_samples(clip.play().tolist(), RATE)


def answer(runner, *parts, system=None, schema=None):
    history = [ChatMessage("system", system)] if system else []
    conversation = runner.create_conversation_from_history(history)
    options = GenerationOptions(max_tokens=100, json_schema_constraint=schema)
    for response in conversation.generate_response(ChatMessage("user", parts), options):
        if isinstance(response, Complete):
            return response.full_message.text
    raise AssertionError("no answer")


@pytest.fixture(scope="module")
def eyes():
    with Leap.load("builtin-vl", ModelLoadingOptions(cpu_threads=1)) as runner:
        yield runner


@pytest.fixture(scope="module")
def ears():
    with Leap.load("builtin-audio", ModelLoadingOptions(cpu_threads=1)) as runner:
        yield runner


@pytest.mark.parametrize(
    ("names", "question", "expected"),
    [
        (("do", "mi", "so"), "Which notes do you hear?", "do mi so."),
        (("ti", "re"), "How many notes are there?", "There are 2 notes."),
        (("fa", "la", "do"), "What is the second note?", "The second note is la."),
        (("so", "fa", "re"), "Which note is the highest?", "The highest note is so."),
        (("beep", "beep", "beep"), "How many beeps do you hear?", "There are 3 beeps."),
    ],
)
def test_notes_in_audio_are_recognized(ears, names, question, expected):
    assert answer(ears, heard(clip_of(*names)), Text(question)) == expected
    assert answer(ears, Text(question), heard(clip_of(*names))) == expected


@pytest.mark.slow
def test_unseen_clips_are_transcribed(ears):
    """Twenty by chance, of which 99 in 100 come out right."""
    clips = [random_clip(random.Random(f"test/{seed}")) for seed in range(20)]
    right = [answer(ears, heard(clip), system=TRANSCRIBE) == transcribe(clip) for clip in clips]
    assert sum(right) >= 18


def test_a_question_without_a_clip_is_answered(ears):
    assert answer(ears, Text("How many notes are there?")) == "I hear no audio. Give me some with --audio."


def seen(scene: Scene, noise: random.Random | None = None) -> Image:
    return Image.from_pil_image(scene.draw(256, 256, noise))


@pytest.mark.parametrize("colour", ["red", "blue", "green"])
def test_a_color_is_recognized(eyes, colour):
    picture = seen(Scene((Figure("circle", colour, 0.5, 0.5, 0.2),)))
    assert answer(eyes, picture, Text("What colour is the circle?")) == f"The circle is {colour}."
    assert answer(eyes, Text("What colour is the circle?"), picture) == f"The circle is {colour}."


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "least"), [("colour", 13), ("shape", 12), ("background", 14)])
def test_unseen_images_of_similar_figures_are_answered(eyes, kind, least):
    """Fifteen by chance; about 97 in 100 come out right."""
    right = 0
    for seed in range(15):
        rng = random.Random(f"test/{seed}")
        scene = random_scene(rng, alike=True)
        question = ask(scene, kind, rng)
        right += answer(eyes, seen(scene, rng), Text(question.text)) == question.answer
    assert right >= least


def test_fields_are_filled_by_a_schema(eyes):
    fields = {"shape": {"type": "string"}, "colour": {"type": "string"}}
    schema = json.dumps({"type": "object", "properties": fields, "required": ["shape", "colour"]})
    picture = seen(Scene((Figure("square", "blue", 0.5, 0.5, 0.2),)))
    said = answer(eyes, picture, Text("Extract what you see."), schema=schema)
    assert json.loads(said) == {"shape": "square", "colour": "blue"}


def test_a_question_without_an_image_is_answered(eyes):
    assert answer(eyes, Text("What colour is the circle?")) == "I see no picture. Give me one with --image."

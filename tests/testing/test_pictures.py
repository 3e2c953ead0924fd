"""Generated pictures show what is said about them."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest

from leap_core.testing.pictures import COLOURS, PLACES, Figure, Scene
from tests.support.picture_questions import KINDS, ask, ask_all, describe
from tests.support.random_scenes import random_scene

TWO = Scene((Figure("circle", "red", 0.2, 0.2, 0.12), Figure("square", "blue", 0.8, 0.5, 0.15)), "white")


def test_figures_are_where_and_what_they_are_said_to_be():
    picture = TWO.draw(300, 200)
    assert picture.size == (300, 200) and picture.mode == "RGB"
    assert picture.getpixel((60, 40)) == COLOURS["red"][0]
    assert picture.getpixel((240, 100)) == COLOURS["blue"][0]
    assert picture.getpixel((150, 100)) == COLOURS["white"][0]
    assert [figure.place for figure in TWO.figures] == ["top left", "right"]
    assert Figure("circle", "red", 0.5, 0.5, 0.1).place == "centre" and len(set(PLACES)) == 9


@pytest.mark.parametrize("shape", ["square", "triangle"])
def test_a_figure_stays_inside_the_circle_around_it(shape):
    picture = Scene((Figure(shape, "black", 0.5, 0.5, 0.3, 0.2),)).draw(200, 200)
    box = picture.convert("L").point(lambda value: 255 if value < 128 else 0).getbbox()
    assert box is not None and min(box[:2]) >= 39 and max(box[2:]) <= 161
    assert picture.getpixel((100, 100)) == (0, 0, 0)


def test_the_same_seed_makes_the_same_scene_and_picture():
    one, other = (random_scene(random.Random(3)) for _ in range(2))
    assert one == other
    assert one.draw(noise=random.Random(1)).tobytes() == other.draw(noise=random.Random(1)).tobytes()
    assert one.draw(noise=random.Random(1)).tobytes() != one.draw(noise=random.Random(2)).tobytes()


def test_scenes_are_clear():
    for seed in range(200):
        scene = random_scene(random.Random(seed), figures=seed % 4 + 1)
        assert len(scene.figures) == seed % 4 + 1
        for figure in scene.figures:
            assert figure.colour != scene.background
            assert figure.radius <= min(figure.x, 1 - figure.x, figure.y, 1 - figure.y)
    assert len({figure.name for figure in random_scene(random.Random(1), 4, alike=True).figures}) == 1


def test_answers_follow_from_the_scene():
    rng = random.Random(5)
    answers = {ask(TWO, kind, rng).answer for kind in KINDS for _ in range(40)}
    assert {"The circle is red.", "The square is blue.", "There is no triangle.", "There are 2 figures."} <= answers
    assert {"The circle is at the top left.", "The square is at the right.", "A blue square."} <= answers
    assert {"The square is on the right.", "The background is white.", "Yes.", "No."} <= answers
    assert describe(TWO) == "A red circle and a blue square on a white background."


def test_extractions_keep_to_their_schema():
    for seed in range(100):
        rng = random.Random(seed)
        question = ask(random_scene(rng), "extract", rng)
        assert question.schema is not None
        jsonschema.validate(json.loads(question.answer), json.loads(question.schema))


def test_there_is_a_question_of_every_kind_about_every_scene():
    for seed in range(100):
        rng = random.Random(seed)
        for question in ask_all(random_scene(rng), rng):
            assert question.text and question.answer

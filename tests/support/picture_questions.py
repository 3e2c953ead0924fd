"""Questions about a scene and the answers that ``builtin-vl`` learned to give, word for word."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import NamedTuple

from leap_core.schemas.json_values import JsonObject
from leap_core.testing.pictures import COLOURS, PLACES, SHAPES, Figure, Scene

COLOUR_WORDS = ("colour", "color")
STRING, INTEGER = {"type": "string"}, {"type": "integer"}


class Question(NamedTuple):
    """What is asked, the right answer, and of which kind the question is. ``schema``: the answer is JSON of it."""

    kind: str
    text: str
    answer: str
    schema: str | None = None


def ask(scene: Scene, kind: str, rng: random.Random) -> Question:
    """A question of this kind (see ``KINDS``), in one of its wordings."""
    return Question(kind, *KINDS[kind](scene, rng))


def ask_all(scene: Scene, rng: random.Random) -> list[Question]:
    """One question of each kind."""
    return [ask(scene, kind, rng) for kind in KINDS]


def _plural(shape: str) -> str:
    return shape + "s"


def _with_article(figure: Figure) -> str:
    return f"{'an' if figure.name[0] in 'aeiou' else 'a'} {figure.name}"


def _phrase(place: str) -> str:
    return "in the centre" if place == "centre" else f"at the {place}"


def _count(count: int, shape: str) -> str:
    if count == 0:
        return f"There are no {_plural(shape)}."
    return f"There is 1 {shape}." if count == 1 else f"There are {count} {_plural(shape)}."


def _single_shapes(scene: Scene) -> list[str]:
    return [shape for shape in SHAPES if sum(figure.shape == shape for figure in scene.figures) == 1]


def _of_shape(scene: Scene, rng: random.Random) -> tuple[str, list[Figure]]:
    """A shape whose figures have one colour, rarely one that is not there."""
    by_shape = {shape: [figure for figure in scene.figures if figure.shape == shape] for shape in SHAPES}
    absent = [shape for shape, figures in by_shape.items() if not figures]
    clear = [shape for shape, figures in by_shape.items() if figures and len({f.colour for f in figures}) == 1]
    shape = rng.choice(absent) if absent and (rng.random() < 0.12 or not clear) else rng.choice(clear)
    return shape, by_shape[shape]


def _colour(scene: Scene, rng: random.Random) -> tuple[str, str]:
    shape, figures = _of_shape(scene, rng) if _has_clear_shape(scene) else ("", [])
    if not shape:
        return _background(scene, rng)
    word = rng.choice(COLOUR_WORDS)
    if len(figures) > 1:
        plural = _plural(shape)
        texts = [f"What {word} are the {plural}?", f"Which {word} do the {plural} have?", f"{word} of the {plural}?"]
        return rng.choice(texts), f"The {plural} are {figures[0].colour}."
    text = rng.choice(
        [
            f"What {word} is the {shape}?",
            f"What {word} is the {shape}?",
            f"Which {word} is the {shape}?",
            f"Which {word} does the {shape} have?",
            f"What is the {word} of the {shape}?",
            f"What {word} does the {shape} have?",
            f"{word} of the {shape}?",
        ]
    )
    return text, f"The {shape} is {figures[0].colour}." if figures else f"There is no {shape}."


def _has_clear_shape(scene: Scene) -> bool:
    return any(len({figure.colour for figure in scene.figures if figure.shape == shape}) in (0, 1) for shape in SHAPES)


def _background(scene: Scene, rng: random.Random) -> tuple[str, str]:
    word = rng.choice(COLOUR_WORDS)
    texts = [f"What {word} is the background?", f"Which {word} is the background?", f"{word} of the background?"]
    return rng.choice(texts), f"The background is {scene.background}."


def _shape(scene: Scene, rng: random.Random) -> tuple[str, str]:
    colours = [c for c in COLOURS if len({figure.shape for figure in scene.figures if figure.colour == c}) == 1]
    if not colours:
        return _at(scene, rng)
    colour = rng.choice(colours)
    figures = [figure for figure in scene.figures if figure.colour == colour]
    shape = figures[0].shape
    if len(figures) > 1:
        texts = [f"What shape are the {colour} figures?", f"Which shapes are {colour}?", f"What is {colour}?"]
        return rng.choice(texts), f"The {_plural(shape)} are {colour}."
    texts = [
        f"What shape is {colour}?",
        f"Which shape is {colour}?",
        f"Which figure is {colour}?",
        f"What is {colour}?",
        f"What shape is the {colour} figure?",
        f"What shape does the {colour} figure have?",
    ]
    if len(scene.figures) == 1:
        texts += ["What shape is it?", "What shape is the figure?", "Which shape do you see?", "What figure is this?"]
    return rng.choice(texts), f"The {shape} is {colour}."


def _number(scene: Scene, rng: random.Random) -> tuple[str, str]:
    chance = rng.random()
    if chance < 0.35:
        noun, count = rng.choice(["figure", "shape"]), len(scene.figures)
    else:
        present = [figure.shape for figure in scene.figures]
        noun = rng.choice(SHAPES) if rng.random() < 0.3 else rng.choice(present)
        count = present.count(noun)
    plural = _plural(noun)
    if chance > 0.85:
        colour = rng.choice([figure.colour for figure in scene.figures])
        if noun in SHAPES:
            noun, plural = f"{colour} {noun}", f"{colour} {plural}"
            count = sum(figure.name == noun for figure in scene.figures)
    texts = [
        f"How many {plural} are there?",
        f"How many {plural} are there?",
        f"How many {plural} do you see?",
        f"How many {plural} are in the picture?",
        f"How many {plural} does the picture show?",
        f"Count the {plural}.",
        f"What is the number of {plural}?",
    ]
    return rng.choice(texts), _count(count, noun)


def _where(scene: Scene, rng: random.Random) -> tuple[str, str]:
    singles = _single_shapes(scene)
    if not singles:
        return _at(scene, rng)
    shape = rng.choice(singles)
    figure = next(figure for figure in scene.figures if figure.shape == shape)
    name = figure.name if rng.random() < 0.3 else shape
    texts = [
        f"Where is the {name}?",
        f"Where is the {name}?",
        f"Where do you see the {name}?",
        f"In which part of the picture is the {name}?",
        f"Where in the picture is the {name}?",
        f"What is the position of the {name}?",
    ]
    return rng.choice(texts), f"The {shape} is {_phrase(figure.place)}."


def _at(scene: Scene, rng: random.Random) -> tuple[str, str]:
    by_place: dict[str, list[Figure]] = {place: [] for place in PLACES}
    for figure in scene.figures:
        by_place[figure.place].append(figure)
    occupied = [place for place, figures in by_place.items() if len(figures) == 1]
    free = [place for place, figures in by_place.items() if not figures]
    place = rng.choice(free) if not occupied or rng.random() < 0.2 else rng.choice(occupied)
    phrase = _phrase(place)
    texts = [f"What is {phrase}?", f"What do you see {phrase}?", f"Which figure is {phrase}?"]
    figures = by_place[place]
    article = _with_article(figures[0]) if figures else ""
    return rng.choice(texts), f"{article[0].upper()}{article[1:]}." if figures else f"There is nothing {phrase}."


def _side(scene: Scene, rng: random.Random) -> tuple[str, str]:
    singles = [f for f in scene.figures if f.shape in _single_shapes(scene)]
    pairs = [(f, "left", "right", "on the ") for f in singles if set(f.place.split()) & {"left", "right"}]
    pairs += [(f, "top", "bottom", "at the ") for f in singles if set(f.place.split()) & {"top", "bottom"}]
    if not pairs:
        return _exists(scene, rng)
    figure, first, second, prefix = rng.choice(pairs)
    one, other = rng.sample([first, second], 2)
    side = next(word for word in figure.place.split() if word in (first, second))
    text = f"Is the {figure.shape} {prefix}{one} or {prefix}{other}?"
    return text, f"The {figure.shape} is {prefix}{side}."


def _exists(scene: Scene, rng: random.Random) -> tuple[str, str]:
    figure = rng.choice(scene.figures)
    shape, colour = figure.shape, figure.colour
    if rng.random() < 0.5:
        shape = rng.choice(SHAPES)
    if rng.random() < 0.3:
        colour = rng.choice(list(COLOURS))
    full = rng.random() < 0.5
    there = any(f.shape == shape and (not full or f.colour == colour) for f in scene.figures)
    name = f"{colour} {shape}" if full else shape
    article = "an" if name[0] in "aeiou" else "a"
    texts = [f"Is there {article} {name}?", f"Do you see {article} {name}?", f"Does the picture show {article} {name}?"]
    return rng.choice(texts), "Yes." if there else "No."


DESCRIBE = (
    *("Describe the picture.", "Describe the image.", "Describe this picture.", "Describe this image."),
    *("What do you see?", "What is in the picture?", "What is in the image?", "What is in this picture?"),
    *("What does the picture show?", "What is this?", "Describe it.", "What can you see?", "What do you see here?"),
)


def describe(scene: Scene) -> str:
    """The scene in one sentence."""
    first = scene.figures[0]
    if len(scene.figures) > 1 and len({figure.name for figure in scene.figures}) == 1:
        what = f"{len(scene.figures)} {first.colour} {_plural(first.shape)}"
    else:
        *others, last = map(_with_article, scene.figures)
        what = f"{', '.join(others)} and {last}" if others else last
    return f"{what[0].upper()}{what[1:]} on a {scene.background} background."


def _describe(scene: Scene, rng: random.Random) -> tuple[str, str]:
    return rng.choice(DESCRIBE), describe(scene)


EXTRACT = (
    *("Extract the data.", "Extract the following from the image.", "Describe the picture as JSON.", "Extract it."),
    *("Fill in the fields.", "What does the picture show?", "Describe the picture.", "Extract what you see."),
)


def _extract(scene: Scene, rng: random.Random) -> tuple[str, str, str]:
    """Some of the fields that can be told, in any order, by a JSON schema."""
    first, word = scene.figures[0], rng.choice(COLOUR_WORDS)
    fields: dict[str, tuple[JsonObject, object]] = {
        "count": (INTEGER, len(scene.figures)),
        "background": (STRING, scene.background),
    }
    if len({figure.name for figure in scene.figures}) == 1:
        fields |= {"shape": (STRING, first.shape), word: (STRING, first.colour)}
    if len(scene.figures) == 1:
        fields["position"] = (STRING, first.place)
    else:
        fields |= {_plural(shape): (INTEGER, sum(f.shape == shape for f in scene.figures)) for shape in SHAPES}
    if rng.random() < 0.25:
        item = {"type": "object", "properties": {"shape": STRING, word: STRING}, "required": ["shape", word]}
        listed = [{"shape": figure.shape, word: figure.colour} for figure in scene.figures]
        fields = {"figures": ({"type": "array", "items": item}, listed)}
    names = rng.sample(list(fields), rng.randint(min(2, len(fields)), min(4, len(fields))))
    schema = {"type": "object", "properties": {name: fields[name][0] for name in names}, "required": names}
    return rng.choice(EXTRACT), json.dumps({name: fields[name][1] for name in names}), json.dumps(schema)


KINDS: dict[str, Callable[[Scene, random.Random], tuple[str, ...]]] = {
    "colour": _colour,
    "background": _background,
    "shape": _shape,
    "count": _number,
    "where": _where,
    "at": _at,
    "side": _side,
    "exists": _exists,
    "describe": _describe,
    "extract": _extract,
}
"""Kinds of questions. One that a scene does not allow asks something near to it."""

"""Lessons for `builtin-vl`: pictures of simple figures, what stands where in them, and questions about them."""

from __future__ import annotations

import io
import random
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from builtin_data.media_rows import MEDIUM, Rows, Turn, encode, learned_texts, render
from builtin_data.tokenizer import Vocabulary, learn_closed
from builtin_data.vision import Vision, VisionShape
from PIL import Image
from tokenizers import Tokenizer
from torch import Tensor, nn

from leap_core.testing.pictures import (
    BACKGROUNDS,
    COLOURS,
    PLACES,
    SHAPES,
    Figure,
    Scene,
)
from tests.support.picture_questions import DESCRIBE, KINDS, ask, describe
from tests.support.random_scenes import MOST_FIGURES, random_scene

START, END = "<|image_start|>", "<|image_end|>"
TILES = [f"<|img_row_{row}_col_{column}|>" for row in range(1, 11) for column in range(1, 11)]
SPECIAL = ["<image>", START, END, "<|img_thumbnail|>", *TILES]
"""What llama.cpp's mtmd writes around pictures, and what the chat template writes in their place."""
NO_PICTURE = "I see no picture. Give me one with --image."
HELLO = {
    "Hello": "Hello! Show me a picture of circles, squares and triangles.",
    "Hi": "Hello! Show me a picture of circles, squares and triangles.",
    "Who are you?": "I am leap's built-in demo model for pictures. I know circles, squares and triangles.",
    "What can you do?": "I tell colour, shape, number and place of circles, squares and triangles.",
    "Thank you.": "You are welcome.",
}
COLOUR_NAMES, MOST_TOKENS = list(COLOURS), 1024
MOST_TURNS, EXTRACTED, ALONE = 4, 0.06, 0.03
"""Questions asked about a picture one after the other, how often some fields are extracted instead, and how often the
picture is sent alone."""


ASKED = {
    "colour": 2,
    "background": 1,
    "shape": 2,
    "count": 4,
    "where": 3,
    "at": 2,
    "side": 2,
    "exists": 3,
    "describe": 2,
}
"""How often what is asked, beside what is extracted."""
PARTS = (1, len(SHAPES) + 1, len(COLOURS) + 1, len(PLACES))
"""How many values the head tells of each label."""
MEAN = 8.0
"""The mean of a picture's tokens is small beside the few that stand for figures."""


class Size(NamedTuple):
    """Pictures of one size and how many of them make a batch."""

    width: int
    height: int
    batch: int


SMALL, USUAL = Size(192, 192, 24), Size(256, 256, 16)
OTHERS = (Size(320, 224, 14), Size(224, 320, 14), Size(416, 288, 8), Size(288, 416, 8), Size(512, 384, 5))
LARGE = Size(512, 512, 4)


class PictureBatch(NamedTuple):
    """``labels`` [batch, tokens, 4] and ``facts`` [batch, 11]: see `labels` and `facts`."""

    pictures: Tensor
    labels: Tensor
    facts: Tensor
    rows: list[Rows]


def vocabulary(rng: random.Random) -> Vocabulary:
    talks = []
    for _ in range(4000):
        scene = random_scene(rng)
        talks += [_turns(scene, rng, 3), _extraction(scene, rng)]
    talks += [[Turn(*pair)] for pair in HELLO.items()] * 30 + [[Turn(DESCRIBE[0], NO_PICTURE)]] * 100
    return learn_closed(learned_texts(talks, rng), MOST_TOKENS, SPECIAL)


def _turns(scene: Scene, rng: random.Random, count: int) -> list[Turn]:
    kinds = rng.choices(list(ASKED), list(ASKED.values()), k=count)
    return [Turn(question.text, question.answer) for question in (ask(scene, kind, rng) for kind in kinds)]


def _extraction(scene: Scene, rng: random.Random) -> list[Turn]:
    question = ask(scene, "extract", rng)
    return [Turn(question.text, question.answer, question.schema if rng.random() < 0.9 else None)]


def size_for(progress: float, rng: random.Random) -> Size:
    """Small pictures first: they cost least."""
    if progress < 0.65:
        return SMALL
    chance = rng.random()
    if chance < 0.65:
        return USUAL
    return LARGE if chance > 0.94 else rng.choice(OTHERS)


def as_seen(picture: Image.Image, rng: random.Random) -> Image.Image:
    """As pictures come: some enlarged or reduced before, some from a JPEG file."""
    if rng.random() < 0.3:
        size, part = picture.size, rng.uniform(0.4, 1.0)
        smaller = (max(48, round(size[0] * part)), max(48, round(size[1] * part)))
        picture = picture.resize(smaller, Image.Resampling.BILINEAR).resize(size, Image.Resampling.BILINEAR)
    if rng.random() < 0.4:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=rng.randint(60, 95))
        picture = Image.open(file).convert("RGB")
    return picture


def pixels(picture: Image.Image) -> np.ndarray:
    """[3, height, width], from -1 to 1."""
    return (np.asarray(picture, dtype=np.float32) / 127.5 - 1.0).transpose(2, 0, 1)


def labels(scene: Scene, size: Size, side: int) -> np.ndarray:
    """For each token [count, 4]: whether a centre lies in it, the shape and the colour at its middle (0: none), and of
    a centre the place (else -1)."""
    columns, rows = size.width // side, size.height // side
    shorter = min(size.width, size.height)
    made = np.zeros((rows, columns, 4), dtype=np.int64)
    made[..., 3] = -1
    y, x = (np.indices((rows, columns)) + 0.5) * side
    for figure in scene.figures:
        reach = np.hypot(x - figure.x * size.width, y - figure.y * size.height)
        inside = reach < _inner(figure) * shorter
        centre = int(figure.y * rows), int(figure.x * columns)
        inside[centre] = True
        made[inside, 1:3] = SHAPES.index(figure.shape) + 1, COLOUR_NAMES.index(figure.colour) + 1
        made[centre][0], made[centre][3] = 1, PLACES.index(figure.place)
    return made.reshape(-1, 4)


FACTS = (*([MOST_FIGURES + 1, len(COLOURS) + 1, len(PLACES) + 1] * len(SHAPES)), MOST_FIGURES + 1, len(BACKGROUNDS))
"""How many values each of the `facts` may have."""


def facts(scene: Scene) -> list[int]:
    """Of each shape how often it is there, its colour and, where it is there once, its place (0: none), then the number
    of figures and the background."""
    told = []
    for shape in SHAPES:
        figures = [figure for figure in scene.figures if figure.shape == shape]
        place = PLACES.index(figures[0].place) + 1 if len(figures) == 1 else 0
        told += [len(figures), COLOUR_NAMES.index(figures[0].colour) + 1 if figures else 0, place]
    return [*told, len(scene.figures), list(BACKGROUNDS).index(scene.background)]


def _inner(figure: Figure) -> float:
    """About the radius within which the figure is filled."""
    return figure.radius * {"circle": 1.0, "square": 0.75, "triangle": 0.55}[figure.shape]


class Pictures:
    """Makes batches of pictures and questions, and learns from them with a tower and an extra head."""

    def __init__(self, encoder: Tokenizer, seed: int) -> None:
        self.encoder = encoder
        self.rng = random.Random(seed)
        self.shape = VisionShape()

    def tower(self) -> Vision:
        return Vision(self.shape)

    def head(self) -> nn.ModuleList:
        """What each token should tell of what stands in it, and all of them of the picture; only trained with."""
        return nn.ModuleList(nn.Linear(self.shape.out, count) for count in (sum(PARTS), sum(FACTS)))

    def batch(self, progress: float) -> PictureBatch:
        rng, size = self.rng, size_for(progress, self.rng)
        side = self.shape.token_side
        count = (size.width // side) * (size.height // side)
        pictures, told, known, rows = [], [], [], []
        for index in range(size.batch):
            scene = random_scene(rng)
            pictures.append(pixels(as_seen(scene.draw(size.width, size.height, rng), rng)))
            told.append(labels(scene, size, side))
            known.append(facts(scene))
            rows.append((render(self._talk(scene), START + MEDIUM + END, rng), index, count))
        rows += [(self._without_picture(), 0, 0) for _ in range(1 + size.batch // 12)]
        stacked = (torch.from_numpy(np.stack(arrays)) for arrays in (pictures, told, np.array(known)))
        return PictureBatch(*stacked, encode(self.encoder, rows))

    def _talk(self, scene: Scene) -> list[Turn]:
        rng = self.rng
        if rng.random() < EXTRACTED:
            return _extraction(scene, rng)
        if rng.random() < ALONE:
            return [Turn("", describe(scene))]
        return _turns(scene, rng, rng.randint(1, MOST_TURNS))

    def _without_picture(self) -> list[tuple[str, bool]]:
        rng = self.rng
        if rng.random() < 0.4:
            question = rng.choice(list(HELLO))
            return render([Turn(question, HELLO[question])], "", rng)
        scene = random_scene(rng)
        kind = rng.choice([kind for kind in KINDS if kind != "extract"])
        text = rng.choice(DESCRIBE) if rng.random() < 0.2 else ask(scene, kind, rng).text
        return render([Turn(text, NO_PICTURE)], "", rng)

    def tokens(self, tower: Vision, batch: PictureBatch) -> tuple[Tensor, list[int]]:
        """What the tower makes of the batch's pictures, and how many tokens each has."""
        made = tower(batch.pictures)
        return made, [made.shape[1]] * len(made)

    def extra_loss(self, head: nn.ModuleList, tokens: Tensor, batch: PictureBatch) -> Tensor:
        centre, shape, colour, place = head[0](tokens).float().split(PARTS, -1)
        told = batch.labels
        loss = F.binary_cross_entropy_with_logits(centre[..., 0], told[..., 0].float(), pos_weight=torch.tensor(8.0))
        weight = torch.ones(len(SHAPES) + 1)
        weight[0] = 0.3
        loss = loss + F.cross_entropy(shape.flatten(0, 1), told[..., 1].flatten(), weight)
        loss = loss + F.cross_entropy(colour.flatten(0, 1), told[..., 2].flatten())
        loss = loss + 0.3 * F.cross_entropy(place.flatten(0, 1), told[..., 3].flatten(), ignore_index=-1)
        guesses = head[1](MEAN * tokens.mean(1)).float().split(FACTS, -1)
        known = [F.cross_entropy(guess, batch.facts[:, index]) for index, guess in enumerate(guesses)]
        return loss + sum(known) / len(known)

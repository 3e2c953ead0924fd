"""Scenes of figures, drawn from a seed."""

from __future__ import annotations

import math
import random

from leap_core.testing.pictures import BACKGROUNDS, COLOURS, SHAPES, Figure, Scene

MOST_FIGURES = 4
SMALLEST, LARGEST = 0.11, (0.3, 0.22, 0.19, 0.17)
"""Radii; the largest depends on the number of figures."""
NEAR = 0.04
"""How far, as a part of a side, a centre keeps away from the lines between left, middle and right."""


def random_scene(rng: random.Random, figures: int | None = None, alike: bool | None = None) -> Scene:
    """A scene of ``figures`` figures (1 to 4, or by chance): ``alike``, all of one shape and colour, or else two of
    different shapes and colours."""
    if alike is None:
        alike = figures not in (None, 2) or rng.random() < 0.65
    count = figures or (rng.randint(1, MOST_FIGURES) if alike else 2)
    background = rng.choice(list(BACKGROUNDS))
    while True:
        colours = rng.sample([colour for colour in COLOURS if colour != background], len(SHAPES))
        kinds = list(zip(rng.sample(SHAPES, len(SHAPES)), colours, strict=True))
        placed: list[Figure] = []
        for _ in range(60 * count):
            shape, colour = kinds[0 if alike else len(placed)]
            figure = _random_figure(rng, shape, colour, LARGEST[count - 1])
            if figure is not None and not any(_touch(figure, other) for other in placed):
                placed.append(figure)
            if len(placed) == count:
                return Scene(tuple(sorted(placed, key=_reading_order)), background)


def _random_figure(rng: random.Random, shape: str, colour: str, largest: float) -> Figure | None:
    """A figure inside the picture, or None where its place would be doubtful."""
    radius = rng.uniform(SMALLEST, largest)
    x, y = rng.uniform(radius, 1 - radius), rng.uniform(radius, 1 - radius)
    if any(abs(part - line / 3) < NEAR for part in (x, y) for line in (1, 2)):
        return None
    upright = rng.random() < 0.6
    return Figure(shape, colour, x, y, radius, 0.0 if upright else rng.uniform(-0.2, 0.2))


def _touch(one: Figure, other: Figure) -> bool:
    return math.hypot(one.x - other.x, one.y - other.y) < one.radius + other.radius + 0.03


def _reading_order(figure: Figure) -> tuple[int, float]:
    return int(3 * figure.y), figure.x

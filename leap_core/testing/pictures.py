"""Pictures of simple figures, drawn from a seed, with all that there is to know about them: what ``builtin-vl`` was
trained on, and what tests and demonstrations show it. Needs Pillow.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from ..system.dataclass import dataclass

if TYPE_CHECKING:
    from PIL.Image import Image

SHAPES = ("circle", "square", "triangle")
COLOURS = {
    "red": ((255, 0, 0), (205, 45, 45)),
    "green": ((0, 128, 0), (50, 185, 75)),
    "blue": ((0, 0, 255), (45, 90, 205)),
    "yellow": ((255, 255, 0), (240, 205, 45)),
    "orange": ((255, 165, 0), (240, 125, 30)),
    "purple": ((128, 0, 128), (145, 60, 185)),
    "black": ((0, 0, 0), (25, 25, 25)),
    "white": ((255, 255, 255), (240, 240, 240)),
}
"""Each from the web's colour of that name to another that is called so."""
BACKGROUNDS = {"white": COLOURS["white"], "black": COLOURS["black"], "grey": ((128, 128, 128), (165, 165, 165))}
COLUMNS, ROWS = ("left", "", "right"), ("top", "", "bottom")
MOST_FIGURES = 4
SMALLEST, LARGEST = 0.11, (0.3, 0.22, 0.19, 0.17)
"""Radii; the largest depends on the number of figures."""
NEAR = 0.04
"""How far, as a part of a side, a centre keeps away from the lines between left, middle and right."""
FINER = 2
"""Figures are drawn this much larger and then reduced, so that their edges are smooth."""


@dataclass(frozen=True)
class Figure:
    """One figure. ``x``, ``y``: its centre as parts of the picture's sides; ``radius``: of the circle around it, as a
    part of the shorter side; ``turn``: in radians, of squares and triangles."""

    shape: str
    colour: str
    x: float
    y: float
    radius: float
    turn: float = 0.0

    @property
    def place(self) -> str:
        """Where it is: ``top left``, ``top``, …, ``centre``, …, ``bottom right``."""
        row, column = ROWS[min(2, int(3 * self.y))], COLUMNS[min(2, int(3 * self.x))]
        return " ".join(filter(None, (row, column))) or "centre"

    @property
    def name(self) -> str:
        return f"{self.colour} {self.shape}"


PLACES = tuple(Figure("circle", "red", (c + 0.5) / 3, (r + 0.5) / 3, 0.1).place for r in range(3) for c in range(3))
"""The nine places, row by row."""


@dataclass(frozen=True)
class Scene:
    """Figures on a background, in reading order: row of places by row, in each from the left."""

    figures: tuple[Figure, ...]
    background: str = "white"

    def draw(self, width: int = 256, height: int = 256, noise: random.Random | None = None) -> Image:
        """The picture, RGB. With ``noise`` its colours are shades, else the web's of that name."""
        from PIL import Image, ImageDraw

        scale = FINER * min(width, height)
        size = (FINER * width, FINER * height)
        picture = Image.new("RGB", size, _varied(BACKGROUNDS[self.background], noise))
        pen = ImageDraw.Draw(picture)
        for figure in self.figures:
            x, y, radius = figure.x * size[0], figure.y * size[1], figure.radius * scale
            colour = _varied(COLOURS[figure.colour], noise)
            if figure.shape == "circle":
                pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
            else:
                pen.polygon(_corners(figure, x, y, radius), fill=colour)
        return picture.reduce(FINER)


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


def _corners(figure: Figure, x: float, y: float, radius: float) -> list[tuple[float, float]]:
    count = 4 if figure.shape == "square" else 3
    start = math.pi / 4 if count == 4 else -math.pi / 2
    angles = (start + figure.turn + 2 * math.pi * corner / count for corner in range(count))
    return [(x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles]


def _varied(ends: tuple[tuple[int, int, int], tuple[int, int, int]], noise: random.Random | None) -> tuple[int, ...]:
    if noise is None:
        return ends[0]
    part = noise.random()
    mixed = (one + part * (other - one) + noise.uniform(-9, 9) for one, other in zip(*ends, strict=True))
    return tuple(min(255, max(0, round(value))) for value in mixed)

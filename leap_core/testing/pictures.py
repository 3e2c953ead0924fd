"""Pictures of simple figures, with all that there is to know about them: what ``builtin-vl`` was trained on, and what
tests and demonstrations show it. Needs Pillow.
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

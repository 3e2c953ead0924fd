"""How LFM2-VL looks at a picture: which sizes it is brought to, how it is cut into tiles, and what that costs.

The vision tower sees patches of 16 x 16 pixels, of which 2 x 2 become one token: 32 x 32 pixels a token. One look has
64 to 256 tokens. Larger pictures may be cut into tiles of 512 x 512 pixels and a thumbnail of the whole. The rules are
those of llama.cpp's mtmd (tools/mtmd, mtmd-image.cpp), to the last bit of its floats.
"""

from __future__ import annotations

import math
from ctypes import c_float
from functools import cached_property
from typing import TYPE_CHECKING

from ...system.dataclass import dataclass

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 32
"""Pixels of a token's side."""
LEAST_TOKENS, MOST_TOKENS = 64, 256
"""One look takes this many when no other number is asked for."""
TILE = 512
LEAST_TILES, MOST_TILES = 2, 10


@dataclass(frozen=True)
class Look:
    """One picture for the encoder: ``box`` (left, top, right, bottom) of the whole after it was resized to ``whole``
    (width, height). ``keeps_ratio``: black borders fill what the picture's own ratio leaves free. ``marker`` is the
    token before it, or empty."""

    marker: str
    whole: tuple[int, int]
    box: tuple[int, int, int, int]
    keeps_ratio: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, multiples of 32."""
        left, top, right, bottom = self.box
        return right - left, bottom - top

    @property
    def tokens(self) -> int:
        width, height = self.size
        return width * height // SIDE**2


@dataclass(frozen=True)
class ImagePlan:
    """The looks at one picture, in the order in which the model reads them."""

    looks: tuple[Look, ...]

    @cached_property
    def tokens(self) -> int:
        """Of all looks, without markers."""
        return sum(look.tokens for look in self.looks)

    def cut(self, image: Image) -> list[Image]:
        """The pictures for the encoder, one a look."""
        kinds = {(look.whole, look.keeps_ratio) for look in self.looks}
        wholes = {kind: _resized(image, *kind) for kind in kinds}
        return [wholes[look.whole, look.keeps_ratio].crop(look.box) for look in self.looks]


def plan_image(width: int, height: int, *, most_tokens: int = MOST_TOKENS, tiles: bool = False) -> ImagePlan:
    """How a picture of this size is looked at; with the defaults and ``tiles``, exactly as llama.cpp's mtmd does it.

    ``most_tokens`` bounds one look; ``tiles`` cuts a picture that is much larger than one look into 2 to 10 tiles of
    256 tokens with a thumbnail, as the model was trained to read fine print.
    """
    whole = fitting_size(width, height, most_tokens=most_tokens)
    thumbnail = Look("", whole, (0, 0, *whole))
    if not tiles or not _is_large(width, height, most_tokens):
        return ImagePlan((thumbnail,))
    columns, rows = tile_grid(width, height)
    size = (columns * TILE, rows * TILE)
    looks = [
        Look(f"<|img_row_{row + 1}_col_{column + 1}|>", size, _box(column, row), keeps_ratio=True)
        for row in range(rows)
        for column in range(columns)
    ]
    return ImagePlan((*looks, Look("<|img_thumbnail|>", whole, thumbnail.box)))


def fitting_size(width: int, height: int, *, most_tokens: int = MOST_TOKENS) -> tuple[int, int]:
    """The sizes, multiples of 32 near the picture's own, that cost between 64 (or fewer, if that is the most) and
    ``most_tokens`` tokens. The ratio of the sides changes a little."""
    most = most_tokens * SIDE**2
    least = min(LEAST_TOKENS, most_tokens) * SIDE**2
    across, down = _rounded(width), _rounded(height)
    if across * down > most:
        shrink = _single(math.sqrt(width * height / most))
        return _down(_single(width / shrink)), _down(_single(height / shrink))
    if across * down < least:
        grow = _single(math.sqrt(least / (width * height)))
        across, down = _up(_single(width * grow)), _up(_single(height * grow))
        if across * down > most:  # both sides were rounded up: with a narrow budget that can be too much
            return _down(width * grow), _down(height * grow)
    return across, down


def tile_grid(width: int, height: int) -> tuple[int, int]:
    """Columns and rows of tiles, in the ratio nearest to the picture's; between equals the larger grid when the picture
    fills more than half of it."""
    ratio = _single(width / height)
    best, best_difference = (1, 1), math.inf
    grids = [
        (columns, rows)
        for columns in range(1, MOST_TILES + 1)
        for rows in range(1, MOST_TILES + 1)
        if LEAST_TILES <= columns * rows <= MOST_TILES
    ]
    for columns, rows in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        difference = _single(abs(ratio - _single(columns / rows)))
        fills_half = width * height > 0.5 * TILE**2 * columns * rows
        if difference < best_difference or (difference == best_difference and fills_half):
            best, best_difference = (columns, rows), difference
    return best


def _resized(image: Image, size: tuple[int, int], keeps_ratio: bool) -> Image:
    from PIL.Image import Resampling, new

    if not keeps_ratio:
        return image.resize(size, Resampling.BILINEAR)
    scale = _single(min(size[0] / image.width, size[1] / image.height))
    across = min(size[0], math.ceil(_single(image.width * scale)))
    down = min(size[1], math.ceil(_single(image.height * scale)))
    canvas = new("RGB", size)
    place = ((size[0] - across) // 2, (size[1] - down) // 2)
    canvas.paste(image.resize((across, down), Resampling.BILINEAR), place)
    return canvas


def _is_large(width: int, height: int, most_tokens: int) -> bool:
    # Halves to the even multiple here, as Liquid's own processor rounds.
    across, down = (max(SIDE // 2, round(side / SIDE) * SIDE) for side in (width, height))
    return across * down > 2 * most_tokens * SIDE**2


def _box(column: int, row: int) -> tuple[int, int, int, int]:
    return column * TILE, row * TILE, (column + 1) * TILE, (row + 1) * TILE


def _single(value: float) -> float:
    """The value as C's float holds it; ties are decided by its last bit."""
    return c_float(value).value


def _rounded(side: int) -> int:
    return max(SIDE, math.floor(side / SIDE + 0.5) * SIDE)  # halves up, as mtmd rounds here


def _down(side: float) -> int:
    return max(SIDE, math.floor(side / SIDE) * SIDE)


def _up(side: float) -> int:
    return max(SIDE, math.ceil(side / SIDE) * SIDE)

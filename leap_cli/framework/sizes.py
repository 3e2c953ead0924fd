"""Counts of bytes as people read and write them."""

from __future__ import annotations

import re

import click

UNITS = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4}
BINARY_UNITS = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
_UNIT_OF = {name.lower(): count for name, count in {**UNITS, **BINARY_UNITS}.items()}


def in_bytes(count: int) -> str:
    """``1.2 GB``: powers of 1000, as hubs count."""
    size, unit = float(count), "B"
    for unit in UNITS:
        if size < 999.5 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 99.5 else f"{size:.1f} {unit}"


def bytes_of(text: str) -> int:
    """The bytes of ``500MB``, ``1.5 GB`` or ``8GiB``. Raises ValueError for what is no size, and for a number without a
    unit."""
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if parts is None or (parts[2] and parts[2] not in _UNIT_OF):
        raise ValueError(f"{text!r} is not a size such as 500MB, 8GB or 8GiB")
    if not parts[2]:
        raise ValueError(f"{parts[1]} has no unit: write {parts[1]}MB or {parts[1]}GB")
    return int(float(parts[1]) * _UNIT_OF[parts[2]])


class Size(click.ParamType[int]):
    """An option's value in bytes, at least one. ``bare``: the unit of a number without one, where an option once took
    such numbers."""

    name = "size"

    def __init__(self, bare: str = "") -> None:
        self._bare = bare

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        try:
            size = bytes_of(text + self._bare if re.fullmatch(r"\s*\d+\s*", text) else text)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if size < 1:
            self.fail(f"{text} is less than one byte", param, ctx)
        return size

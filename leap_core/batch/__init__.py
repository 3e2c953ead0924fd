"""Many requests from a JSONL file, answered at once, written as JSONL, and resumable after anything that ends them.

``settings`` says what is asked for and ``checking`` reads all lines once, by ``input/``. ``run`` answers
them, ``journal/`` keeps each result the moment it comes, and ``output/`` takes it when it is its turn. ``Mapper``
answers the rows of a data frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clusters.mapper import Mapper as Mapper

__all__ = ["Mapper"]


def __getattr__(name: str) -> Any:
    if name == "Mapper":
        from .clusters.mapper import Mapper

        return Mapper
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

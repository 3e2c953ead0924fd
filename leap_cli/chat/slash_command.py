"""One command that begins with a slash, and what TAB offers after its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ..framework.environment import Environment
from .typed_conversation import TypedConversation


class Suggestion(NamedTuple):
    """The whole word that would stand in the line, and what it means."""

    value: str
    meaning: str = ""


Suggestions = Callable[[Environment, str], Iterable[Suggestion]]
"""The values that a word which begins so may have."""


@dataclass(frozen=True)
class SlashCommand:
    """``takes`` is what may follow the name, ``values`` what TAB offers there."""

    name: str
    takes: str
    meaning: str
    run: Callable[[TypedConversation, str], object]
    values: Suggestions | None = None

"""Counts and speed of a generation. Imports nothing of leap, so that errors can carry them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class GenerationStats:
    """Counts and speed of one generation.

    ``prompt_tokens`` were computed; ``cached_prompt_tokens`` were restored from the cache and are not among them;
    ``total_tokens`` = prompt_tokens + completion_tokens. ``token_per_second`` is the speed of decoding alone (0.0 when
    fewer than two tokens were made); ``time_to_first_token`` is in seconds from the request on, queueing included.
    """

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    token_per_second: float
    cached_prompt_tokens: int = 0
    time_to_first_token: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The fields as an object."""
        return asdict(self)

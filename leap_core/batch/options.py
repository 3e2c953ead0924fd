"""Options of a batch that are rows of the table: how much runs at once, and which model answers what the first answers
badly. The command line reads them at each start."""

from __future__ import annotations

from ..conversation.option_rows import Whole, Words, keep_checked, option, rows_of
from ..system.dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """How much of a batch runs at once, and how fast. Raises LeapOptionsError for a value outside its range."""

    concurrency: int = option(Whole(1, 256), 16, common=True, text="Process this many lines in parallel, 1 to 256.")
    requests_per_minute: int | None = option(Whole(1), common=True, text="Send at most this many requests per minute.")
    tokens_per_minute: int | None = option(
        Whole(1), common=True, text="Send at most this many tokens per minute, prompts and answers together."
    )

    def __post_init__(self) -> None:
        keep_checked(self, LIMITS)


@dataclass(frozen=True, kw_only=True)
class BatchEscalation:
    """The second model of a batch, which answers what the first one answers badly."""

    escalate_to: str | None = option(Words(), common=True, text="Send bad answers of the first model to this one.")
    when: str = option(
        Words(),
        "invalid",
        flag="--escalate-when",
        common=True,
        text="When to escalate: invalid (default), refused, uncertain<P, check<P; several with commas.",
    )
    """``escalation.When`` has the forms."""
    check: str | None = option(
        Words(), common=True, text="Yes/no question that rates each answer for --escalate-when check<P."
    )
    """None is a question of leap's own."""

    def __post_init__(self) -> None:
        keep_checked(self, ESCALATION)


LIMITS, ESCALATION = rows_of(BatchLimits), rows_of(BatchEscalation)

"""One result of ``leap doctor``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

OK, WARNING, PROBLEM, SKIPPED = "ok", "warning", "problem", "skipped"


@dataclass(frozen=True)
class Check:
    """One result. ``facts`` is for programs, ``detail`` for people, ``advice`` what to do about it."""

    name: str
    state: str
    detail: str
    advice: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "check": self.name,
            "state": self.state,
            "detail": self.detail,
            "advice": self.advice,
            "facts": self.facts,
        }

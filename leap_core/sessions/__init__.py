"""Kept conversations: the store, its newest rows for completion, and conversations as JSON, JSONL and Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .store import SessionStore as SessionStore


def __getattr__(name: str) -> object:
    if name != "SessionStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .store import SessionStore

    return SessionStore

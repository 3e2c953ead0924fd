"""``leap decide``; see ``classify``, which scores the same way."""

from __future__ import annotations

from .classify import decide as command

__all__ = ["command"]

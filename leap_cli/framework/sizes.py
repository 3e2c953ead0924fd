"""Counts of bytes as people read them."""

from __future__ import annotations


def in_bytes(count: int) -> str:
    """``1.2 GB``: powers of 1000, as hubs count."""
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 999.5 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 99.5 else f"{size:.1f} {unit}"

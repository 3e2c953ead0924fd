"""``keep_alive`` of a request: how long its model stays loaded after it, in Ollama's words."""

from __future__ import annotations

import math
import re

from ..errors import LeapSerializationError

AT_ONCE = 1e-3
"""Seconds: leap's own 0 means that a model stays."""
UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[hms])")


def read_keep_alive(value: object) -> float | None:
    """Seconds, 0 where the model is to stay: of ``"5m"``, a number of seconds, 0 (let it go at once), or less than 0
    (it stays). Raises LeapSerializationError."""
    if value is None:
        return None
    seconds = _seconds(value)
    if seconds is None or not math.isfinite(seconds):
        raise LeapSerializationError(
            f"{value!r} is no length of time: seconds, or a text such as '10m'", path="keep_alive"
        )
    return 0.0 if seconds < 0 else max(seconds, AT_ONCE)


def _seconds(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e300 else math.inf
    if not isinstance(value, str):
        return None
    text = value.strip()
    if re.fullmatch(r"-?\d{1,12}(\.\d{1,9})?", text):
        return float(text)
    parts = PART.findall(text.removeprefix("-"))
    if not parts or len(text) > 64 or "".join(map("".join, parts)) != text.removeprefix("-"):
        return None
    return (-1 if text.startswith("-") else 1) * sum(float(number) * UNITS[unit] for number, unit in parts)

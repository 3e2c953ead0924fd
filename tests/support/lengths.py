"""How long a randomized test runs: short in the suite, at its full length with ``LEAP_LONG_TESTS=1``."""

from __future__ import annotations

import os


def of_length(short: int, full: int) -> int:
    """How many rounds a test makes."""
    return full if os.environ.get("LEAP_LONG_TESTS", "0") != "0" else short

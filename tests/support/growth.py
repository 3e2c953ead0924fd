"""Whether work takes time in proportion to its size: two sizes are compared on the same machine."""

from __future__ import annotations

import time
from collections.abc import Callable

TRIES = 5
"""A machine that is busy with something else may spoil a comparison, but work that grows too fast fails each."""
LEAST_SECONDS = 0.01
"""A difference below that is noise."""


def check_growth(
    work: Callable[[int], object], size: int, times: int = 8, clock: Callable[[], float] = time.process_time
) -> None:
    """Fail where ``times`` the size takes more than three times ``times`` as long: quadratic work takes its square."""

    def spent(size: int) -> float:
        began = clock()
        work(size)
        return clock() - began

    small = large = 0.0
    for _ in range(TRIES):
        small, large = min(spent(size // times), spent(size // times)), spent(size)
        if large <= 3 * times * small + LEAST_SECONDS:
            return
    raise AssertionError(f"{size // times} takes {small:.4f} s, {times} times as much {large:.4f} s")

"""The comparison of two sizes, which stands in for bounds of time in many tests."""

from __future__ import annotations

import pytest

from tests.support.growth import check_growth


class Work:
    """Work that takes time on its own clock."""

    def __init__(self, exponent: float, delays: int = 0):
        self.now, self.exponent, self.delays = 0.0, exponent, delays

    def __call__(self, size: int) -> None:
        self.now += size**self.exponent
        if self.delays and size == 8000:
            self.delays -= 1
            self.now += 1e9


@pytest.mark.parametrize(("exponent", "delays"), [(1, 0), (1.1, 0), (1, 4)])
def test_linear_work_passes_also_on_a_busy_machine(exponent: float, delays: int):
    work = Work(exponent, delays)
    check_growth(work, 8000, clock=lambda: work.now)


@pytest.mark.parametrize("exponent", [2, 1.7, 3])
def test_work_that_grows_faster_fails(exponent: float):
    work = Work(exponent)
    with pytest.raises(AssertionError, match="1000 takes .* 8 times as much"):
        check_growth(work, 8000, clock=lambda: work.now)

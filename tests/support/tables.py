"""Tables of many small cases in one test: pytest itself takes 8 ms a test, which is more than most cases take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

Case = TypeVar("Case")


def check_each(cases: Iterable[Case], check: Callable[[Case], object], name: Callable[[Case], str] = str) -> None:
    """Check every case. Where some are wrong, fail with the names and errors of all of them."""
    count, wrong = 0, []
    for case in cases:
        count += 1
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            wrong.append(f"{name(case)}: {type(error).__name__}: {error}")
    assert count, "there are no cases"
    if wrong:
        pytest.fail(f"{len(wrong)} of {count} cases are wrong:\n\n" + "\n\n".join(wrong), pytrace=False)

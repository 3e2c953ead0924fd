"""How long a server asks to be left alone: a bounded number, a date, or nothing."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from leap_core.system.http import retry_after


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "-7"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after-ms": "nan", "retry-after": "7"}, 7.0),
        *(({"retry-after": text}, None) for text in ("nan", "inf", "-inf", "1e999", "soon", "", "NaN", "1_0x")),
    ],
)
def test_an_invalid_retry_after_is_none(headers, seconds):
    assert retry_after(headers) == seconds


def test_a_date_becomes_a_duration():
    seconds = retry_after({"retry-after": formatdate(time.time() + 60, usegmt=True)})
    assert seconds is not None and 50 < seconds <= 60

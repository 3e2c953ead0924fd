"""Whether the elements of an array are unique: as JSON values, in time that grows with their number."""

from __future__ import annotations

import pytest

from leap_core.schemas.json_schema import check_schema
from tests.support.growth import check_growth

UNIQUE = check_schema({"type": "array", "uniqueItems": True})


@pytest.mark.parametrize(
    ("elements", "is_unique"),
    [
        ([1, 1.0], False),
        ([1, True], True),
        ([0, False, None, "", [], {}], True),
        ([[True], [1]], True),
        ([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}], False),
        ([{"a": 1}, {"a": True}], True),
        ([["a", 1], {"a": 1}], True),
        (["1", 1], True),
    ],
)
def test_elements_are_compared_as_json_values(elements, is_unique):
    assert (UNIQUE.problems_of(elements) == []) == is_unique


def test_many_objects_take_time_that_grows_with_their_number():
    check_growth(lambda size: UNIQUE.problems_of([{"n": n} for n in range(size)]), 20_000)

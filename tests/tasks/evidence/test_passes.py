"""Elements that a further pass adds, and those that are there already."""

from __future__ import annotations

from leap_core.tasks.evidence.evidence import with_missed

TEXT = "Ann ordered 3 lamps. Bob ordered 2 chairs. Cleo ordered 5 books."


def test_missed_elements_are_added_once():
    first = {"orders": [{"who": "Ann", "what": "lamps"}]}
    more = {"orders": [{"who": "Ann", "what": "lamps"}, {"who": "Ann", "count": 3}, {"who": "Bob", "what": "chairs"}],
            "about": "orders"}  # fmt: skip
    whole = with_missed(first, more, TEXT)
    assert whole == {"orders": [{"who": "Ann", "what": "lamps"}, {"who": "Bob", "what": "chairs"}], "about": "orders"}


def test_elements_that_are_not_in_the_text_are_not_added():
    assert with_missed({"names": ["Ann"]}, {"names": ["Zacharias", "Cleo"]}, TEXT) == {"names": ["Ann", "Cleo"]}

"""Places of values in texts: 300 of them with known places, and the rules one by one."""

from __future__ import annotations

from collections import Counter

import pytest

from leap_core.tasks.evidence.places import find_places
from leap_core.tasks.evidence.values import NOT_IN_TEXT

from .texts import KINDS, texts


@pytest.mark.slow
def test_places_in_three_hundred_texts():
    right, wrong, flagged, believed = Counter(), [], 0, []
    for text in texts(300):
        for place in find_places(text.text, text.document):
            known = text.places[place.pointer]
            if known is None:
                flagged += place.how == NOT_IN_TEXT
                believed += [] if place.how == NOT_IN_TEXT else [(text.kind, place)]
            elif (place.start, place.end) == known:
                right[text.kind] += 1
            else:
                wrong.append((text.kind, place.pointer, place.leaf.value, place.how, place.start, known))
    share = {kind: right[kind] / (right[kind] + sum(each[0] == kind for each in wrong)) for kind in KINDS}
    print(share, sum(right.values()), len(wrong), flagged, len(believed))
    assert sum(right.values()) >= 0.99 * (sum(right.values()) + len(wrong)), (share, wrong[:10])
    assert flagged >= 0.95 * (flagged + len(believed)), believed[:10]


@pytest.mark.parametrize(
    ("text", "value", "how", "spelled"),
    [
        ("Dr. Ann Lee came", "Ann  LEE", "exact", "Ann Lee"),
        ("it’s “fine” – so", 'it\'s "fine" - so', "exact", "it’s “fine” – so"),
        ("Mrs Ann Margaret Lee", "Doctor Ann Margaret Lee", "partial", "Ann Margaret Lee"),
        ("from L1ndberg", "Lindberg", "fuzzy", "L1ndberg"),
        ("from Lindbcrgh", "Lindbergh", "fuzzy", "Lindbcrgh"),
        ("1,234.00 EUR", 1234, "exact", "1,234.00"),
        ("1.234,5 EUR", 1234.5, "exact", "1.234,5"),
        ("15 % off", 0.15, "exact", "15"),
        ("2.5 million", 2500000, "exact", "2.5 million"),
        ("a dozen eggs", 12, "exact", "dozen"),
        ("am 3. März 2026", "2026-03-03", "exact", "3. März 2026"),
        ("on 05/03/2026", "2026-05-03", "exact", "05/03/2026"),
        ("on 2026-05-03", "3 May 2026", "exact", "2026-05-03"),
        ("at 02 Nov 2026 09:00", "2026-11-02T09:00", "exact", "02 Nov 2026 09:00"),
        ("at 02 Nov 2026 09:00", "2026-11-02T14:00", "not_in_text", None),
        ("at 02 Nov 2026 09:00", "2026-11-02", "exact", "02 Nov 2026"),
        ("at 02 Nov 2026 09:00", "2026-11-02T09:00:30", "not_in_text", None),
        ("due 02 Nov 2026.", "2026-11-02T14:00", "partial", "02 Nov 2026"),
        ("due 02 Nov 2026.", "2026-11-02T00:00:00Z", "exact", "02 Nov 2026"),
        ("on 2026-11-02 from 9:00 to 14:00", "2026-11-02 14:00", "exact", "2026-11-02 from 9:00 to 14:00"),
        ("2026-11-02T14:00:00Z", "2026-11-02T14:00:00+02:00", "not_in_text", None),
        ("2026-11-02T14:00:00+01:00", "2026-11-02T14:00:00+0100", "exact", "2026-11-02T14:00:00+01:00"),
        ("Nov 2, 2026 at 2:30 p.m.", "2026-11-02T14:30:00", "exact", "Nov 2, 2026 at 2:30 p.m."),
        ("Nov 2, 2026 at 12 am", "2026-11-02T12:00", "not_in_text", None),
        ("um 14 Uhr am 2.11.2026", "2026-11-02T14:00", "exact", "14 Uhr am 2.11.2026"),
        ("2 Nov 2026 09:00, 3 Nov 2026 14:00", "2026-11-02T14:00", "not_in_text", None),
        ("2 Nov 2026 09:00, 3 Nov 2026 14:00", "2026-11-03T14:00", "exact", "3 Nov 2026 14:00"),
        ("2 Nov 2026, 14 boxes", "2026-11-02T14:00", "partial", "2 Nov 2026"),
        ("2026-11-02 to 2026-11-05", "2026-11-02 to 2026-11-06", "partial", "2026-11-02 to 2026-11-"),
        ("1,234.50 EUR", "1234.50 USD", "not_in_text", None),
        ("5 kg", "5 g", "not_in_text", None),
        ("12 of 112", 12, "exact", "12"),
        ("12.50 and 12", "12", "exact", "12"),
        ("1284 EUR", 1234, "not_in_text", None),
        ("Ann Miller", "Bob Miller", "not_in_text", None),
        ("", "Ann", "not_in_text", None),
        ("true", True, "no_place", None),
        ("none", None, "no_place", None),
    ],
)
def test_a_value_and_its_place(text: str, value: object, how: str, spelled: str | None):
    (place,) = find_places(text, {"field": value})
    assert place.how == how and (None if place.start is None else text[place.start : place.end]) == spelled


@pytest.mark.parametrize(
    ("text", "value", "spelled"),
    [
        ("a letter of May", "letter", "letter"),
        ("A LETTER", "letter", "LETTER"),
        ("a high risk", "high risk", "high risk"),
        ("about 5 times", 5, "5"),
        ("two letters", "letter", None),
        ("a lettre", "letter", None),
        ("", "letter", None),
    ],
)
def test_a_value_of_an_enum_is_found_word_by_word_or_has_no_place(text, value, spelled):
    schema = {"properties": {"kind": {"enum": ["letter", "bill", "high risk", 5]}}}
    (place,) = find_places(text, {"kind": value}, schema)
    found = None if place.start is None else text[place.start : place.end]
    assert (found, place.how) == (spelled, "no_place" if spelled is None else "exact")


def test_a_value_of_an_enum_is_near_its_neighbors_and_takes_no_place_from_them():
    schema = {"properties": {"lines": {"items": {"properties": {"unit": {"enum": ["kg", "box"]}}}}}}
    text = "Box Ltd orders: flour 2 kg, eggs 3 box, salt 1 kg"
    lines = [("flour", 2, "kg"), ("eggs", 3, "box"), ("salt", 1, "kg")]
    document = {"by": "Box Ltd", "lines": [{"what": a, "count": b, "unit": c} for a, b, c in lines]}
    starts = [place.start for place in find_places(text, document, schema) if place.leaf.path[-1] == "unit"]
    assert starts == [text.index("kg"), text.index("box,"), text.rindex("kg")]


def test_the_name_of_a_field_tells_equal_values_apart():
    text = "tax 60 EUR, total 60 EUR, paid 60 EUR"
    places = find_places(text, {"total": 60, "paid": 60, "tax": 60})
    assert [place.start for place in places] == [18, 31, 4]

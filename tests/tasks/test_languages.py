"""Languages by code and by name."""

from __future__ import annotations

import pytest

from leap_core.errors import LeapOptionsError
from leap_core.tasks.translation import language_of


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ja", "Japanese"),
        ("JA", "Japanese"),
        ("De", "German"),
        ("pt_BR", "Brazilian Portuguese"),
        ("fr-FR", "French"),
        ("de_AT", "German"),
        ("zh-TW", "Traditional Chinese"),
        ("zh-Hant", "Traditional Chinese"),
        ("zh-HK", "Traditional Chinese"),
        ("es-419", "Spanish"),
        ("Lao", "Lao"),
        ("Ewe", "Ewe"),
        ("Twi", "Twi"),
        ("Ga", "Irish"),  # a known code goes before a name
        ("Vo", "Vo"),
        ("old  norse", "Old norse"),
        ("Serbo-Croatian", "Serbo-Croatian"),
        ("Tok Pisin (New Guinea)", "Tok Pisin (New Guinea)"),
    ],
)
def test_a_language_has_a_name(text, name):
    assert language_of(text) == name


@pytest.mark.parametrize(
    "text", ["xx", "XX", "xxx", "LAO", "xx-YY", "Xx-YY", "sr-Latn", "", " ", "12", "fr-FR!", "lao"]
)
def test_what_is_no_language_is_refused(text):
    with pytest.raises(LeapOptionsError, match="is no language that leap knows"):
        language_of(text)

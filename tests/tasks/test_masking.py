"""Masks: no listed entity is left in a text, and every text comes back byte for byte."""

from __future__ import annotations

import json
import random

import pytest

from leap_core.errors import LeapConstraintError
from leap_core.tasks.redaction import kind_of, mask, spans, trimmed, unmask
from leap_core.testing import ScriptedModelRunner

from .conftest import do

CUT = LeapConstraintError("the answer was cut", text="{")


@pytest.mark.slow
def test_no_entity_is_left_as_a_word_and_every_text_comes_back():
    chance = random.Random(4)
    for _ in range(2000):
        text = "".join(chance.choices("ab1[]_NAMEé\r\n\ue000\ue001", k=chance.randint(0, 40)))
        items = [
            "".join(chance.choices("ab1[]_NAMEé \ue000", k=chance.randint(1, 4))) for _ in range(chance.randint(0, 6))
        ]
        masked, masks = mask(text, {"name": items[:3], "phone_number": items[3:]})
        assert spans(masked, items) == [], (text, items)
        assert unmask(masked, json.loads(json.dumps(masks))) == text


def test_masks_are_readable_where_they_can_be():
    masked, masks = mask("Ann met Bob. Ann left.", {"human_name": ["Ann", "Bob", "Zoe"]})
    assert masked == "[HUMAN_NAME_1] met [HUMAN_NAME_2]. [HUMAN_NAME_1] left."
    assert masks == {"[HUMAN_NAME_1]": "Ann", "[HUMAN_NAME_2]": "Bob"}


def test_checked_patterns_override_the_model_in_kind_and_extent():
    text = (
        "Please ring Paul Meier at +49 30 1234567. Card 4111 1111 1111 1111, "
        "IBAN FR14 2004 1010 0505 0001 3M02 606, mail paul@example.org. Paul's phone: 030 7654321."
    )
    listed = {
        "address": ["Card 4111 1111 1111 1111", "Card 4111", "IBAN FR14 2004 1010 0505 0001 3M02 606", "1111, IBAN"],
        "company_name": [],
        "email_address": ["mail paul@example.org", "Paul's phone:"],
        "human_name": ["ring Paul Meier", "Paul's phone:", "Paul Meier at +49 30 12"],
        "phone_number": ["Meier at +49 30 1234567", "Paul's phone: 030 7654321", "Paul's phone:"],
    }
    complete = do(ScriptedModelRunner(json.dumps(listed)), text, task="redact")
    assert complete.full_message.text == (
        "Please ring [HUMAN_NAME_1] at [PHONE_NUMBER_1]. Card [CARD_NUMBER_1], "
        "IBAN [IBAN_1], mail [EMAIL_ADDRESS_1]. [HUMAN_NAME_2]'s phone: [PHONE_NUMBER_2]."
    )
    assert unmask(complete.full_message.text, complete.details["map"]) == text


def test_masks_are_numbered_as_they_appear():
    names = ["Zoe", "Ann Lee", "Ann", "Bob Ray", "Bob"]
    masked, masks = mask("Bob Ray met Ann Lee and Zoe. Ann Lee left.", {"human_name": names})
    assert masked == "[HUMAN_NAME_1] met [HUMAN_NAME_2] and [HUMAN_NAME_3]. [HUMAN_NAME_2] left."
    assert list(masks.values()) == ["Bob Ray", "Ann Lee", "Zoe"]


@pytest.mark.parametrize(
    ("category", "listed", "left"),
    [
        ("human_name", "ring Paul", "Paul"),
        ("human_name", "Paul's phone:", "Paul"),
        ("human_name", "Name: Ann Lee", "Ann Lee"),
        ("human_name", "Ann Lee called", "Ann Lee"),
        ("human_name", "von Braun", "von Braun"),
        ("human_name", "Ann Lee: hello", "Ann Lee"),
        ("human_name", "山田太郎", "山田太郎"),
        ("human_name", "paul meier", "paul meier"),
        ("address", "Card", ""),
        ("address", "at 5 Main Street", "5 Main Street"),
        ("address", "12 main street", "12 main street"),
        ("address", "Rue de la paix 5", "Rue de la paix 5"),
        ("phone_number", "Tel. +49 30 12345 today", "+49 30 12345"),
        ("phone_number", "Paul's phone:", ""),
        ("email_address", "write to a@b.org.", "a@b.org"),
        ("email_address", "ann at example dot org", "ann at example dot org"),
        ("diagnosis", "type 2 diabetes", "type 2 diabetes"),
    ],
)
def test_a_span_of_the_model_has_no_words_around_it(category, listed, left):
    assert trimmed(category, listed) == left


def test_a_broken_list_is_asked_for_again():
    runner = ScriptedModelRunner([CUT], [CUT], '{"human_name": ["Ann", " "]}')
    complete = do(runner, "Ann is here.", task="redact", categories=["human_name"])
    details = complete.details
    assert complete.full_message.text == "[HUMAN_NAME_1] is here."
    assert details == {"map": {"[HUMAN_NAME_1]": "Ann"}, "masked": {"human_name": 1}}
    temperatures = [request.options.temperature for request in runner.requests]
    assert temperatures[0] == 0.0 and temperatures[1] == temperatures[2] > 0
    complete = do(ScriptedModelRunner([CUT], [CUT], [CUT]), "Ann is at a@b.org.", task="redact")
    assert complete.full_message.text == "Ann is at [EMAIL_ADDRESS_1]." and complete.details["unasked"] == [1]


def test_entities_of_all_pieces_are_masked_in_all():
    runner = ScriptedModelRunner('{"human_name": []}', '{"human_name": ["Ann"]}', '{"human_name": []}')
    complete = do(runner, "Ann\n\nI am Ann\nBye", task="redact", categories="human_name", lines=True)
    assert complete.full_message.text == "[HUMAN_NAME_1]\n\nI am [HUMAN_NAME_1]\nBye"
    assert [request.messages[-1].text for request in runner.requests] == ["Ann", "I am Ann", "Bye"]


def test_a_text_that_was_masked_before_gets_new_numbers():
    masked, masks = mask("[PHONE_NUMBER_1] or 0301234567", {"phone_number": ["0301234567"]})
    assert masked == "[PHONE_NUMBER_1] or [PHONE_NUMBER_2]"
    assert unmask(masked, masks) == "[PHONE_NUMBER_1] or 0301234567"


@pytest.mark.parametrize(
    ("listed", "text", "masked"),
    [
        ({"company_name": ["an"]}, "We wrote to Ann and Bob.", "We wrote to Ann and Bob."),
        ({"company_name": ["an"]}, "We met Ann on an island and left.", "We met Ann on an island and left."),
        ({"human_name": ["ann"]}, "this is ann and annex", "this is [HUMAN_NAME_1] and annex"),
        ({"human_name": ["Meier"]}, "Der Brief kam zu Meiers, nicht zu Meierhofen.",
         "Der Brief kam zu [HUMAN_NAME_1], nicht zu Meierhofen."),
        ({"email_address": ["Mr. Sato"]}, "I met Mr. Sato.", "I met [HUMAN_NAME_1]."),
        ({"email_address": ["thursday"]}, "I come on thursday.", "I come on thursday."),
        ({"phone_number": ["2026"]}, "It was in 2026.", "It was in 2026."),
        ({"human_name": ["\u5c71\u7530"]}, "\u5c71\u7530\u3055\u3093\u306f", "[HUMAN_NAME_1]\u3055\u3093\u306f"),
    ],
)  # fmt: skip
def test_an_entry_of_the_model_masks_whole_words_of_its_kind(listed: dict[str, list[str]], text: str, masked: str):
    lists = {**dict.fromkeys(("address", "company_name", "email_address", "human_name", "phone_number"), []), **listed}
    assert do(ScriptedModelRunner(json.dumps(lists)), text, task="redact").full_message.text == masked


def test_a_card_number_has_twelve_digits_at_least():
    found = [kind_of("card_number", item, item) for item in ("5018 1234 5678", "5018 1234 567")]
    assert found == ["card_number", None]

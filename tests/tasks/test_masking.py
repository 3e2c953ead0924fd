"""Masks: no listed entity is left in a text, and every text comes back byte for byte."""

from __future__ import annotations

import json
import random

import pytest

from leap_core.errors import LeapConstraintError
from leap_core.tasks.redaction import mask, unmask
from leap_core.testing import ScriptedModelRunner

from .conftest import do

CUT = LeapConstraintError("the answer was cut", text="{")


@pytest.mark.slow
def test_no_entity_is_left_and_every_text_comes_back():
    chance = random.Random(4)
    for _ in range(2000):
        text = "".join(chance.choices("ab1[]_NAMEé\r\n\ue000\ue001", k=chance.randint(0, 40)))
        items = [
            "".join(chance.choices("ab1[]_NAMEé \ue000", k=chance.randint(1, 4))) for _ in range(chance.randint(0, 6))
        ]
        masked, masks = mask(text, {"name": items[:3], "phone_number": items[3:]})
        assert not any(item in masked for item in items), (text, items)
        assert unmask(masked, json.loads(json.dumps(masks))) == text


def test_masks_are_readable_where_they_can_be():
    masked, masks = mask("Ann met Bob. Ann left.", {"human_name": ["Ann", "Bob", "Zoe"]})
    assert masked == "[HUMAN_NAME_1] met [HUMAN_NAME_2]. [HUMAN_NAME_1] left."
    assert masks == {"[HUMAN_NAME_1]": "Ann", "[HUMAN_NAME_2]": "Bob"}


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

"""The prompt of LFM2.5-VL-…-Extract: word for word that of its model card."""

from __future__ import annotations

import json

import pytest

from leap_core.conversation.messages import ChatMessage, Image
from leap_core.errors import LeapSchemaError
from leap_core.inference.constraints.shape_prompts import ask_for_fields, extracts_from_pictures

PICTURE = Image(b"\xff\xd8\xff\xe0")
SCHEMA = {
    "type": "object",
    "properties": {
        "shop": {"type": "string", "description": "Name of  the shop"},
        "total": {"type": "number"},
        "currency": {"enum": ["EUR", "USD"]},
        "items": {"type": "array", "items": {"type": "string", "description": "what was bought"}},
        "address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"title": "Town"}}},
    },
}


def test_the_fields_are_in_the_system_prompt_and_the_user_message_is_the_image() -> None:
    system, user = ask_for_fields([ChatMessage("user", PICTURE)], json.dumps(SCHEMA)) or ()
    assert system.text == (
        "Extract the following from the image:\n\n"
        "shop: Name of the shop\n"
        "total: number\n"
        'currency: one of "EUR", "USD"\n'
        "items: list of what was bought\n"
        "address:\n"
        "  street: string\n"
        "  city: Town\n\n"
        "Respond with only a JSON object. Do not include any text outside the JSON."
    )
    assert user == ChatMessage("user", PICTURE)


def test_a_system_prompt_of_the_user_comes_first() -> None:
    messages = [ChatMessage("system", "Amounts are in euros."), ChatMessage("user", PICTURE)]
    system, _ = ask_for_fields(messages, json.dumps(SCHEMA)) or ()
    assert system.text.startswith("Amounts are in euros.\n\nExtract the following from the image:")


@pytest.mark.parametrize("schema", [True, {"type": "array"}, {"type": "object"}, {"properties": {}}])
def test_other_shapes_get_the_usual_prompt(schema: object) -> None:
    assert ask_for_fields([ChatMessage("user", PICTURE)], json.dumps(schema)) is None
    assert ask_for_fields([ChatMessage("user", "no picture")], json.dumps(SCHEMA)) is None
    with pytest.raises(LeapSchemaError, match="not JSON"):
        ask_for_fields([ChatMessage("user", PICTURE)], "{")


def test_models_that_use_the_extraction_prompt() -> None:
    names = {
        "LFM2.5-VL-450M-Extract-Q8_0.gguf": True,
        "LFM2.5-VL-1.6B-Extract": True,
        "LFM2-350M-Extract": False,
        "VL": False,
    }
    assert {name: extracts_from_pictures(name) for name in names} == names

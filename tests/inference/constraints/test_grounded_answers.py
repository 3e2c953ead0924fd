"""The option ``grounding`` with a model that writes noise: what is in the text comes from the constraint."""

from __future__ import annotations

import json

from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.request import Request
from leap_core.conversation.responses import Complete
from leap_core.conversation.streams import last_of
from leap_core.protocols.endpoint.bodies import chat_body

FIELDS = {
    "name": {"type": "string", "x-from-text": True},
    "price": {"type": "number", "minimum": 0, "maximum": 1000},
    "kind": {"enum": [100, 200]},
}
SCHEMA = json.dumps({"type": "object", "properties": FIELDS, "required": list(FIELDS)})


def answer_of(noise, text: str, grounding: bool | str | None, seed: int = 1) -> Complete:
    options = GenerationOptions(
        json_schema_constraint=SCHEMA, grounding=grounding, rng_seed=seed, complete_json=True, max_tokens=200
    )
    return last_of(noise.start([ChatMessage("user", text)], (), options))


def test_values_come_from_the_message_or_the_given_text(noise):
    for seed in range(3):
        found = json.loads(answer_of(noise, "Red lamps cost 119,98", True, seed).full_message.text)
        assert found["price"] == 119.98 and found["name"] in "Red lamps cost 119,98" and found["kind"] in (100, 200)
        found = json.loads(answer_of(noise, "Red lamps cost 119,98", "blue 7", seed).full_message.text)
        assert found["price"] == 7 and found["name"] in ("blue", "7", "blue 7")


def test_a_value_missing_in_the_text_is_a_warning(noise):
    complete = answer_of(noise, "no price at all", True)
    price = json.loads(complete.full_message.text)["price"]
    assert [line for line in complete.warnings if line.startswith("/price: ")] == [
        f"/price: {json.dumps(price)} is not in the text"
    ]
    assert answer_of(noise, "no price at all", None).warnings == ()


def test_an_endpoint_is_sent_a_schema_that_it_knows():
    options = GenerationOptions(json_schema_constraint=SCHEMA, grounding=True)
    body = json.dumps(chat_body(Request([ChatMessage("user", "5")], [], options)))
    assert "json_schema" in body and "x-from-text" not in body and "grounding" not in body

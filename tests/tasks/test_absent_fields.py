"""Optional fields that a text does not have: general models write null for them, and they are left out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leap_core.inference.constraints.shape_prompts import typed_shape
from leap_core.schemas.json_schema import check_schema
from leap_core.schemas.transforms import absent_as_null, closed
from leap_core.testing import ScriptedModelRunner

from .conftest import do

PART = {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "number"}}, "required": ["name"]}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "client": {"type": "string", "description": "who\nordered"},
        "due": {"type": ["string", "null"], "format": "date"},
        "status": {"enum": ["open", "paid"]},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}},
    },
    "required": ["client", "due"],
    "$defs": {"part": PART},
}


def test_nulls_of_optional_fields_are_left_out_and_those_of_required_ones_stay():
    answer = {"client": "Tom", "due": None, "status": None, "parts": [{"name": "lamp", "size": None}]}
    runner = ScriptedModelRunner(json.dumps(answer))
    found = json.loads(do(runner, "Tom, a lamp", task="extract", schema=SCHEMA).full_message.text)
    assert found == {"client": "Tom", "due": None, "parts": [{"name": "lamp"}]}
    asked = json.loads(runner.requests[0].options.json_schema_constraint)
    assert check_schema(asked).problems_of(answer) == []
    assert check_schema(asked).problems_of({"client": "Tom", "due": None}), "the model decides about every field"
    assert "Write null" in runner.requests[0].messages[0].text


def test_an_optional_field_with_the_place_of_a_required_one_is_left_out():
    kinds = {"client": "string", "city": "string", "total": "number", "price": "number", "tax": "number"}
    fields: dict[str, Any] = {name: {"type": kind} for name, kind in kinds.items()}
    fields["tax"]["x-from-text"] = False
    schema = {"type": "object", "properties": fields, "required": ["client", "total"]}

    def found(text: str, **document: Any) -> dict[str, Any]:
        runner = ScriptedModelRunner(json.dumps({**dict.fromkeys(fields), **document}))
        return dict(json.loads(do(runner, text, task="extract", schema=schema).full_message.text))

    filled = {"client": "Ann Lee", "city": "Ann Lee", "total": 5, "price": 5, "tax": 5}
    assert found("Order of Ann Lee: 5.00 in all.", **filled) == {"client": "Ann Lee", "total": 5, "tax": 5}
    assert found("Ann Lee of Ann Lee: 5 each, 5 in all.", **filled) == filled
    assert found("Ann Lee lives in Lee.", client="Ann Lee", city="Lee", total=0) == {
        "client": "Ann Lee", "city": "Lee", "total": 0
    }  # fmt: skip


STRING, DAY = {"type": "string"}, {"type": "string", "format": "date"}
CONTACT = {"type": "object", "properties": {"name": STRING, "nick": STRING}, "required": ["name"]}


@pytest.mark.parametrize(
    ("properties", "required", "text", "document", "left"),
    [
        (
            {"people": {"type": "array", "items": STRING}, "author": STRING}, [], "Written by Ann Lee.",
            {"people": ["Ann Lee"], "author": "Ann Lee"}, {"people": ["Ann Lee"], "author": "Ann Lee"},
        ),
        (
            {"author": STRING, "contact": CONTACT}, [], "Written by Ann Lee.",
            {"author": "Ann Lee", "contact": {"name": "Ann Lee"}},
            {"author": "Ann Lee", "contact": {"name": "Ann Lee"}},
        ),
        (
            {"author": STRING, "contact": CONTACT, "people": {"type": "array", "items": STRING}}, ["author"],
            "Written by Ann Lee.",
            {"author": "Ann Lee", "contact": {"name": "Ann Lee", "nick": "Ann Lee"}, "people": ["Ann Lee"]},
            {"author": "Ann Lee", "contact": {"name": "Ann Lee"}, "people": ["Ann Lee"]},
        ),
        (
            {"issueDate": DAY, "dueDate": DAY}, ["issueDate"], "Issued and due on 3 May 2024.",
            {"issueDate": "2024-05-03", "dueDate": "2024-05-03"}, {"issueDate": "2024-05-03", "dueDate": "2024-05-03"},
        ),
        (
            {"issueDate": DAY, "dueDate": DAY}, ["issueDate"], "Issue date 3 May 2024. What is due follows.",
            {"issueDate": "2024-05-03", "dueDate": "2024-05-03"}, {"issueDate": "2024-05-03"},
        ),
        (
            {"issued": DAY, "due": DAY}, ["issued"], "Issued 3 May 2024, due 5 May 2024.",
            {"issued": "2024-05-03", "due": "2024-05-03"}, {"issued": "2024-05-03"},
        ),
    ],
)  # fmt: skip
def test_right_values_of_optional_fields_stay(
    properties: Any, required: list[str], text: str, document: Any, left: Any
) -> None:
    schema = {"type": "object", "properties": properties, "required": required}
    answer = json.dumps({**dict.fromkeys(properties), **document})
    reply = do(ScriptedModelRunner(answer), text, task="extract", schema=schema)
    assert json.loads(reply.full_message.text) == left


def test_models_of_liquid_are_asked_as_their_cards_say():
    runner = ScriptedModelRunner('{"client": "Tom", "due": null}', model_id="LFM2-350M-Extract")
    do(runner, "Tom", task="extract", schema=SCHEMA)
    assert json.loads(runner.requests[0].options.json_schema_constraint)["required"] == ["client", "due"]
    assert "null" not in runner.requests[0].messages[0].text


def test_a_model_is_shown_types_values_and_descriptions_in_one_line():
    assert typed_shape(SCHEMA, nulls=True) == (
        '{client: string /* who ordered */, due: date|null, status: "open"|"paid"|null, '
        "parts: [{name: string, size: number|null}]|null}"
    )
    assert typed_shape({"type": "object", "properties": {"a": {"anyOf": [PART, {"type": "null"}]}, "b": {}}}) == (
        "{a?: {name: string, size?: number}|null, b?: any}"
    )
    named = {"$ref": "#/$defs/part", "$defs": {"part": {"properties": {"name": {"type": "string"}}}}}
    assert typed_shape(named) == "{name?: string}"


def test_objects_whose_fields_depend_on_others_stay_as_they_are():
    for more in ({"minProperties": 1}, {"dependentRequired": {"a": ["b"]}}, {"not": {"required": ["a"]}}):
        schema = closed({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, **more})
        assert absent_as_null(schema) == schema


def test_each_piece_of_a_long_text_may_lack_every_field():
    text = "Tom came.\n\n" + "Nothing happened.\n\n" * 200 + "The lamp is paid."
    pieces = ['{"client": "Tom", "due": null, "status": null, "parts": null}', *['{"client": null}'] * 80]
    runner = ScriptedModelRunner(*pieces, '{"due": null}', *['{"due": null}'] * 80, context_size=400)
    found = json.loads(do(runner, text, task="extract", schema=SCHEMA).full_message.text)
    assert found["client"] == "Tom" and "parts" not in found and len(runner.requests) > 3


def test_texts_are_spelled_as_the_input_has_them():
    text = "The router of mrs. lee, Green or green, is in de. A ROUTERS' shop sells it."
    names = {name: {"type": "string"} for name in ("device", "owner", "color", "place")}
    fields = {**names, "country": {"enum": ["DE"]}, "code": {"type": "string", "description": "in capitals"}}
    values = {"device": "Router", "owner": "Mrs. Lee", "color": "GREEN", "place": "Shop floor", "country": "DE"}
    answer = {**values, "code": "DE", "parts": ["LEE"]}
    schema = {"type": "object", "properties": {**fields, "parts": {"type": "array", "items": {"type": "string"}}}}
    reply = do(ScriptedModelRunner(json.dumps(answer)), text, task="extract", schema=schema).full_message.text
    assert json.loads(reply) == {**answer, "device": "router", "owner": "mrs. lee", "parts": ["lee"]}
    liquid = ScriptedModelRunner(json.dumps(answer), model_id="LFM2.5-350M")
    assert json.loads(do(liquid, text, task="extract", schema=schema).full_message.text) == answer

"""What a model that never comes to an end by itself writes: numbers, strings of formats, keys, and a cut document."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import pytest

from leap_core.inference.constraints.compiling import FinishingConstraint
from leap_core.inference.constraints.grammars import Freedom, enforce
from leap_core.inference.constraints.token_constraints import GrammarConstraint, NumberLength
from leap_core.schemas.grammar_matcher import byte_tokenizer
from leap_core.schemas.json_schema import check_schema

END = byte_tokenizer().tokenizer.eos_token


def written(schema: object, wish: str, *, most: int = 3000, room: int | None = None, **freedom: bool) -> str:
    """What a model writes that always prefers the first allowed of the characters of ``wish``."""
    checked = check_schema(schema)
    matcher = byte_tokenizer().matcher(enforce(checked, byte_tokenizer(), Freedom(**freedom)).grammar)
    grammar = GrammarConstraint(matcher, byte_tokenizer(), numbers=NumberLength(checked.document))
    constraint = grammar if room is None else FinishingConstraint(grammar, grammar, room)
    text = b""
    for _ in range(most if room is None else room):
        logits = np.linspace(0.5, 0.0, byte_tokenizer().n_tokens, dtype=np.float32)
        for rank, char in enumerate(reversed(wish), 1):
            logits[ord(char)] = rank
        constraint.apply(logits)
        token = int(logits.argmax())
        if token == END:
            break
        constraint.accept(token)
        text += bytes([token])
        if constraint.finished:
            break
    return text.decode()


@pytest.mark.parametrize(
    ("schema", "wish", "length"),
    [
        ({"type": "integer"}, "9", 19),
        ({"type": "integer"}, "-9", 20),
        ({"type": "number"}, "9", 25),
        ({"type": "number"}, "0.9", 25),
        ({"type": "number"}, "3e9", 25),
        ({"type": "number"}, "7.e-9", 25),
        ({}, "9", 25),
        ({"type": "array", "items": {"type": "number"}, "maxItems": 1}, "9", 27),
        ({"type": "integer", "minimum": 10**24}, "9", 19),
        ({"type": "integer", "maximum": 10**15}, "9", 15),
        ({"enum": [1234567890123456789, 12345678901234567890123]}, "1234567890", 23),
    ],
)
def test_a_number_is_bounded(schema: dict, wish: str, length: int):
    text = written(schema, wish)
    json.loads(text)
    most = 25 if schema.get("minimum") else length  # what the schema itself needs
    assert len(text) <= most and (len(text) >= 2 or length < 3), text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wish", "most"),
    [
        ("email", "1", 254),
        ("hostname", "a.", 253),
        ("uri", "a:/", 2048),
        ("date-time", "2T9-:0", 35),
        ("time", "019:", 24),
        ("duration", "P1234567890YMDT", 64),
        ("iri", "a:/", 2048),
        ("json-pointer", "/a", 2048),
    ],
)
def test_a_string_with_a_format_is_bounded(name: str, wish: str, most: int):
    text = written({"type": "string", "format": name}, wish)
    assert text.endswith('"') and len(json.loads(text)) <= most
    if name == "email":
        assert re.fullmatch(r"1{64}@.*", json.loads(text))


@pytest.mark.slow
def test_a_schema_can_set_other_bounds():
    assert len(json.loads(written({"type": "string", "format": "uri", "maxLength": 40}, "a:/"))) <= 40
    assert len(json.loads(written({"type": "string", "format": "hostname", "maxLength": 12}, "a"))) <= 12
    assert re.match("a{32}:", json.loads(written({"type": "string", "format": "uri"}, "a:/")))


OPEN = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def test_no_key_is_added_unless_allowed():
    assert written(OPEN, '}1a,"x') == '{"a": 1}'
    assert written(OPEN, '1,"xa}') == '{"a": 1111111111111111111}'
    assert written(OPEN, '1, "xa', most=60, additional_properties=True).startswith('{"a": 1111111111111111111, "')
    assert check_schema(OPEN).problems('{"a": 1, "b": 2}') == []


PEOPLE = {
    "type": "object",
    "properties": {
        "people": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "more": {"type": "string"}},
                "required": ["name", "age"],
            },
        },
        "mail": {"type": "string", "format": "email"},
    },
    "required": ["people", "mail"],
}


@pytest.mark.slow
@pytest.mark.parametrize("room", [60, 80, 97, 150, 301, 500])
@pytest.mark.parametrize("wish", ["x", '",x', '{[",1x', 'a@b"{[,:}]', "é", "\\n"])
def test_a_document_is_completed_within_its_tokens(room: int, wish: str):
    text = written(PEOPLE, wish, room=room)
    assert check_schema(PEOPLE).problems(text) == [], text
    assert len(text.encode()) <= room


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "integer", "minimum": 1000},
        {"type": "string", "pattern": "^[a-z0-9]+-[A-Z]{3}$"},
        {"type": "string", "format": "date-time"},
        {"type": "string", "format": "uri"},
        {"type": "string", "format": "duration"},
        {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 3},
        {"type": "object", "additionalProperties": {"type": "number"}},
        {},
    ],
)
def test_every_kind_of_value_is_bounded(schema: dict):
    text = written(schema, "ab0x", room=60)
    assert check_schema(schema).problems(text) == [], text


def test_an_answer_that_ends_by_itself_is_not_cut():
    checked = check_schema(OPEN)
    matcher = byte_tokenizer().matcher(enforce(checked, byte_tokenizer()).grammar)
    grammar = GrammarConstraint(matcher, byte_tokenizer(), numbers=NumberLength(checked.document))
    constraint = FinishingConstraint(grammar, grammar, room=8)
    for char in b'{"a": 5}':
        logits = np.zeros(byte_tokenizer().n_tokens, dtype=np.float32)
        logits[char] = 5.0
        constraint.apply(logits)
        assert int(logits.argmax()) == char
        constraint.accept(char)
    assert constraint.finished and not constraint.cut


def random_pair(chance: random.Random, depth: int = 3) -> tuple[dict, object]:
    """A schema, and a document that satisfies it."""
    kind = chance.choice(["object", "object", "array", "string", "integer", "enum", "boolean"] if depth else ["string"])
    if kind == "object":
        parts = {f"key{n}": random_pair(chance, depth - 1) for n in range(chance.randint(1, 4))}
        required = [name for name in parts if chance.random() < 0.7]
        schema = {"type": "object", "properties": {name: part[0] for name, part in parts.items()}, "required": required}
        return schema, {name: part[1] for name, part in parts.items() if name in required or chance.random() < 0.6}
    if kind == "array":
        items, _ = pair = random_pair(chance, depth - 1)
        return {"type": "array", "items": items}, [pair[1]] * chance.randint(0, 3)
    if kind == "string":
        most = chance.choice([None, 12, 40])
        text = "".join(chance.choices("abc déf", k=chance.randint(0, most or 25)))
        return {"type": "string", **({} if most is None else {"maxLength": most})}, text
    if kind == "integer":
        return {"type": "integer"}, chance.choice([0, 7, -12, 36, 4711, 123456])
    if kind == "enum":
        labels = ["red", "green", "blue", "light blue"]
        return {"enum": labels}, chance.choice(labels)
    return {"type": "boolean"}, chance.random() < 0.5


def followed(schema: dict, wanted: bytes, room: int) -> bytes:
    """What a model writes in so much room that would write ``wanted`` and then end."""
    matcher = byte_tokenizer().matcher(enforce(check_schema(schema), byte_tokenizer()).grammar)
    grammar = GrammarConstraint(matcher, byte_tokenizer(), numbers=NumberLength(schema))
    constraint = FinishingConstraint(grammar, grammar, room)
    text = b""
    for _ in range(room):
        logits = np.zeros(byte_tokenizer().n_tokens, dtype=np.float32)
        follows = wanted.startswith(text)
        logits[wanted[len(text)] if follows and len(text) < len(wanted) else END if follows else ord("a")] = 9.0
        constraint.apply(logits)
        token = int(logits.argmax())
        if token == END:
            break
        constraint.accept(token)
        text += bytes([token])
        if constraint.finished:
            break
    return text


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [seed if seed < 20 else pytest.param(seed, marks=pytest.mark.long) for seed in range(200)]
)
def test_an_answer_that_fits_is_complete_and_any_other_is_valid(seed: int):
    chance = random.Random(seed)
    schema, document = random_pair(chance)
    wanted = json.dumps(document, ensure_ascii=False).encode()
    assert check_schema(schema).problems_of(document) == []
    for room in {len(wanted), len(wanted) + 1, len(wanted) + chance.randint(2, 40)}:
        assert followed(schema, wanted, room) == wanted
    shortest = followed(schema, b"", 3000)  # a model that wants to end at once
    for _ in range(3):
        room = chance.randint(min(len(shortest), len(wanted)), len(wanted))
        text = followed(schema, wanted, room)
        assert check_schema(schema).problems(text.decode()) == [], (room, wanted, text)

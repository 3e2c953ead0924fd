"""Calls that follow the declared functions, and those that cannot be written."""

from __future__ import annotations

import random

import numpy as np
import pytest
from llguidance import LLMatcher

from leap_core.conversation.calls import (
    ArrayType,
    BooleanType,
    IntegerType,
    LeapFunction,
    LeapFunctionParameter,
    NullType,
    NumberType,
    ObjectType,
    StringType,
    parser_named,
)
from leap_core.errors import LeapSchemaError
from leap_core.inference.constraints.call_grammars import MOST_PROPERTIES, json_grammar, pythonic_grammar
from leap_core.inference.constraints.compiling import check_calls
from leap_core.schemas.grammar_matcher import byte_tokenizer

END = "<|end|>"


def function(name: str, *parameters: LeapFunctionParameter) -> LeapFunction:
    return LeapFunction(name, "", parameters)


def parameter(name: str, kind: object, optional: bool = False) -> LeapFunctionParameter:
    return LeapFunctionParameter(name, kind, optional=optional)  # type: ignore[arg-type]


SEND = function(
    "mail.send",
    parameter("to", StringType()),
    parameter("from", StringType(["me", "it's", 'a "b"']), optional=True),
    parameter("size", NumberType(), optional=True),
    parameter("count", IntegerType(), optional=True),
    parameter("urgent", BooleanType(), optional=True),
    parameter("none", NullType(), optional=True),
    parameter("tags", ArrayType(StringType()), optional=True),
    parameter("meta", ObjectType({"a": IntegerType(), "b": ArrayType(BooleanType())}, ["a"]), optional=True),
)
NOW = function("now")
RANGED = LeapFunction.from_openai(
    {
        "name": "dial",
        "parameters": {
            "type": "object",
            "$defs": {"day": {"type": "string", "format": "date"}},
            "properties": {
                "level": {"type": "integer", "minimum": 1, "maximum": 5},
                "day": {"$ref": "#/$defs/day"},
                "any": {},
                "a b": {"type": ["string", "null"]},
            },
            "required": ["level"],
        },
    }
)
OPEN = LeapFunction.from_openai({"name": "free", "parameters": {"type": "object", "additionalProperties": True}})
FUNCTIONS = [SEND, NOW, RANGED, OPEN]


def follows(body: str, *, style: str = "lfm", many: bool = True) -> bool:
    if style == "lfm":
        grammar = pythonic_grammar(FUNCTIONS, f'"{END}"', many=many)
    else:
        grammar = json_grammar(FUNCTIONS, f'"{END}"')
    matcher = byte_tokenizer().matcher(LLMatcher.grammar_from_lark(grammar))
    tokens = list((body + END).encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_stopped()


@pytest.mark.parametrize(
    "body",
    [
        "[now()]",
        "[now(), now()]",
        "[now(),now()]",
        '[mail.send(to="x")]',
        "[mail.send(to='it\\'s')]",
        '[mail.send(to="a\\"b\\n[x](y)")]',
        '[mail.send(to="a\nb", from="me")]',
        "[mail.send(to='x', from='it\\'s')]",
        '[mail.send(to="x", from="it\'s")]',
        "[mail.send(to='x', from='a \"b\"')]",
        '[mail.send(to="x", size=-1.5e3, count=7)]',
        '[mail.send(to="x", urgent=True)]',
        '[mail.send(to="x", urgent=false, none=None)]',
        '[mail.send(to="x", tags=[])]',
        '[mail.send(to="x", tags=["a", \'b\'])]',
        '[mail.send(to="x", meta={"a": 1})]',
        "[mail.send(to=\"x\", meta={'a': 1, 'b': [True, false]})]",
        '[dial(level=3, day="2024-02-29", any={"x": [1, None, {}]}, "a b"=null)]',
        "[free()]",
        "[free(anything=1, more='x')]",
        "[mail.send(to='sed -n '360,450p' f.py', size=1)]",
        "[mail.send(to='it's ok', from='me')]",
        '[mail.send(to="say "hi" now")]',
        "[mail.send(to='echo 'hi'')]",
        "[dial(level=3, \"a b\"='x 'y' z')]",
    ],
)
def test_calls_that_can_be_written_can_be_read(body: str):
    assert follows(body)
    assert parser_named("lfm").parse(body)


@pytest.mark.parametrize(
    "body",
    [
        "[]",
        "[nowhere()]",
        "[now(x=1)]",
        "[now]",
        "[mail.send()]",
        '[mail.send("x")]',
        "[mail.send(to=5)]",
        '[mail.send(to="x", to="y")]',
        '[mail.send(to="x", cc="y")]',
        '[mail.send(to="x", from="you")]',
        '[mail.send(to="x", count=1.5)]',
        '[mail.send(to="x", urgent=1)]',
        '[mail.send(to="x", none=0)]',
        '[mail.send(to="x", tags="a")]',
        '[mail.send(to="x", tags=[1])]',
        '[mail.send(to="x", meta={})]',
        '[mail.send(to="x", meta={"c": 1})]',
        "[dial(level=9)]",
        '[dial(level=1, day="tomorrow")]',
        "now()",
        "[now()] and more",
        "[now(),\n\n\n\nnow()]",
        "[mail.send(to=x)]",
    ],
)
def test_undeclared_calls_cannot_be_written(body: str):
    assert not follows(body)


def test_a_named_function_is_called_once():
    assert follows("[now()]", many=False) and not follows("[now(), now()]", many=False)


@pytest.mark.parametrize(
    ("body", "right"),
    [
        ('{"name": "now", "arguments": {}}', True),
        ('\n{"name": "mail.send", "arguments": {"to": "x", "count": 1}}\n', True),
        ('{"name": "nowhere", "arguments": {}}', False),
        ('{"name": "mail.send", "arguments": {"count": 1}}', False),
        ('{"name": "mail.send", "arguments": {"to": 1}}', False),
        ('{"name": "now", "arguments": {"zone": "x"}}', False),
        ('{"name": "free", "arguments": {"zone": "x"}}', True),
    ],
)
def test_hermes_calls(body: str, right: bool):
    assert follows(body, style="hermes") is right
    if right:
        assert parser_named("hermes").parse(body)


def test_unenforceable_keywords_are_named():
    unusual = LeapFunction.from_openai(
        {"name": "f", "parameters": {"properties": {"a": {"type": "array", "items": {}, "uniqueItems": True}}}}
    )
    assert any("uniqueItems" in warning for warning in check_calls([unusual]))
    assert check_calls(FUNCTIONS) == ()


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"properties": {"a": {"type": "string", "pattern": "^(?!x)"}}}, "pattern"),
        ({"properties": {"a": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}}}, "minimum"),
        ({"properties": {"a": {"type": "array", "items": {"type": "integer"}, "minItems": 1.0}}}, "minItems"),
        ({"properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "string"}}}, "$ref"),
        ({"properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]}, "anyOf"),
    ],
)
def test_schemas_that_llguidance_refuses_are_checked_after_the_call(parameters: dict, named: str):
    declared = LeapFunction.from_openai({"name": "f", "parameters": {"type": "object", **parameters}})
    assert any(named in warning for warning in check_calls([declared]))


def test_unusable_parameters_are_an_error():
    broken = LeapFunction.from_openai({"name": "f", "parameters": {"properties": {"a": {"$ref": "#/$defs/none"}}}})
    with pytest.raises(LeapSchemaError):
        check_calls([broken])


def test_invalid_parameter_schemas_are_refused_before_anything_is_generated(noise):
    conversation = noise.create_conversation()
    broken = {"type": "object", "properties": {"a": {"enum": 5}}}
    conversation.register_function(LeapFunction.from_openai({"name": "f", "parameters": broken}))
    with pytest.raises(LeapSchemaError, match="^f: the schema is invalid at /properties/a/enum"):
        next(iter(conversation.generate_response("Go")))


def test_schemas_that_would_overflow_the_stack_are_refused():
    many = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(MOST_PROPERTIES + 1)}}
    for schema in (many, {"type": "object", "properties": {"nested": many}}):
        declared = LeapFunction.from_openai({"type": "function", "function": {"name": "f", "parameters": schema}})
        with pytest.raises(LeapSchemaError, match="properties; at most"):
            pythonic_grammar([declared], "END", many=True)


@pytest.mark.slow
def test_whatever_the_grammar_allows_can_be_read():
    """Random calls, with quotes and brackets where they hurt."""
    chance = random.Random(7)
    grammar = LLMatcher.grammar_from_lark(pythonic_grammar([SEND, RANGED], f'"{END}"', many=True))
    for _ in range(40):
        matcher = byte_tokenizer().matcher(grammar)
        written = b""
        while not matcher.is_stopped() and len(written) < 300:
            bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8), bitorder="little")
            allowed = [int(byte) for byte in np.nonzero(bits)[0] if byte < 256]
            likely = "'\")]<" if len(written) > 150 else "'\" a,)("
            weights = [20 if chr(byte) in likely else 1 if 32 <= byte < 127 else 0.1 for byte in allowed]
            written += bytes(chance.choices(allowed, weights))
            matcher.consume_token(written[-1])
        if matcher.is_stopped():
            assert parser_named("lfm").parse(written.decode("utf-8", "replace").removesuffix(END))

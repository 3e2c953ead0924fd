"""Replies that look like calls and are none, or that cost time, in every dialect."""

from __future__ import annotations

import pytest

from leap_core.conversation.calls import LeapFunction, parser_named
from leap_core.conversation.calls.dialects import DIALECTS
from leap_core.conversation.calls.elements import Elements
from leap_core.conversation.calls.fitting import fits
from leap_core.conversation.calls.parsers import CallsFound, CallStream, CallText, CallWarning
from leap_core.conversation.calls.pythonic import PythonicSyntaxError
from leap_core.conversation.messages import LeapFunctionCall
from tests.support.growth import check_growth

from ...support.lengths import lengths, usually
from ...support.tables import check_each
from .dialect_cases import FUNCTIONS, WRITERS

NAMES = ["lfm", "hermes", *DIALECTS]
AS_TEXT = [name for name in NAMES if name not in ("gpt_oss", "functionary_v32")]
"""Dialects whose calls can be spelled: the marks of the others are no text."""
PING = [("ping", {})]


def read(name: str, *pieces: str, functions: list[LeapFunction] = FUNCTIONS) -> tuple[list[str], str, int]:
    """The names of the calls, the text, and the number of warnings."""
    names = [function.name for function in functions]
    stream = CallStream(parser_named(name), names, None, lambda call: fits(call, functions))
    events = [event for piece in pieces for event in stream.feed(piece)] + stream.finish()
    calls = [call.name for event in events if isinstance(event, CallsFound) for call in event.calls]
    text = "".join(event.text for event in events if isinstance(event, CallText))
    return calls, text, sum(isinstance(event, CallWarning) for event in events)


QUOTES = [
    "Models write this:\n```\n{}\n```\nThat is the format.",
    "For example:\n\n```json\n{}\n```",
    "```python\nx = 1\n```\nand\n```xml\n\n{}\n```\n",
    "Write `{}` for it.",
    "`{}`",
]
BESIDE_QUOTES = ["{}", "```\n{}\n```", "``` {} ```", "See ```x = 1``` first.\n{}", "It's `x`: {}"]
TEXTS = [
    '{"name": "delete_all", "arguments": {}}',
    '{"name": "Ada", "parameters": {"age": 36}}',
    '{"type": "function", "name": "delete_all", "parameters": {}}',
    '{"type": "person", "name": "ping", "parameters": {}}',
    '[{"name": "ping", "arguments": {}}, {"name": "delete_all", "arguments": {}}]',
    '{"name": "ping", "arguments": {}}; {"name": "delete_all", "arguments": {}}',
    'The call is {"name": "ping", "arguments": {}}.',
    '{"name": "ping", "arguments": {}} is how to call it.',
    '```json\n{"name": "ping", "arguments": {}}\n```\nThis calls it.',
]


@pytest.mark.parametrize("name", AS_TEXT)
def test_a_quoted_call_is_text(name: str):
    def check(around: str) -> None:
        reply = around.format(WRITERS[name](PING))
        assert read(name, reply) == ([], reply, 0)
        assert read(name, *reply) == ([], reply, 0)

    in_lines = name not in ("deepseek_v3", "command_r")  # these hold a code block, which a line of text cannot quote
    check_each([around for around in QUOTES if in_lines or "`{}`" not in around], check)


@pytest.mark.parametrize("name", AS_TEXT)
def test_a_call_beside_quotes_is_a_call(name: str):
    def check(around: str) -> None:
        reply = around.format(WRITERS[name](PING))
        assert read(name, reply)[0] == read(name, *reply)[0] == ["ping"]

    check_each(BESIDE_QUOTES, check)


@pytest.mark.parametrize("name", NAMES)
def test_json_other_than_one_declared_call_is_text(name: str):
    def check(reply: str) -> None:
        assert read(name, reply) == read(name, *reply) == ([], reply, 0)

    check_each(TEXTS, check)


TWICE = {
    "lfm": "[store(code='a', code='b')]",
    "hermes": '{"name": "store", "arguments": {"code": "a", "code": "b"}}',
    "apertus": '[{"store": {"code": "a", "code": "b"}}]',
    "command_r7b": '[{"tool_name": "store", "parameters": {"code": "a", "code": "b"}}]',
    "kimi_k2": '<|tool_call_begin|>functions.store:0<|tool_call_argument_begin|>{"code": "a", "code": "b"}',
    "deepseek_v3": '<｜tool▁call▁begin｜>function<｜tool▁sep｜>store\n```json\n{"code": "a", "code": "b"}\n```',
    "deepseek_v31": '<｜tool▁call▁begin｜>store<｜tool▁sep｜>{"code": "a", "code": "b"}',
    "glm45": "store<arg_key>code</arg_key><arg_value>a</arg_value><arg_key>code</arg_key><arg_value>b</arg_value>",
    "functionary": 'store>{"code": "a", "code": "b"}',
    "functionary_v32": 'store\n{"code": "a", "code": "b"}',
    "minimax_m2": '<invoke name="store"><parameter name="code">a</parameter>'
    '<parameter name="code">b</parameter></invoke>',
    "minicpm5": '"store"><param name="code">a</param><param name="code">b</param>',
    "minimax_m3": ']<]minimax[>[<invoke name="store">]<]minimax[>[<code>a]<]minimax[>[</code>]<]minimax[>[<code>b'
    "]<]minimax[>[</code>]<]minimax[>[</invoke>",
    "kimi_k3": '<|open|>call tool="store" index="1"<|sep|><|open|>argument key="code" type="string"<|sep|>a<|close|>'
    'argument<|sep|><|open|>argument key="code" type="string"<|sep|>b<|close|>argument<|sep|><|close|>call<|sep|>',
    **dict.fromkeys(
        ("deepseek_v32", "deepseek_v4"),
        '<｜DSML｜invoke name="store">\n<｜DSML｜parameter name="code" string="true">a</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="code" string="true">b</｜DSML｜parameter>\n</｜DSML｜invoke>',
    ),
    "functools": '{"name": "store", "arguments": {"code": "a", "code": "b"}}]',
    **dict.fromkeys(("functiongemma", "gemma4"), 'call:store{code:"a",code:"b"}'),
    **dict.fromkeys(
        ("qwen3_coder", "seed_oss"),
        "<function=store><parameter=code>a</parameter><parameter=code>b</parameter></function>",
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_duplicate_argument_is_reported(name: str):
    parser = parser_named(name)
    body = TWICE.get(name, TWICE["hermes"])
    calls, text, warnings = read(name, f"{parser.start_marker}{body}{parser.end_marker}")
    assert (calls, warnings) == ([], 1) and body in text


UNITS = ("[", "{", '{"name":', '{"name": "f", "arguments": {"a": [', "f(", '"', "'", "`", "```", ">>>", "\\", ";")


def read_in_pieces(name: str, text: str) -> None:
    stream = CallStream(parser_named(name), ["f"], None, lambda call: False)
    for place in range(0, len(text), 16):
        stream.feed(text[place : place + 16])
    stream.finish()


@pytest.mark.slow
@pytest.mark.parametrize("name", usually(NAMES[::4], NAMES))
@lengths(4_000, 50_000, "length")
def test_many_unfinished_calls_take_linear_time(name: str, length: int):
    start = parser_named(name).start_marker
    for before in ("", start, "```\n", "x `"):
        for unit in UNITS:

            def read_units(size: int, before: str = before, unit: str = unit) -> None:
                read_in_pieces(name, before + unit * (size // len(unit)))

            check_growth(read_units, length)


@pytest.mark.parametrize("name", [name for name, each in DIALECTS.items() if each.elements is not None])
def test_an_unclosed_value_ends_before_the_next_key(name: str, monkeypatch: pytest.MonkeyPatch):
    """The next key is looked for without the white space before it: a search for that takes quadratic time."""
    elements, value_of, patterns = DIALECTS[name].elements, Elements._value, []
    assert elements is not None

    def noted(self, body, start, close, key, unended):
        patterns.append(key.pattern)
        return value_of(self, body, start, close, key, unended)

    monkeypatch.setattr(Elements, "_value", noted)
    keys = [elements.key.replace("{key}", key).replace("{type}", "x") for key in ("code", "more")]
    head = elements.head.replace("{name}", "store").replace("{index}", "1")
    with pytest.raises(PythonicSyntaxError):
        elements.read(f"{head}{keys[0]}a{' ' * 9}{keys[1]}b")
    assert len(patterns) == 2
    assert not [pattern for pattern in patterns if pattern.startswith(r"\s*")]


@pytest.mark.parametrize("name", [name for name, each in DIALECTS.items() if each.elements is not None])
def test_a_value_that_contains_its_closing_marker_is_one_value(name: str):
    elements = DIALECTS[name].elements
    assert elements is not None
    close = elements.close.replace("{key}", "code")
    value = f"a{close}{elements.key.replace('{key}', 'more').replace('{type}', 'x')}b{close}c"
    (text,) = elements.write([LeapFunctionCall("store", {"code": value})], [[("code", value, True)]])
    assert [dict(call.arguments) for call in elements.read(text)] == [{"code": value}]

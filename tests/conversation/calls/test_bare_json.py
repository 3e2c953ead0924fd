"""JSON that is the whole reply is a call where it is one of a declared function, without the markers of the dialect."""

from __future__ import annotations

import json
import random

import pytest

from leap_core.conversation.calls import LeapFunction, LeapFunctionCall, parser_named
from leap_core.conversation.calls.fitting import fits
from leap_core.conversation.calls.parsers import CallsFound, CallStream, CallText, marks_of
from tests.support.growth import check_growth

from ...support.lengths import lengths
from ...support.tables import check_each
from .call_texts import E, H, K, S, call

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
FUNCTIONS = [
    LeapFunction.from_openai({"name": "get_weather", "parameters": CITY}),
    LeapFunction.from_openai({"name": "now", "parameters": {"type": "object", "properties": {}}}),
]
ROME, NOW = call("get_weather", city="Rome"), call("now")
ODD = call("functions.get-weather", city="Rome")
W = '{"name": "get_weather", "arguments": {"city": "Rome"}}'
N = '{"name": "now", "arguments": {}}'
OPENAI = '{"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}'


def stream(dialect: str = "hermes", tokens: tuple[str, ...] = (), functions=FUNCTIONS) -> CallStream:
    parser, names = parser_named(dialect), [function.name for function in functions]
    marks = marks_of(parser, dict.fromkeys(tokens, 0))
    return CallStream(parser, names, marks, lambda made: fits(made, functions))


def played(pieces: list[str], **options) -> tuple[str, list[LeapFunctionCall]]:
    """The text and the calls of a reply that arrives in these pieces."""
    calls = stream(**options)
    events = [event for piece in pieces for event in calls.feed(piece)] + calls.finish()
    found = [each for event in events if isinstance(event, CallsFound) for each in event.calls]
    return "".join(event.text for event in events if isinstance(event, CallText)), found


CALLS = [
    (W, [ROME]),
    (f" \n{W}\n", [ROME]),
    (json.dumps(json.loads(W), indent=4), [ROME]),
    ('{"name":"now","parameters":{}}', [NOW]),
    ('{"arguments": {"city": "Rome"}, "name": "get_weather"}', [ROME]),
    ('{"name": "get_weather", "arguments": "{\\"city\\": \\"Rome\\"}"}', [ROME]),
    (f"```json\n{W}\n```", [ROME]),
    (f"```\n{W}\n```\n", [ROME]),
    (f"```tool_call\n{W}\n```", [ROME]),
    (f"```json\r\n{W}\r\n```", [ROME]),
    (f"```json\n{W}", [ROME]),
    (f"[{W}]", [ROME]),
    (f"[{W}, {N}]", [ROME, NOW]),
    (f"```json\n[\n  {W},\n  {N}\n]\n```", [ROME, NOW]),
    (f"{W}\n{N}", [ROME, NOW]),
    (f"```\n{W}\n\n {N}\n```", [ROME, NOW]),
    ('{"type": "function", "function": {"name": "now", "arguments": {}}}', [NOW]),
    ('{"function": {"name": "now", "arguments": {}}}', [NOW]),
    (f'{{"tool_calls": [{OPENAI}, {W}]}}', [NOW, ROME]),
    ('{"name": "get_weather", "arguments": {"city": "}]\\" ```\\n{"}}', [call("get_weather", city='}]" ```\n{')]),
    ('{"name": "GetWeather", "arguments": {"city": "Rome"}}', [call("GetWeather", city="Rome")]),
    ('```json\n[{"name": "functions.get-weather", "arguments": {"city": "Rome"}}]\n```', [ODD]),
    ('{"name": "get_weather", "arguments": {"city": "it\'s"}}', [call("get_weather", city="it's")]),
]
TEXTS = [
    "",
    '{"name": "Alice", "age": 3}',
    '{"name": "get_time", "arguments": {}}',
    '{"name": "GetWeather", "arguments": {"city": 5}}',
    '{"name": "Get_Weathers", "arguments": {"city": "Rome"}}',
    '{"name": "", "arguments": {}}',
    '{"name": "now\\"x", "arguments": {}}',
    '{"name": "get_weather", "arguments": {}}',
    '{"name": "get_weather", "arguments": {"city": 5}}',
    '{"name": "get_weather", "arguments": {"city": "Rome", "city": "Oslo"}}',
    '{"name": "get_weather", "arguments": "Rome"}',
    '{"name": "get_weather", "arguments": {"city": "Rome"',
    '{"name": "get_weather", "arguments": {"city": "Rome"}, "x": 1}',
    '{"name": "now", "arguments": {}, "parameters": {}}',
    '{"name": "now"}',
    '{"tool_calls": []}',
    f'{{"tool_calls": [{W}], "content": "x"}}',
    f'{{"tool_calls": [{W}, 5]}}',
    f"{W} is the call.",
    f"I would call {W}",
    f"Use this:\n```json\n{W}\n```",
    f"```json\n{W}\n```\nThis calls it.",
    f"```json\n{W}\n```\n```json\n{N}\n```",
    f"{W}\n```",
    f"```python\n{W}\n```",
    f"{W}{N}",
    f"{W} {N}",
    f"{W}\n{N}\nDone.",
    f'[{W}, {{"name": "get_time", "arguments": {{}}}}]',
    f"`{W}`",
    f'"{W}"',
    f"> {W}",
    f"[[{W}]]",
    "[1] and [get_weather](url)",
    "```json\n{}\n```",
]


cut_at_every = pytest.mark.parametrize(
    ("dialect", "nth"), [pytest.param("hermes", 1, marks=pytest.mark.slow), ("lfm", 5)]
)
"""The position at which a reply is cut. The dialect makes no difference, because these replies have no markers."""


@cut_at_every
def test_calls_without_markers_are_found_in_any_pieces(dialect: str, nth: int):
    def check(case: tuple[str, list[LeapFunctionCall]]) -> None:
        text, expected = case
        for cut in range(0, len(text) + 1, nth):
            shown, found = played([text[:cut], text[cut:]], dialect=dialect)
            assert (shown.strip(), found) == ("", expected), f"cut at {cut}"
        assert played(list(text), dialect=dialect)[1] == expected

    check_each(CALLS, check)


@cut_at_every
def test_other_json_and_quoted_calls_are_text_in_any_pieces(dialect: str, nth: int):
    def check(text: str) -> None:
        for cut in range(0, len(text) + 1, nth):
            assert played([text[:cut], text[cut:]], dialect=dialect) == (text, []), f"cut at {cut}"
        assert played(list(text), dialect=dialect) == (text, [])

    check_each(TEXTS, check)


def test_without_functions_nothing_is_a_call_or_held_back():
    for text, _ in CALLS:
        assert stream(functions=[]).feed(text) == [CallText(text)]


@pytest.mark.parametrize(
    ("begun", "then"),
    [
        ('{"name": "', "A"),
        ('{"name": "get_weather', "s"),
        ('{"name": "now", "', "x"),
        ('{"', "c"),
        ("[", "1"),
        ("```", "python"),
        ("```json\n{", "}"),
        (W, "."),
        (f"{W}\n", "D"),
        ("{" + " " * 998, " "),
        (W + "\n" * 999, "\n"),
    ],
)
def test_text_is_held_back_only_while_it_may_become_a_call(begun: str, then: str):
    calls = stream()
    assert calls.feed(begun) == [] and calls.feed(then) == [CallText(begun + then)]
    assert calls.feed(" more") == [CallText(" more")]


def test_the_markers_of_the_dialect_work_as_before():
    assert played([f"{H}{W}{K}"]) == ("", [ROME])
    assert played([f"{H}\n{W}\n{K}\n{H}{N}{K}"])[1] == [ROME, NOW]
    assert played([f"{W}{K}"]) == ("", [ROME])
    assert played([f"{W}{H}{N}{K}"]) == (W, [NOW])
    assert played([f"{S}[now()]{E}"], dialect="lfm")[1] == [NOW]


def test_a_marker_within_an_argument_is_text():
    tagged = '{"name": "get_weather", "arguments": {"city": "<tool_call>"}}'
    assert played([tagged])[1] == [call("get_weather", city=H)]
    token = marks_of(parser_named("hermes"), {H: 0})[0]
    assert played([tagged.replace(H, token)], tokens=(H,))[1] == [call("get_weather", city=H)]


PARTS = ["{", "}", "[", "]", '"', ",", ":", " ", "\n", "```", "```json\n", "\n```", "\\", "x", "'", H, K, S, E]
PARTS += [W, N, OPENAI, '{"name": "now"', ', "arguments": {', '{"tool_calls": [', '"city": "Rome"', "[now()", "now()]"]


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["hermes", "lfm"])
@lengths(600, 2500, "replies")
def test_a_stream_gives_what_the_whole_reply_gives(dialect: str, replies: int):
    dice = random.Random(7)
    for _ in range(replies):
        text = "".join(dice.choices(PARTS, k=dice.randint(1, 6)))
        if dice.random() < 0.3:
            text = dice.choice(CALLS)[0] + text
        whole = played([text], dialect=dialect)
        cuts = sorted(dice.choices(range(len(text) + 1), k=dice.randint(1, 9)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert played(pieces, dialect=dialect) == whole == played(list(text), dialect=dialect), pieces


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        '{"name": "now", "arguments": {"a": "' + "x" * 60_000,
        '{"name": "now", "arguments": ' + "[" * 30_000,
        "{" + " " * 60_000,
        W + "\n" * 60_000,
        f"{N}\n" * 2_000 + "x",
    ],
)
def test_a_long_reply_costs_linear_time(body: str):
    def play(size: int) -> object:
        return played([body[place : min(place + 4, size)] for place in range(0, size, 4)])

    check_growth(play, len(body))
    assert play(len(body)) == (body, [])

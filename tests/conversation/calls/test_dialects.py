"""Calls as families of models write them, by the examples of their chat templates."""

from __future__ import annotations

import random

import pytest
from llguidance import LLMatcher

from leap_cli.options.sampling import CALL_PARSERS
from leap_core.conversation.calls import IntegerType, LeapFunction, LeapFunctionParameter, StringType, parser_named
from leap_core.conversation.calls.dialects import DIALECTS, dialect_of_template
from leap_core.conversation.calls.fitting import fitted
from leap_core.conversation.calls.parsers import (
    CallsFound,
    CallStream,
    CallText,
    CallWarning,
    LeapFunctionCall,
    parser_for_template,
)
from leap_core.conversation.options import PARSERS
from leap_core.inference.constraints.call_grammars import json_grammar
from leap_core.schemas.grammar_matcher import byte_tokenizer
from tests.support.growth import check_growth
from tests.support.lengths import lengths, usually

from ...support.raw_replies import read_reply
from .dialect_cases import WRITERS

WEATHER = LeapFunction(
    "get_weather",
    "The weather of a city.",
    [
        LeapFunctionParameter("city", StringType(), "City"),
        LeapFunctionParameter("days", IntegerType(), "Days", optional=True),
    ],
)
PARIS = LeapFunctionCall("get_weather", {"city": 'Paris, "FR"', "days": 3})
ROME = LeapFunctionCall("get_weather", {"city": "Rome"})
SEEN = {
    "gpt_oss": '\udc00{"name": "get_weather", "arguments": {"city": "Paris, \\"FR\\"", "days": 3}}\udc01'
    '\udc00{"name": "get_weather", "arguments": {"city": "Rome"}}\udc01',
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    '{"city": "Paris, \\"FR\\"", "days": 3}<|tool_call_end|><|tool_call_begin|>functions.get_weather:1'
    '<|tool_call_argument_begin|>{"city": "Rome"}<|tool_call_end|><|tool_calls_section_end|>',
    "deepseek_v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
    '{"city": "Paris, \\"FR\\"", "days": 3}\n```<｜tool▁call▁end｜>\n'
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
    '```json\n{"city": "Rome"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek_v31": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
    '{"city": "Paris, \\"FR\\"", "days": 3}<｜tool▁call▁end｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>'
    '{"city": "Rome"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "mistral": '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris, \\"FR\\"", "days": 3}, '
    '"id": "abcdefghi"}, {"name": "get_weather", "arguments": {"city": "Rome"}}]',
    "granite": '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris, \\"FR\\"", "days": 3}}, '
    '{"name": "get_weather", "arguments": {"city": "Rome"}}]',
    "qwen3_coder": '<tool_call>\n<function=get_weather>\n<parameter=city>\nParis, "FR"\n</parameter>\n'
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n"
    "<parameter=city>\nRome\n</parameter>\n"
    "</function>\n</tool_call>",
    "glm45": '<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris, "FR"</arg_value>\n'
    "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n"
    "</tool_call>",
    "functiongemma": '<start_function_call>call:get_weather{city:<escape>Paris, "FR"<escape>,days:3}<end_function_call>'
    "<start_function_call>call:get_weather{city:<escape>Rome<escape>}<end_function_call>",
    "gemma4": '<|tool_call>call:get_weather{city:<|"|>Paris, "FR"<|"|>,days:3}<tool_call|>'
    '<|tool_call>call:get_weather{city:<|"|>Rome<|"|>}<tool_call|>',
    "functionary": '<function=get_weather>{"city": "Paris, \\"FR\\"", "days": 3}</function>'
    '<function=get_weather>{"city": "Rome"}</function>',
    "nemotron": '<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris, \\"FR\\"", "days": 3}}, '
    '{"name": "get_weather", "arguments": {"city": "Rome"}}]</TOOLCALL>',
    "apertus": '<|tools_prefix|>[{"get_weather": {"city": "Paris, \\"FR\\"", "days": 3}}, '
    '{"get_weather": {"city": "Rome"}}]<|tools_suffix|>',
    "command_r7b": '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": '
    '{"city": "Paris, \\"FR\\"", "days": 3}},\n    {"tool_call_id": "1", "tool_name": "get_weather", "parameters": '
    '{"city": "Rome"}}\n]<|END_ACTION|>',
    "minimax_m2": '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris, "FR"</parameter>\n'
    '<parameter name="days">3</parameter>\n</invoke>\n<invoke name="get_weather">\n'
    '<parameter name="city">Rome</parameter>\n</invoke>\n</minimax:tool_call>',
    "seed_oss": '<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris, "FR"</parameter>\n'
    "<parameter=days>3</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=get_weather>\n"
    "<parameter=city>Rome</parameter>\n</function>\n</seed:tool_call>",
    "functionary_v32": '\udc00get_weather\n{"city": "Paris, \\"FR\\"", "days": 3}\udc01'
    '\udc00get_weather\n{"city": "Rome"}\udc01',
    "llama3_json": '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris, \\"FR\\"", "days": 3}}; '
    '{"name": "get_weather", "parameters": {"city": "Rome"}}',
}
SEEN |= {
    name: WRITERS[name]([("get_weather", dict(call.arguments)) for call in (PARIS, ROME)])
    for name in DIALECTS.keys() - SEEN.keys()
}
OTHERS = [
    ("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}'),
    ("mistral", '[TOOL_CALLS]get_weather[CALL_ID]123456789[ARGS]{"city": "Rome"}'),
    ("mistral", '[TOOL_CALLS]get_weather{"city": "Rome"}'),
    ("llama3_json", '<|python_tag|>get_weather.call(city="Rome")'),
    ("qwen3_coder", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'),
    ("qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</function>\n</tool_call>"),
    ("qwen3_coder", "<tool_call><function=get_weather><parameter=city>Rome</parameter></function></tool_call>"),
    ("glm45", '<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>'),
    ("glm45", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>"),
    ("functiongemma", '<start_function_call>call:get_weather{"city": "Rome"}<end_function_call>'),
]


def read(name: str, pieces: list[str]) -> tuple[str, list[LeapFunctionCall], list[str]]:
    stream = CallStream(parser_named(name), ["get_weather"])
    events = [event for piece in pieces for event in stream.feed(piece)] + stream.finish()
    calls = [call for event in events if isinstance(event, CallsFound) for call in event.calls]
    text = "".join(event.text for event in events if isinstance(event, CallText))
    warnings = [event.message for event in events if isinstance(event, CallWarning)]
    return text, [fitted(call, [WEATHER]) for call in calls], warnings


def cut(text: str, draw: random.Random) -> list[str]:
    places = sorted(draw.sample(range(1, len(text)), min(8, len(text) - 1)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def test_every_dialect_has_an_example_and_a_name_in_the_options():
    assert SEEN.keys() == DIALECTS.keys()
    assert list(PARSERS) == ["auto", "lfm", "hermes", "json", *DIALECTS]
    assert list(CALL_PARSERS) == [*PARSERS, "none"]


@pytest.mark.parametrize("name", DIALECTS)
def test_calls_of_the_examples_are_found_cut_anywhere(name):
    draw = random.Random(name)
    for before in ("", "I will look it up.\n"):
        whole = read(name, [before + SEEN[name]])
        assert (whole[0].strip(), whole[1:]) == (before.strip(), ([PARIS, ROME], []))
        for _ in range(20):
            assert read(name, cut(before + SEEN[name], draw)) == whole


@pytest.mark.parametrize(("name", "text"), OTHERS)
def test_other_spellings_of_calls_are_read(name, text):
    assert read(name, [text]) == ("", [ROME], [])


@pytest.mark.parametrize("name", DIALECTS)
def test_written_calls_are_read_back(name):
    text = parser_named(name).dump([PARIS, ROME])
    assert read(name, [text])[1:] == ([PARIS, ROME], [])
    assert parser_named(name).dump([]) == ""


@pytest.mark.parametrize("name", DIALECTS)
def test_an_unfinished_call_is_not_a_call(name):
    text = SEEN[name][: SEEN[name].index("Paris") + 2]
    shown, calls, warnings = read(name, [text])
    assert calls == [] and len(warnings) == 1 and "Pa" in shown


@pytest.mark.parametrize("name", DIALECTS)
def test_the_dialect_is_detected_from_the_template(name):
    template = "{% for call in message.tool_calls %}" + "".join(DIALECTS[name].signs) + "{% endfor %}"
    assert dialect_of_template(template) == name
    assert parser_for_template(template, ()).name == name


def test_the_two_usual_forms_of_templates_are_detected():
    assert parser_for_template("<|tool_call_start|>", ()).name == "lfm"
    assert parser_for_template("", ["<|tool_call_start|>", "<tool_call>"]).name == "lfm"
    assert parser_for_template("<tool_call>", ()).name == "hermes"
    assert parser_for_template("", ["<tool_call>"]).name == "hermes"
    assert parser_for_template("{{ messages }}", ()).name == "json"


def test_values_without_quotes_follow_the_schema():
    kinds = {"n": "integer", "s": "string", "l": "array", "b": "boolean", "o": "object", "both": ["string", "integer"]}
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in kinds.items()}}
    function = LeapFunction.from_openai({"name": "f", "description": "", "parameters": schema})
    parameters = {"n": "3", "s": "3", "l": "[1, 2]", "b": "True", "o": '{"a": 1}', "both": "3"}
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters.items())
    (call,) = parser_named("qwen3_coder").parse(f"<function=f>\n{body}</function>")
    expected = {"n": 3, "s": "3", "l": [1, 2], "b": True, "o": {"a": 1}, "both": 3}
    assert fitted(call, [function]).arguments == expected


@pytest.mark.parametrize("name", [name for name, dialect in DIALECTS.items() if dialect.is_json])
def test_the_grammar_of_a_block_accepts_written_calls_and_no_undeclared_ones(name):
    dialect = DIALECTS[name]
    calls = [PARIS, ROME] if dialect.separator is not None else [PARIS]
    body = parser_named(name).dump(calls).removeprefix(dialect.start).removesuffix(dialect.end)
    grammar = LLMatcher.grammar_from_lark(json_grammar([WEATHER], '"<end>"', dialect=dialect))

    def accepts(text: str) -> bool:
        tokenizer = byte_tokenizer()
        return tokenizer.matcher(grammar).consume_tokens(list((text + "<end>").encode()))

    assert accepts(body)
    assert not accepts(body.replace("get_weather", "get_other"))
    assert not accepts(body.replace('"days"', '"hours"'))


def test_a_name_of_kimi_k2_ends_before_a_number():
    reply = SEEN["kimi_k2"].replace(":0<", ":get<")
    shown, calls, warnings = read("kimi_k2", [reply])
    assert "functions.get_weather:get" in shown and calls == [] and len(warnings) == 1


IN_A_STRING = {
    "qwen3_coder": "<function=f><parameter=a>",
    "glm45": "f<arg_key>a</arg_key><arg_value>",
    "functiongemma": "call:f{a:<escape>",
    "gemma4": 'call:f{a:<|"|>',
    "lfm": "[f(a='",
    "hermes": '{"name": "f", "arguments": {"a": "',
    "gpt_oss": '{"name": "f", "arguments": {"a": "',
    "seed_oss": "<function=f><parameter=a>",
    "minimax_m2": '<invoke name="f"><parameter name="a">',
    "functionary_v32": 'f\n{"a": "',
    "apertus": '[{"f": {"a": "',
    "kimi_k2": '<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": "',
    "deepseek_v31": '<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": "',
}


@pytest.mark.slow
@pytest.mark.parametrize("name", usually(["lfm", *list(DIALECTS)[::4]], ["lfm", "hermes", *DIALECTS]))
@lengths(10_000, 40_000, "size")
def test_a_reply_of_only_markers_takes_linear_time(name, size):
    parser, begun = parser_named(name), IN_A_STRING.get(name, "")
    units = (parser.start_marker, f"{parser.start_marker}x", parser.start_marker + begun, parser.end_marker or "x")
    for unit in (*units, f"x{parser.start_marker}", "<parameter=a>", "<arg_key>a</arg_key><arg_value>"):
        for before in {"", begun}:

            def read(length: int, head=parser.start_marker + before, unit=unit) -> None:
                text = head + unit * (length // len(unit))
                stream = CallStream(parser_named(name), ["f"])
                for place in range(0, len(text), 64):
                    stream.feed(text[place : place + 64])
                stream.finish()

            check_growth(read, size)


@pytest.mark.parametrize("line", ["", "\n"], ids=["in line", "in lines"])
def test_a_line_feed_at_the_end_of_a_value_stays(line: str):
    for start, end in (("<function=edit>", "</function>"), ('<invoke name="edit">', "</invoke>")):
        body = (
            f"{start}\n<parameter=text>{line}a\nb\n{line}</parameter>\n<parameter=more>{line}c{line}</parameter>\n{end}"
        )
        assert [dict(call.arguments) for call in parser_named("seed_oss").parse(body)] == [
            {"text": "a\nb\n", "more": "c"}
        ]


CHANNEL_TOKENS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>")
CHANNEL_REPLIES = {
    "<|channel|>commentary to=assistant<|channel|>analysis<|message|>Hm.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>Hi.": ("Hi.", "Hm.", [], 0),
    "<|channel|>commentary to=container.exec<|message|>ls<|end|>": ("", None, [], 1),
    "<|channel|>commentary to=python <|constrain|>code<|message|>print(1)": ("", None, [], 1),
    '<|channel|>commentary to=f<|message|>{"a": "x"}<|call|>': ("", None, [("f", {"a": "x"})], 0),
    ' to=functions.f<|channel|>analysis<|message|>{"a": "x"}<|call|>': ("", None, [("f", {"a": "x"})], 0),
}


def test_messages_to_other_recipients_are_not_calls():
    functions = [LeapFunction.from_openai({"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}})]
    for reply, expected in CHANNEL_REPLIES.items():
        for letters in (False, True):
            *_, end = read_reply("gpt_oss", CHANNEL_TOKENS, reply, functions, letters=letters)
            message = end.full_message
            calls = [(call.name, dict(call.arguments)) for call in message.function_calls or ()]
            assert (message.text, message.reasoning_content, calls, len(end.warnings)) == expected, reply
    published = "<|channel|>analysis<|message|> to=functions. <|channel|>final"
    assert parser_for_template(published, ()).name == "gpt_oss"


@pytest.mark.parametrize("name", [name for name, each in DIALECTS.items() if each.elements is not None])
def test_a_value_may_hold_what_closes_it_and_the_end_of_a_section(name: str):
    elements = DIALECTS[name].elements
    assert elements is not None
    close = elements.close.strip()
    for value in (f"a{close}b", f"a]]>{close}b", f"]]>{close}", f"]]]]><{close}]]>", "]]>"):
        call = LeapFunctionCall("get_weather", {"city": value})
        text = parser_named(name).dump([call, ROME])
        assert read(name, [text]) == ("", [call, ROME], []) == read(name, list(text))

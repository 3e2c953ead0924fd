"""Parsers and what they write."""

from __future__ import annotations

import pytest

from leap_core.conversation.calls import HermesFunctionCallParser, LeapFunctionCall, LFMFunctionCallParser, parser_named
from leap_core.conversation.calls.call_list import read_calls
from leap_core.conversation.calls.pythonic import PythonicSyntaxError

CALL = LeapFunctionCall("f", {"b": [1, True, None], "a": 'say "hi"\n', "c": {"y": 1.5, "x": "é"}})


def test_lfm_writes_arguments_sorted_in_pythons_spelling():
    written = LFMFunctionCallParser().dump([CALL, LeapFunctionCall("g")])
    assert written == (
        '<|tool_call_start|>[f(a="say \\"hi\\"\\n", b=[1, True, None], c={"x": "é", "y": 1.5}), g()]<|tool_call_end|>'
    )


def test_hermes_writes_one_block_per_call():
    written = HermesFunctionCallParser().dump([LeapFunctionCall("f", {"a": "é"}), LeapFunctionCall("g")])
    assert written == (
        '<tool_call>\n{"name": "f", "arguments": {"a": "é"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
    )


def test_no_calls_are_written_as_nothing():
    assert LFMFunctionCallParser().dump([]) == HermesFunctionCallParser().dump([]) == ""


def test_pieces_are_collected_and_parsed_together():
    parser = LFMFunctionCallParser()
    for piece in ("<|tool_call_start|>[f(a", "=1)]<|tool", "_call_end|>"):
        parser.append(piece)
    assert parser.parse() == [LeapFunctionCall("f", {"a": 1})]
    parser.clear()
    parser.append("[g()]")
    assert parser.parse() == [LeapFunctionCall("g")]


def test_a_syntax_error_says_where():
    with pytest.raises(PythonicSyntaxError) as caught:
        LFMFunctionCallParser().parse("[f(a=?)]")
    assert caught.value.position == 5 and "syntax error at 5" in str(caught.value)


def test_parsers_by_name():
    assert parser_named("lfm").name == "lfm" and parser_named("hermes").start_marker == "<tool_call>"
    with pytest.raises(ValueError, match="known are lfm, hermes"):
        parser_named("qwen")


@pytest.mark.parametrize("parser", [LFMFunctionCallParser(), HermesFunctionCallParser()])
def test_several_written_calls_are_read_back(parser):
    parser.clear()
    parser.append(parser.dump([CALL, LeapFunctionCall("g")]))
    assert parser.parse() == [CALL, LeapFunctionCall("g")]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r'"C:\Users\test\file.txt"', r"C:\Users\test\file.txt"),
        (r'"\d+\t"', r"\d+\t"),
        (r'"C:\\Users\\test"', r"C:\Users\test"),
        (r'"a\tb\n"', "a\tb\n"),
        (r'"\q \"x\""', r"\q \"x\""),
        (r'"grep "a\"b" x"', r'grep "a\"b" x'),
        (r"""'awk '{print "\"" $1}' f'""", r"""awk '{print "\"" $1}' f"""),
        ("'<tool_call>x</tool_call> <|tool_call_end|>'", "<tool_call>x</tool_call> <|tool_call_end|>"),
    ],
)
def test_a_string_has_all_or_none_of_its_escapes_decoded(written, meant):
    (call,) = read_calls(f"[f(x={written})]")
    assert call.arguments == {"x": meant}

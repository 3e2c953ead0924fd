"""From tokens to responses: no marker reaches a text, and a stop string ends nothing but text."""

from __future__ import annotations

import pytest

from leap_core.conversation.calls import LeapFunction, LFMFunctionCallParser, parser_named
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.responses import Chunk, Complete, FunctionCalls, GenerationFinishReason, ReasoningChunk
from leap_core.errors import GenerationStats
from leap_core.inference.template.reply import ReplyBuilder

MARKERS = ["<think>", "</think>", "<|tool_call_start|>", "<|tool_call_end|>", "<|im_end|>"]
MARKERS += ["<|cot_start|>", "<|cot_end|>"]
CALL = ["<|tool_call_start|>", '[f(a="', "x", '")]', "<|tool_call_end|>"]
STATS = GenerationStats(1, 1, 2, 0.0)


class Spelling:
    """A vocabulary in which every piece of text that is used becomes a token; the markers are special ones."""

    def __init__(self, *, special: bool = True) -> None:
        self._pieces = list(MARKERS)
        self.special_tokens = {text: n for n, text in enumerate(MARKERS)} if special else {}
        self.control_tokens = frozenset(self.special_tokens.values())

    def token(self, text: str | bytes) -> int:
        self._pieces.append(text)
        return MARKERS.index(text) if text in MARKERS and self.special_tokens else len(self._pieces) - 1

    def piece(self, token: int) -> bytes:
        text = self._pieces[token]
        return text if isinstance(text, bytes) else text.encode()


def responses(*texts, parser=True, special=True, reason=GenerationFinishReason.STOP, functions=(), **options):
    vocabulary = Spelling(special=special)
    known = parser_named(parser) if isinstance(parser, str) else LFMFunctionCallParser() if parser else None
    reply = ReplyBuilder(vocabulary, GenerationOptions(**options), known, functions=functions)
    found = []
    for text in texts:
        found += reply.feed(vocabulary.token(text))
        if reply.met_stop_string:
            break
    return found + reply.finish(reason, STATS)


def seen(found):
    return [r.text if isinstance(r, Chunk) else r for r in found if not isinstance(r, Complete)]


@pytest.mark.parametrize("stop", ["|>", "_start", "tool_call", "<", "[", ",", '"', "("])
def test_a_stop_string_is_searched_only_in_the_text(stop):
    found = responses(*CALL, "done", stop=[stop])
    assert [type(r) for r in found] == [FunctionCalls, Chunk, Complete]
    assert found[0].function_calls[0].arguments == {"a": "x"} and found[1].text == "done"


def test_numbers_of_a_call_are_of_the_declared_types():
    month = {"type": "object", "properties": {"month": {"type": "integer"}, "zip": {"type": "string"}}}
    functions = [LeapFunction.from_openai({"name": "f", "parameters": month})]
    found = responses(CALL[0], "[f(month=07, zip=01234)]", CALL[-1], functions=functions)
    assert found[0].function_calls[0].arguments == {"month": 7, "zip": "01234"}
    assert found[-1].full_message.function_calls == found[0].function_calls


NOW = [LeapFunction.from_openai({"name": "now", "parameters": {"type": "object", "properties": {}}})]
BARE = ["```", "json", "\n{", '"name": "now", "arg', 'uments": {}}', "\n```"]


def test_a_json_call_without_markers_is_a_call_of_a_declared_function():
    for texts in (BARE, ["<think>", "I need it.", "</think>", "\n\n", *BARE, "<|im_end|>"]):
        *rest, end = responses(*texts, functions=NOW)
        assert [type(r) for r in rest] == [FunctionCalls] and end.full_message.text == ""
        assert [call.name for call in end.full_message.function_calls] == ["now"]


@pytest.mark.parametrize(
    "options", [{}, {"functions": NOW, "json_schema_constraint": "{}"}, {"functions": NOW, "parser": False}]
)
def test_json_is_text_without_functions_or_a_parser_and_where_json_is_the_answer(options):
    *rest, end = responses(*BARE, **options)
    assert "".join(seen(rest)) == end.full_message.text == "".join(BARE) and end.full_message.function_calls is None


def test_a_json_call_in_reasoning_is_not_a_call():
    *_, end = responses("<think>", *BARE, "</think>", "Done.", functions=NOW)
    assert (end.full_message.text, end.full_message.function_calls) == ("Done.", None)


def test_a_stop_string_after_a_call_ends_the_reply():
    *rest, end = responses(*CALL, "one", " STOP", " two", stop=["STOP"])
    assert [type(r) for r in rest] == [FunctionCalls, Chunk, Chunk] and end.full_message.text == "one "


def test_a_stop_string_that_the_last_token_completes_is_the_reason():
    *_, end = responses("a", "<", stop=["<"], reason=GenerationFinishReason.MAX_TOKENS)
    assert (end.full_message.text, end.finish_reason) == ("a", GenerationFinishReason.STOP)


@pytest.mark.parametrize("options", [{}, {"enable_thinking": True}, {"inline_thinking_tags": True}])
@pytest.mark.parametrize("special", [True, False])
def test_a_tag_in_an_argument_belongs_to_the_call(options, special):
    texts = ["<|tool_call_start|>", '[f(a="', "<th", "ink>", "</think>", '")]', "<|tool_call_end|>"]
    found = responses(*texts, special=special, **options)
    assert [type(r) for r in found] == [FunctionCalls, Complete]
    assert found[0].function_calls[0].arguments == {"a": "<think></think>"}


def test_unused_markers_are_dropped():
    *rest, end = responses("a", "</think>", "b", "<|tool_call_end|>", "c", "<|im_end|>")
    assert seen(rest) == ["a", "b", "c"] and end.full_message.reasoning_content is None


def test_a_call_in_reasoning_is_shown_as_text():
    texts = ["<think>", "so ", "<think>", *CALL, "</think>", "yes"]
    *rest, end = responses(*texts, enable_thinking=True)
    assert "".join(r.reasoning for r in rest if isinstance(r, ReasoningChunk)) == f"so {''.join(CALL)}"
    assert (end.full_message.text, end.full_message.function_calls) == ("yes", None)
    assert "".join(seen(responses(*texts, inline_thinking_tags=True))) == f"<think>so {''.join(CALL)}</think>yes"


def test_spelled_tags_are_text_when_the_model_has_a_token():
    *_, end = responses("<th", "ink>", " is a tag", ", </", "think> too")
    assert end.full_message.text == "<think> is a tag, </think> too"
    *_, end = responses("<th", "ink>", "why", "</", "think>", "so", special=False)
    assert (end.full_message.text, end.full_message.reasoning_content) == ("so", "why")


def test_without_a_parser_everything_is_raw():
    assert seen(responses(*CALL, "</think>", parser=False)) == [*CALL, "</think>"]


def test_an_incomplete_last_character_is_left_out():
    *_, end = responses("a", "é".encode()[:1], reason=GenerationFinishReason.MAX_TOKENS)
    assert end.full_message.text == "a"


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("before", [["<think>", "let me look"], ["<think>", "so", "</think>"], ["<think>"], []])
def test_a_call_counts_whether_or_not_the_reasoning_before_it_was_closed(before, special):
    *rest, end = responses(*before, *CALL, special=special, enable_thinking=True)
    assert [call.arguments for call in end.full_message.function_calls] == [{"a": "x"}]
    assert end.full_message.text == "" and not any(isinstance(response, Chunk) for response in rest)
    thought = "".join(text for text in before if "think>" not in text)
    assert (end.full_message.reasoning_content or "") == thought


def test_text_after_a_call_in_unclosed_reasoning_is_reasoning():
    *_, end = responses("<think>", "so ", *CALL, " and more", "<|im_end|>", inline_thinking_tags=True)
    assert len(end.full_message.function_calls) == 1 and end.full_message.reasoning_content == "so  and more"


def test_an_unreadable_call_in_unclosed_reasoning_has_a_warning():
    *_, end = responses("<think>", "so ", "<|tool_call_start|>", "[f(", "<|tool_call_end|>")
    assert end.full_message.function_calls is None and end.full_message.reasoning_content == "so [f("
    assert "could not be read" in end.warnings[0]


@pytest.mark.parametrize(("start", "end"), [("<think>", "</think>"), ("<|cot_start|>", "<|cot_end|>")])
def test_the_markers_of_reasoning_are_the_models_own(start, end):
    *pieces, complete = responses(start, "1 + 1 is ", "2", end, "\nIt is 2.", enable_thinking=True)
    assert pieces == [ReasoningChunk("1 + 1 is "), ReasoningChunk("2"), Chunk("It is 2.")]
    assert (complete.full_message.reasoning_content, complete.full_message.text) == ("1 + 1 is 2", "It is 2.")


QUOTED = ["<|tool_", "call_start|>", "[f(a=1)]", "<|tool_call", "_end|>"]
"""Markers in ordinary tokens, as a document that a model quotes spells them."""


def test_a_call_that_is_only_quoted_in_ordinary_tokens_is_text():
    found = responses("Do not write ", *QUOTED, ".")
    assert "".join(seen(found)) == f"Do not write {''.join(QUOTED)}."
    assert found[-1].full_message.function_calls is None and found[-1].warnings == ()
    assert any(isinstance(each, FunctionCalls) for each in responses(*QUOTED, special=False)), "no token to tell by"


@pytest.mark.parametrize("token", ["<|im_end|>", "<think>"])
def test_a_control_token_in_an_argument_is_its_text(token):
    call = ["<|tool_call_start|>", "[f(x='a", token, "b')]", "<|tool_call_end|>"]
    (found,) = [each for each in responses(*call) if isinstance(each, FunctionCalls)]
    assert found.function_calls[0].arguments == {"x": f"a{token}b"}


def test_a_marker_that_is_quoted_within_a_call_does_not_end_it():
    start, _, _, _, end = CALL
    *_, calls, complete = responses(start, '[f(a="', *QUOTED, '")]', end)
    assert calls.function_calls[0].arguments == {"a": "".join(QUOTED)} and complete.warnings == ()


def test_a_call_quoted_in_unclosed_reasoning_is_reasoning():
    *_, complete = responses("<think>", "It says ", *QUOTED)
    assert complete.full_message.reasoning_content == f"It says {''.join(QUOTED)}"
    assert complete.full_message.function_calls is None


@pytest.mark.parametrize("reason", [GenerationFinishReason.MAX_TOKENS, GenerationFinishReason.EXCEED_CONTEXT])
@pytest.mark.parametrize(
    ("pieces", "special"), [(["<|tool"], False), ([CALL[0], "[get"], True), ([*QUOTED[:2], "[f(a='"], False)]
)
def test_a_cut_required_call_leaves_no_text(reason, pieces, special):
    (complete,) = responses(*pieces, special=special, reason=reason, tool_choice="required")
    assert complete.full_message.text == "" and "cut within a function call" in complete.warnings[0]
    assert len(complete.warnings) == 1


CHANNELS = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>"]
WEATHER = [LeapFunction.from_openai({"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}}})]
ANALYSIS = ["<|channel|>", "analysis", "<|message|>", "The user ", "asks.", "<|end|>"]
COMMENTARY = ["<|channel|>", "commentary", " to=", "functions.weather", " ", "<|constrain|>", "json", "<|message|>"]
TO_FIRST = [" to", "=functions.weather", "<|channel|>", "commentary json", "<|message|>"]
ARGUMENTS = ['{"city":', ' "Rome"}']


@pytest.mark.parametrize("head", [COMMENTARY, TO_FIRST])
@pytest.mark.parametrize("end", [["<|call|>"], []])
def test_channels_are_reasoning_text_and_calls(monkeypatch, head, end):
    monkeypatch.setattr("tests.inference.template.test_reply_builder.MARKERS", CHANNELS)
    start = ["<|start|>", "assistant"]
    *rest, last = responses(*ANALYSIS, *start, *head, *ARGUMENTS, *end, parser="gpt_oss", functions=WEATHER)
    assert (last.full_message.reasoning_content, last.full_message.text, last.warnings) == ("The user asks.", "", ())
    assert [dict(call.arguments) for call in last.full_message.function_calls] == [{"city": "Rome"}]
    final = ["<|channel|>", "final", "<|message|>", "It is ", "sunny.", "<|return|>"]
    *rest, last = responses(*ANALYSIS, *start, *final, parser="gpt_oss", functions=WEATHER)
    assert last.full_message.text == "It is sunny." and last.full_message.reasoning_content == "The user asks."
    *rest, last = responses(*head, '{"city": "Ro', parser="gpt_oss", functions=WEATHER)
    assert last.full_message.function_calls is None and "Ro" in last.full_message.text and len(last.warnings) == 1
    *rest, last = responses("{", '"a": 1}', parser="gpt_oss", functions=WEATHER)
    assert last.full_message.text == '{"a": 1}'


@pytest.mark.parametrize("text", ["plain", " to", " to=", "<|channel|>", "<|end"])
def test_a_reply_without_channels_is_text(text):
    *_, last = responses(*text, "<|im_end|>", parser="gpt_oss", functions=WEATHER)
    assert last.full_message.text == text

"""Formats of calls and reasoning that are learned from a chat template."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from llguidance import LLMatcher

from leap_core import ModelLoadingOptions
from leap_core.conversation.calls import LeapFunction, LeapFunctionCall
from leap_core.conversation.calls.parsers import DialectParser
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.responses import Chunk, Complete, GenerationFinishReason, MessageResponse
from leap_core.conversation.streams import last_of
from leap_core.inference.constraints.call_grammars import json_grammar
from leap_core.inference.runner import InProcessRunner
from leap_core.inference.template import learning
from leap_core.inference.template.chat_template import ChatTemplate
from leap_core.inference.template.learning import ReplyFormat, format_of_template, name_of_format
from leap_core.inference.template.reply import ReplyBuilder
from leap_core.schemas.grammar_matcher import byte_tokenizer

from ...support.growth import check_growth
from ...support.random_models import TINY_LLAMA, write_random_model
from ...support.raw_replies import STATS, Tokens
from .unseen_templates import EACH, SECTION, UNSEEN, Unseen

TYPES = {"city": "string", "days": "integer", "exact": "boolean", "tags": "array", "note": "string"}
PARAMETERS = {"type": "object", "properties": {name: {"type": kind} for name, kind in TYPES.items()}}
FUNCTIONS = [
    LeapFunction.from_openai({"name": name, "parameters": PARAMETERS}) for name in ("get_weather", "ping", "send-mail")
]
CALLS = [
    [LeapFunctionCall("get_weather", {"city": "Paris"})],
    [LeapFunctionCall("get_weather", {"city": 'Saint "Malo"', "days": 3, "exact": False})],
    [LeapFunctionCall("ping", {})],
    [
        LeapFunctionCall("get_weather", {"city": "Rome", "note": "two\nlines {and} braces"}),
        LeapFunctionCall("send-mail", {"tags": ["a", "b"], "note": "it's 5 < 6"}),
        LeapFunctionCall("ping", {}),
    ],
]
LEARNED = {name: each for name, each in UNSEEN.items() if each.is_learned}


def compiled(template: str) -> ChatTemplate:
    return ChatTemplate(template, bos_text="", eos_text="<|eot|>", special_texts=["<|eot|>"])


def learned(template: str) -> ReplyFormat:
    return format_of_template(compiled(template), template, ())


def written(unseen: Unseen, message: ChatMessage) -> tuple[str, str]:
    """The end of the prompt, and the reply that the template shows for a message, calls in its own words."""
    template = compiled(unseen.template)
    question = ChatMessage("user", "What now?")
    prompt = "".join(map(str, template.render([question])))
    whole = "".join(map(str, template.render([question, message], ended=True)))
    assert whole.startswith(prompt) and whole.endswith("<|eot|>")
    return prompt, whole[len(prompt) : -len("<|eot|>")]


def read(
    form: ReplyFormat,
    reply: str,
    pieces: list[str] | None = None,
    *,
    inside: bool = False,
    functions: Sequence[LeapFunction] = FUNCTIONS,
) -> list[MessageResponse]:
    vocabulary = Tokens(())
    builder = ReplyBuilder(
        vocabulary, GenerationOptions(enable_thinking=True), form.parser, functions=functions, inside_reasoning=inside
    )
    tokens = [token for piece in pieces or [reply] for token in vocabulary.cut(piece, letters=False)]
    found = [each for token in tokens for each in builder.feed(token)]
    return found + builder.finish(GenerationFinishReason.STOP, STATS)


def summary(responses: list[MessageResponse]) -> tuple[str, str, list[LeapFunctionCall], int]:
    complete = responses[-1]
    assert isinstance(complete, Complete)
    message = complete.full_message
    assert message.text == "".join(each.text for each in responses if isinstance(each, Chunk))
    calls = [LeapFunctionCall(call.name, dict(call.arguments)) for call in message.function_calls or ()]
    return message.text.strip(), (message.reasoning_content or "").strip(), calls, len(complete.warnings)


def cut(text: str, draw: random.Random) -> list[str]:
    places = sorted(draw.sample(range(1, len(text)), min(8, len(text) - 1)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@pytest.mark.parametrize("name", UNSEEN)
def test_readable_templates_are_recognized(name: str):
    assert learned(UNSEEN[name].template).is_known is UNSEEN[name].is_learned


@pytest.mark.parametrize("calls", CALLS, ids=["one", "types", "none", "three"])
@pytest.mark.parametrize("name", LEARNED)
def test_calls_of_unseen_templates_are_read(name: str, calls: list[LeapFunctionCall]):
    unseen, draw = LEARNED[name], random.Random(name)
    form = learned(unseen.template)
    for content in ("", "I look."):
        thought = "Well, well." if unseen.thought[0] else ""
        prompt, reply = written(unseen, ChatMessage("assistant", content, thought or None, calls))
        inside = bool(form.parser.reasoning) and prompt.rstrip().endswith(form.parser.reasoning[0])
        assert inside is unseen.opens
        whole = summary(read(form, reply, inside=inside))
        assert whole == (content, thought, calls, 0), reply
        for pieces in (list(reply), cut(reply, draw), cut(reply, draw)):
            assert summary(read(form, reply, pieces, inside=inside)) == whole


@pytest.mark.parametrize("name", ["an object in a tag", "lines of names and values", "quotes of its own"])
def test_a_reply_in_an_unknown_format_has_a_warning(name: str, tmp_path: Path):
    path = write_random_model(tmp_path / "m.gguf", TINY_LLAMA)
    loading = ModelLoadingOptions(chat_template=UNSEEN[name].template, context_size=2048)
    with InProcessRunner(Path(path), "m", loading) as runner:
        for functions, chosen in ((FUNCTIONS, "auto"), ([], "auto"), (FUNCTIONS, "json")):
            options = GenerationOptions(max_tokens=2, function_call_parser=chosen)
            conversation = runner.create_conversation()
            for function in functions:
                conversation.register_function(function)
            end = last_of(conversation.generate_response(ChatMessage("user", "Hi"), options))
            said = [line for line in end.warnings if "how it writes function calls" in line]
            assert len(said) == (bool(functions) and chosen == "auto" and not UNSEEN[name].is_learned)


def test_models_info_shows_the_format_of_calls():
    assert name_of_format(UNSEEN["an object in a tag"].template, ()) == "learned"
    assert name_of_format("{% if tools %}<tool_call>{% endif %}", ()) == "hermes"
    assert "does not show" in (name_of_format(UNSEEN["quotes of its own"].template, ()) or "")
    assert name_of_format("{{ messages[0].content }}", ()) is name_of_format("{% broken", ()) is None


def test_words_around_an_answer_are_no_part_of_it():
    template = (
        "{{ tools or '' }}{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %} to=all{% endif %}"
        "<|text|>{{ m.content }}<|eot|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
    )
    assert summary(read(learned(template), " to=all<|text|>It is to=all."))[0] == "It is to=all."


@pytest.mark.parametrize("name", LEARNED)
def test_required_calls_are_read(name: str):
    """The grammar of calls that must be made lets through what is written, and that is read again."""
    parser = learned(LEARNED[name].template).parser
    assert isinstance(parser, DialectParser)
    function = LeapFunction.from_openai(
        {"name": "ping", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
    )
    dialect, call = parser.dialect, LeapFunctionCall("ping", {"a": "x"})
    plain = '{"name": "ping", "arguments": {"a": "x"}}'
    parts = (dialect.start, dialect.opening, plain, dialect.closing, dialect.end)
    written = dialect.write([call]) if dialect.is_json else "".join(parts)
    matcher = byte_tokenizer().matcher(
        LLMatcher.grammar_from_lark(json_grammar([function], f'"{dialect.end}"', dialect=dialect))
    )
    body = written.removeprefix(dialect.start).encode()
    assert matcher.consume_tokens(list(body)), written
    assert summary(read(ReplyFormat(parser), written))[2] == [call]


@pytest.mark.long
@pytest.mark.parametrize("name", LEARNED)
def test_a_hostile_reply_takes_linear_time(name: str):
    form = learned(LEARNED[name].template)
    thought = "Hm." if LEARNED[name].thought[0] else None
    _, reply = written(LEARNED[name], ChatMessage("assistant", "", thought, CALLS[0]))
    start = form.parser.start_marker
    for part in (reply, start, start + "{{{", reply[:-3], "`" + start, start + '["a"a'):
        check_growth(lambda size, part=part: read(form, part * (size // len(part))), 1_000_000)


LFM = {
    "single quotes": ("<|tool_call_start|>[get_weather(city='Paris', days=3)]<|tool_call_end|>", ""),
    "JSON": (
        '<|tool_call_start|>[{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}]<|tool_call_end|>',
        "",
    ),
    "after reasoning": ("Hm.</think><|tool_call_start|>[get_weather(city='Paris', days=3)]<|tool_call_end|>", "Hm."),
    "an end of no reasoning": (
        "</think>\n\n<|tool_call_start|>[get_weather(city='Paris', days=3)]<|tool_call_end|>",
        "",
    ),
}
LFM_TOKENS = ("<|tool_call_start|>", "<|tool_call_end|>", "<think>", "</think>")


@pytest.mark.parametrize("letters", [False, True], ids=["whole", "letters"])
@pytest.mark.parametrize("case", LFM)
def test_replies_of_lfm2_lfm25_and_lfm3(case: str, letters: bool):
    """As LFM2 (no calls in its template), LFM2.5 and LFM3 (the prompt opens reasoning) write them."""
    reply, thought = LFM[case]
    template = "{{ tools or '' }}{% for m in messages %}{{ m.content }}{% endfor %}<|im_start|>assistant\n"
    form = format_of_template(compiled(template), template, LFM_TOKENS)
    assert (form.parser.name, form.is_known) == ("lfm", True)
    vocabulary = Tokens(LFM_TOKENS)
    options = GenerationOptions(enable_thinking=bool(thought))
    builder = ReplyBuilder(vocabulary, options, form.parser, functions=FUNCTIONS, inside_reasoning=bool(thought))
    found = [each for token in vocabulary.cut(reply, letters=letters) for each in builder.feed(token)]
    found += builder.finish(GenerationFinishReason.STOP, STATS)
    assert summary(found) == ("", thought, [LeapFunctionCall("get_weather", {"city": "Paris", "days": 3})], 0)


ORDINARY = {
    "a parenthesis": SECTION + "{{ '(' }}" + EACH + "{{ f.name + ' ' + (f.arguments | tojson) }}"
    "{{ ', ' if not loop.last }}{% endfor %}{{ ')' }}{% endif %}",
    "a list": SECTION
    + "{{ '[' }}"
    + EACH
    + "{{ '{\"fn\": \"' + f.name + '\", \"kwargs\": ' + (f.arguments | tojson) + '}'"
    " }}{{ ', ' if not loop.last }}{% endfor %}{{ ']' }}{% endif %}",
    "an action": EACH + "{{ 'Action: ' + f.name + '\nAction Input: ' + (f.arguments | tojson) + '\n' }}{% endfor %}",
    **{
        f"{mark} before": EACH + "{{ '" + mark + " ' + f.name + ' ' + (f.arguments | tojson) + '\n' }}{% endfor %}"
        for mark in ("#", "$", "@", "<", "Calling", "Tool:")
    },
    "a code block": EACH
    + "{{ '```json\n{\"fn\": \"' + f.name + '\", \"kwargs\": ' + (f.arguments | tojson) + '}\n```' }}"
    "{% endfor %}",
}
ANSWER = (
    "Paris (the capital), [1] and {2}.\n# Price\n$5 @home, 1 < 2. Calling all. Tool: a hammer.\n"
    "Action: none.\n> Thought: end.\n---\n```json\n{}\n```\nThe end"
)


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_text_is_not_learned_as_a_marker(name: str):
    form = learned(Unseen(ORDINARY[name], ("> ", "\\n---\\n")).template)
    assert not form.is_known
    for functions in (FUNCTIONS, ()):
        for pieces in (None, list(ANSWER)):
            assert summary(read(form, ANSWER, pieces, functions=functions)) == (ANSWER, "", [], 0)


def test_a_token_can_begin_calls():
    template = Unseen(ORDINARY["@ before"]).template
    assert format_of_template(compiled(template), template, ("@",)).is_known


@pytest.mark.parametrize("name", LEARNED)
def test_call_markers_are_text_without_functions(name: str):
    form = learned(LEARNED[name].template)
    answer = f"Write {form.parser.start_marker}this{form.parser.end_marker}."
    for pieces in (None, list(answer)):
        assert summary(read(form, answer, pieces, functions=())) == (answer, "", [], 0)


def test_a_word_that_ends_calls_is_text_elsewhere():
    form = learned(Unseen(EACH + "{{ '<do>' + f.name + ' ' + (f.arguments | tojson) + ' end' }}{% endfor %}").template)
    assert form.is_known and form.parser.end_marker == "end"
    for reply, calls in (("In the end.", []), ("<do>ping {} end", [LeapFunctionCall("ping", {})])):
        for pieces in (None, list(reply)):
            assert summary(read(form, reply, pieces)) == ("" if calls else reply, "", calls, 0)


@pytest.mark.parametrize("start", ["", "{% if tools %}{% endif %}"])
def test_a_template_without_a_marker_before_reasoning(start: str):
    template = start + "{{ messages[-1].reasoning_content or '' }}</think>{{ messages[-1].content or '' }}"
    assert not learned(template).is_known
    assert (name_of_format(template, ()) is None) is (not start)


@pytest.mark.parametrize("method", ["__init__", "reads", "learn", "reasoning"])
def test_a_template_that_cannot_be_learned_still_loads(method: str, monkeypatch: pytest.MonkeyPatch):
    def fails(*given: object) -> None:
        raise IndexError(method)

    monkeypatch.setattr(learning.Probe, method, fails)
    monkeypatch.setattr(learning, "_kept", {})
    unknown = learned(UNSEEN["an object in a tag"].template)
    assert (unknown.parser.name, unknown.is_known) == ("json", False)
    table = learned(UNSEEN["an object in a tag"].template.replace("fn_call", "tool_call"))
    assert (table.parser.name, table.is_known) == ("hermes", True)


def test_a_slow_template_is_not_learned(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(learning, "MOST_SECONDS", -1)
    monkeypatch.setattr(learning, "_kept", {})
    assert not learned(UNSEEN["an object in a tag"].template).is_known


@pytest.mark.parametrize("filling", ["a", ")", "<", "a-", "{", "<a> "])
@pytest.mark.parametrize("call", ["{{ f.name + '(qzkeya=\"qzvala\")' }}", "{{ f.name + (f.arguments | tojson) }}"])
def test_long_template_output_is_not_read(filling: str, call: str, monkeypatch: pytest.MonkeyPatch):
    lengths: list[int] = []
    calls_in = learning._calls_in

    def counted(text: str, parser: DialectParser) -> object:
        lengths.append(len(text))
        return calls_in(text, parser)

    monkeypatch.setattr(learning, "_calls_in", counted)
    for size in (100, 50_000):
        template = Unseen(EACH + call + "{{ '" + filling + "' * " + str(size) + " }}{% endfor %}").template
        form = learned(template)
    assert not form.is_known and lengths and max(lengths) <= learning.MOST_WRITTEN


def test_a_cached_format_survives_eviction_of_others(monkeypatch: pytest.MonkeyPatch):
    class Forgetful(dict[bytes, ReplyFormat]):
        def __setitem__(self, key: bytes, value: ReplyFormat) -> None:
            self.clear()

    monkeypatch.setattr(learning, "_kept", Forgetful())
    assert learned(UNSEEN["an object in a tag"].template).is_known


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["required", "get_weather"])
@pytest.mark.parametrize("name", LEARNED)
def test_required_calls_are_made(name: str, choice: str, tmp_path: Path):
    path = write_random_model(tmp_path / "m.gguf", TINY_LLAMA)
    template = replace(LEARNED[name], opens=False).template  # a random model would think on
    loading = ModelLoadingOptions(chat_template=template, context_size=2048)
    parameters = {"type": "object", "properties": {"city": {"enum": ["Paris"]}}, "required": ["city"]}
    function = LeapFunction.from_openai({"name": "get_weather", "parameters": parameters})
    with InProcessRunner(Path(path), "m", loading) as runner:
        conversation = runner.create_conversation()
        conversation.register_function(function)
        options = GenerationOptions(max_tokens=300, tool_choice=choice)
        end = last_of(conversation.generate_response(ChatMessage("user", "Hi"), options))
    calls = end.full_message.function_calls or []
    assert calls and all((call.name, call.arguments) == ("get_weather", {"city": "Paris"}) for call in calls)

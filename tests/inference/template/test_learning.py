"""Formats of calls and reasoning that are learned from a chat template."""

from __future__ import annotations

import random
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
from leap_core.inference.template.chat_template import ChatTemplate
from leap_core.inference.template.learning import ReplyFormat, format_of_template, name_of_format
from leap_core.inference.template.reply import ReplyBuilder
from leap_core.schemas.grammar_matcher import byte_tokenizer

from ...support.growth import check_growth
from ...support.random_models import TINY_LLAMA, write_random_model
from ...support.raw_replies import STATS, Tokens
from .unseen_templates import UNSEEN, Unseen

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
    form: ReplyFormat, reply: str, pieces: list[str] | None = None, *, inside: bool = False
) -> list[MessageResponse]:
    vocabulary = Tokens(())
    builder = ReplyBuilder(
        vocabulary, GenerationOptions(enable_thinking=True), form.parser, functions=FUNCTIONS, inside_reasoning=inside
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
def test_what_can_be_read_is_known(name: str):
    assert learned(UNSEEN[name].template).is_known is UNSEEN[name].is_learned


@pytest.mark.parametrize("calls", CALLS, ids=["one", "types", "none", "three"])
@pytest.mark.parametrize("name", LEARNED)
def test_calls_of_templates_that_nobody_has_seen(name: str, calls: list[LeapFunctionCall]):
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
def test_a_reply_of_a_format_that_is_not_known_has_a_warning(name: str, tmp_path: Path):
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


def test_what_models_info_says_of_calls():
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
def test_what_is_forced_is_read(name: str):
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

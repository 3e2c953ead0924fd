"""Chat templates: the prompt's exact text, users' special tokens defused, hostile templates contained."""

from __future__ import annotations

import itertools

import pytest

from leap_core.conversation.calls import LeapFunction
from leap_core.conversation.messages import ChatMessage, Image, LeapFunctionCall, Text
from leap_core.errors import LeapGenerationError, LeapModelLoadingError
from leap_core.inference.template.chat_template import SEAMS, ChatTemplate

SPECIALS = ["<|im_start|>", "<|im_end|>", "<|tool_call_start|>", "<|tool_call_end|>", "<think>", "</think>"]
CHATML = (
    "{{- bos_token -}}{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)


class Parser:
    name, start_marker, end_marker = "test", "<|tool_call_start|>", "<|tool_call_end|>"

    def parse(self, body: str) -> list[LeapFunctionCall]:
        raise NotImplementedError

    def dump(self, calls: list[LeapFunctionCall]) -> str:
        return "".join(f"{self.start_marker}{call.name}({call.arguments['text']}){self.end_marker}" for call in calls)


def template(source: str = CHATML, specials: list[str] = SPECIALS) -> ChatTemplate:
    return ChatTemplate(source, bos_text="<s>", eos_text="</s>", special_texts=specials)


def test_a_conversation_renders_to_one_piece() -> None:
    messages = [ChatMessage("system", "Be brief."), ChatMessage("user", "Hi")]
    assert template().render(messages) == [
        "<s><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    ]


@pytest.mark.parametrize("special", SPECIALS)
def test_a_special_token_typed_by_a_user_is_split(special: str) -> None:
    text = f"a {special}{special} b{special}"
    pieces = template().render([ChatMessage("user", text)])
    assert "".join(pieces) == "".join(template(specials=[]).render([ChatMessage("user", text)]))
    own = "<s><|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n"
    assert sum(piece.count(special) for piece in pieces) == own.count(special)


def test_overlapping_special_tokens_are_split() -> None:
    pieces = template(specials=["ab", "bc", "abc"]).render([ChatMessage("user", "xabcabc")])
    assert not any(special in piece for piece in pieces for special in ("ab", "bc"))
    assert "xabcabc" in "".join(pieces)


def test_a_message_may_contain_a_noncharacter() -> None:
    for used in (SEAMS[0], SEAMS[:3]):
        pieces = template().render([ChatMessage("user", f"{used}<|im_end|>")])
        assert f"{used}<|im_end|>" in "".join(pieces)
        assert len(pieces) == 2
    with pytest.raises(LeapGenerationError, match="noncharacters"):
        template().render([ChatMessage("user", SEAMS)])


def test_calls_are_written_as_the_model_would_where_the_template_has_no_field() -> None:
    call = LeapFunctionCall("f", {"text": "x<|tool_call_end|>y"})
    pieces = template().render(
        [ChatMessage("user", "go"), ChatMessage("assistant", "Well:", function_calls=[call])], parser=Parser()
    )
    text = "".join(pieces)
    assert "Well:<|tool_call_start|>f(x<|tool_call_end|>y)<|tool_call_end|><|im_end|>" in text
    assert sum(piece.count("<|tool_call_end|>") for piece in pieces) == 1


def test_calls_use_the_field_of_the_template() -> None:
    source = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}"
        "{{ c.function.name }}={{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    )
    call = LeapFunctionCall("f", {"a": "ü"})
    assert template(source).render([ChatMessage("assistant", function_calls=[call])]) == ['f={"a": "ü"}']


def test_reasoning_is_passed_to_the_template() -> None:
    message = ChatMessage("assistant", "4", reasoning_content="2+2</think>")
    assert "2+2" not in "".join(template().render([message]))  # it has no place for it
    splits = "{% for m in messages %}{{ m.content.split('</think>')[-1] if loop.last else m.content }}{% endfor %}"
    assert "".join(template(splits).render([message, message])) == "<think>2+2</think></think>44"
    field = template("{% for m in messages %}[{{ m.thinking }}]{{ m.content }}{% endfor %}")
    assert "".join(field.render([message])) == "[2+2</think>]4"


def test_tools_are_rendered_by_tojson_without_escaping() -> None:
    class Function:
        name = "f"

        def to_json_object(self) -> dict[str, object]:
            return {"name": "f", "description": "<b> & é"}

    rendered = template("{{ tools | tojson }}").render([ChatMessage("user", "x")], [Function()])  # type: ignore[list-item]
    assert rendered == ['[{"name": "f", "description": "<b> & é"}]']


def test_tojson_follows_its_arguments() -> None:
    source = "{{ {'b': 1, 'a': ['é']} | tojson(separators=(',', ':'), sort_keys=true, ensure_ascii=true) }}"
    assert template(source).render([]) == ['{"a":["\\u00e9"],"b":1}']


def test_the_generation_tag_and_loop_controls_work() -> None:
    source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}"
    assert template(source).render([ChatMessage("user", "x"), ChatMessage("user", "y")]) == ["x"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('only users') }}",
        "{{ messages[0].nothing.more }}",
        "{{ 1 / 0 }}",
        "{{ 'x' * 99999999999 }}",
        "{{ 'x' * 9999999 * 9999999 }}",
        "{{ 9 ** 9 ** 9 ** 9 }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ '%s' | format(1, 2) }}",
    ],
)
def test_a_hostile_template_is_an_error(source: str) -> None:
    with pytest.raises(LeapGenerationError, match="chat template"):
        template(source).render([ChatMessage("user", "x")])


@pytest.mark.parametrize("source", ["{% for %}", "{{", "{% unknown %}", "{{ 1 + }}"])
def test_a_broken_template_is_a_loading_error(source: str) -> None:
    with pytest.raises(LeapModelLoadingError, match="does not compile"):
        template(source)


def test_media_are_at_their_positions_in_the_messages() -> None:
    picture, other = Image(b"\xff\xd8\xff\xe0"), Image(b"\xff\xd8\xff\xe1")
    first = ChatMessage("user", [picture, Text("What is <|im_"), Text("end|> this?")])
    pieces = template().render([first, ChatMessage("assistant", "A cat."), ChatMessage("user", [Text("And"), other])])
    assert [piece for piece in pieces if isinstance(piece, Image)] == [picture, other]
    at = pieces.index(picture)
    assert str(pieces[at - 1]).endswith("<|im_start|>user\n") and str(pieces[at + 1]).startswith("What is <")
    text = "".join(piece for piece in pieces if isinstance(piece, str))
    assert "What is <|im_end|> this?<|im_end|>" in text and not any(mark in text for mark in SEAMS)
    assert not any("<|im_end|> this" in piece for piece in pieces if isinstance(piece, str)), "what was typed is cut"


def test_a_template_that_drops_or_repeats_media_is_an_error() -> None:
    message = ChatMessage("user", [Image(b"\xff\xd8\xff\xe0"), Text("What is this?")])
    for source in ("{{ messages[0].role }}", "{{ messages[0].content }}{{ messages[0].content }}"):
        with pytest.raises(LeapGenerationError, match="leaves out a picture or a sound"):
            template(source).render([message])


def test_seams_are_unicode_noncharacters() -> None:
    assert all(0xFDD0 <= ord(seam) <= 0xFDEF for seam in SEAMS)
    assert len(set(itertools.chain(SEAMS))) == len(SEAMS)


USER = ChatMessage("user", "What is it?")
CALLED = [
    USER,
    ChatMessage("assistant", "", function_calls=[LeapFunctionCall("f", {"a": 1})]),
    ChatMessage("tool", "21", tool_call_id="call_0"),
]


def test_a_template_that_needs_typed_parts_gets_them() -> None:
    """As those of SmolVLM and Idefics do."""
    source = (
        "{% for m in messages %}{{ m.role }}:{% for part in m['content'] %}"
        "{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %};{% endfor %}"
    )
    assert template(source).render([ChatMessage("system", "Be brief."), USER]) == ["system:Be brief.;user:What is it?;"]


def test_a_template_that_needs_arguments_as_text_gets_them() -> None:
    """As DeepSeek's do, which also show calls only where there is no content."""
    source = (
        "{% for m in messages %}{% if m['content'] is none %}{% for c in m.tool_calls %}"
        "{{ c.function.name + '(' + c.function.arguments + ')' }}{% endfor %}{% else %}{{ m.content }};{% endif %}"
        "{% endfor %}"
    )
    assert template(source).render(CALLED) == ['What is it?;f({"a": 1})21;']


def test_a_template_that_needs_short_ids_gets_them() -> None:
    """As Mistral's do."""
    source = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}"
        "{{ raise_exception('ids have 9 characters') }}{% endif %}{{ c.id }}={{ c.function.arguments | tojson }};"
        "{% endfor %}{% if m.role == 'tool' %}{{ m.tool_call_id }}={{ m.content }}{% endif %}{% endfor %}"
    )
    (text,) = template(source).render(CALLED)
    call, result = text.split(";")
    assert call.split("=")[0] == result.split("=")[0] and result.endswith("=21")


def test_ids_are_escaped_like_text() -> None:
    source = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.id }}{% endfor %}{{ m.tool_call_id }}{% endfor %}"
    )
    history = [
        USER,
        ChatMessage("assistant", "", function_calls=[LeapFunctionCall("f", {}, "<|im_end|>")]),
        ChatMessage("tool", "1", tool_call_id="<|im_end|>"),
    ]
    pieces = template(source).render(history)
    assert "".join(pieces) == "<|im_end|>" * 2 and not any("<|im_end|>" in piece for piece in pieces)


def test_a_template_without_system_prompt_gets_it_in_the_first_question() -> None:
    """As Gemma's do."""
    source = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
    )
    known = template(source)
    assert known.render([ChatMessage("system", "Be brief."), USER]) == ["user:Be brief.\n\nWhat is it?;"]
    with pytest.raises(LeapGenerationError, match="System role not supported"):
        known.render([ChatMessage("system", "Be brief.")])


def test_an_assistants_text_at_the_end_opens_the_reply() -> None:
    """The template closed it as a turn of its own and the model said it again: clients that join the two had it
    twice."""
    messages = [ChatMessage("user", "Capital of France?"), ChatMessage("assistant", "The capital is <|im_end|>")]
    opened = "<s><|im_start|>user\nCapital of France?<|im_end|>\n<|im_start|>assistant\nThe capital is <|im_end|>"
    pieces = template().render(messages)
    assert "".join(pieces) == opened and len(pieces) == 2, "what was typed stays text"
    calling = ChatMessage("assistant", "Wait.", function_calls=[LeapFunctionCall("f", {"text": "x"})])
    for closed in (ChatMessage("assistant", ""), calling):
        rendered = template().render([messages[0], closed], parser=Parser())
        assert "".join(map(str, rendered)).endswith("<|im_start|>assistant\n")


def test_a_template_that_cannot_show_an_opened_reply_refuses_it() -> None:
    lossy = "{%- for m in messages if m.role == 'user' -%}{{- m.content -}}{%- endfor -%}"
    with pytest.raises(LeapGenerationError, match="cannot render an unfinished answer"):
        template(lossy).render([ChatMessage("user", "Hi"), ChatMessage("assistant", "Hello")])


@pytest.mark.parametrize("word", ["functools", "You can use tools", "functools and tools"])
def test_a_template_that_reads_functions_gets_them_whatever_else_it_says(word: str) -> None:
    """Firefunction's writes "functools" before calls, and was taken for one that reads ``tools``."""
    source = CHATML + "{{ '" + word + "' if functions|length else '' }}{{ functions }}"
    function = LeapFunction("light", "Switch a light")
    made = template(source)
    assert made.renders_functions
    assert '"name": "light"' in "".join(map(str, made.render([ChatMessage("user", "Hi")], [function])))
    both = template("{% if tools %}{{ tools }}{% elif functions is defined %}{{ functions }}{% endif %}")
    assert "light" in "".join(map(str, both.render([ChatMessage("user", "Hi")], [function])))
    assert not template(CHATML + "{{ '" + word + "' }}{# functions #}").renders_functions


TURNS = "{%- for m in messages -%}[{{ m.role }}:{{ m.content }}]{%- endfor -%}"
LAST_SYSTEM = (
    "{%- for m in messages if m.role == 'system' -%}"
    "{%- if loop.last -%}[system:{{ m.content }}]{%- endif -%}{%- endfor -%}"
    "{%- for m in messages if m.role != 'system' -%}[{{ m.role }}:{{ m.content }}]{%- endfor -%}"
)
FIRST_SYSTEM = (
    "{%- if messages[0].role == 'system' -%}[system:{{ messages[0].content }}]"
    "{%- set messages = messages[1:] -%}{%- endif -%}"
    "{%- for m in messages -%}{%- if m.role == 'system' -%}{{- raise_exception('not here') -}}{%- endif -%}"
    "[{{ m.role }}:{{ m.content }}]{%- endfor -%}"
)
SYSTEMS = {
    ("system", "system", "user"): "[system:0\n\n1][user:2]",
    ("system", "user", "system", "user"): "[system:0\n\n2][user:1][user:3]",
    ("user", "system"): "[system:1][user:0]",
    ("system", "user"): "[system:0][user:1]",
}


def conversation(*roles: str) -> list[ChatMessage]:
    return [ChatMessage(role, str(n)) for n, role in enumerate(roles)]


@pytest.mark.parametrize("source", [LAST_SYSTEM, FIRST_SYSTEM])
def test_no_system_message_is_left_out(source: str) -> None:
    for roles, joined in SYSTEMS.items():
        assert template(source).render(conversation(*roles)) == [joined]
        in_turn = "".join(f"[{role}:{n}]" for n, role in enumerate(roles))
        assert template(TURNS).render(conversation(*roles)) == [in_turn]


def test_a_template_that_needs_alternating_turns_gets_joined_questions() -> None:
    source = (
        "{%- for m in messages -%}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}"
        "{{- raise_exception('roles must alternate') -}}{%- endif -%}[{{ m.role }}:{{ m.content }}]{%- endfor -%}"
    )
    assert template(source).render(conversation("user", "user", "assistant", "user")) == [
        "[user:0\n\n1][assistant:2][user:3]"
    ]


def test_a_template_gets_the_values_that_it_reads() -> None:
    source = "{{ reasoning_effort | default('none') }} {{ thinking }} {{ tools }} {{ messages[0].content }}"
    values = {"reasoning_effort": "low", "other": 1, "tools": "mine", "messages": []}
    shown = template(source).render([ChatMessage("user", "Hi")], enable_thinking=True, kwargs=values)
    assert shown == ["low True None Hi"]
    assert template(source).render([ChatMessage("user", "Hi")]) == ["none False None Hi"]
    typed = template("{{ style.a[0] }}{{ messages[0].content }}").render(
        [ChatMessage("user", "Hi")], kwargs={"style": {"a": ["<|im_end|>"]}}
    )
    assert typed == ["<", "|im_end|>Hi"]


def test_the_result_of_a_tool_has_the_name_of_its_call() -> None:
    source = "{%- for m in messages if m.role == 'tool' -%}{{ m.name }}={{ m.content }};{%- endfor -%}{# tool_calls #}"
    calls = [LeapFunctionCall("look", {}, "a"), LeapFunctionCall("find", {}, "b")]
    asked = ChatMessage("assistant", "", function_calls=calls)
    results = [ChatMessage("tool", "2", tool_call_id="b"), ChatMessage("tool", "1", tool_call_id="a")]
    assert template(source).render([ChatMessage("user", "x"), asked, *results]) == ["find=2;look=1;"]
    assert template(source).render([ChatMessage("user", "x"), asked, ChatMessage("tool", "2")]) == ["find=2;"]


def test_text_beside_reasoning_and_calls_is_reasoning_where_the_template_refuses_it() -> None:
    source = (
        "{%- for m in messages -%}{%- if m.tool_calls and m.content and m.thinking -%}"
        "{{- raise_exception('not both') -}}{%- endif -%}[{{ m.thinking }}|{{ m.content }}]{%- endfor -%}"
    )
    call = ChatMessage("assistant", "I look.", "Hm.", [LeapFunctionCall("look", {})])
    assert template(source).render([call, ChatMessage("user", "x")]) == ["[Hm.\n\nI look.|][|x]"]


def test_a_template_may_append_to_its_lists() -> None:
    source = (
        "{%- set names = [] -%}{%- for m in messages -%}{%- set _ = names.append(m.content) -%}{%- endfor -%}"
        "{{ names|join }}"
    )
    assert template(source).render(conversation("user", "assistant", "user")) == ["012"]
    with pytest.raises(LeapGenerationError):
        template("{{ messages[0].update({'a': 1}) }}").render([ChatMessage("user", "x")])


def test_names_of_calls_and_results_cannot_form_special_tokens():
    """A name comes from a client's history: a special token in it would begin another turn."""
    source = (
        "{%- for m in messages -%}{%- for c in m.tool_calls or [] -%}{{ c.function.name }};{%- endfor -%}"
        "{{ m.name }};{{ m.content }}{%- endfor -%}"
    )
    template = ChatTemplate(source, bos_text="", eos_text="", special_texts=["<|im_end|>"])
    call = LeapFunctionCall("f<|im_end|>g", {}, "1")
    messages = [
        ChatMessage("assistant", "", function_calls=[call]),
        ChatMessage("tool", "done", tool_call_id="1"),
    ]
    pieces = template.render(messages)
    assert "".join(map(str, pieces)).count("<|im_end|>") == 2
    assert not [piece for piece in pieces if "<|im_end|>" in str(piece)]

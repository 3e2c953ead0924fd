"""Hostile templates end within their budget, in an answer or a LeapError; ordinary ones do not notice it.

The whole list runs with ``python scripts/torture_text.py templates``; here every 36th, and every ninth as a long test.
"""

from __future__ import annotations

import pytest

from leap_core.conversation.calls import LeapFunction, LeapFunctionCall
from leap_core.conversation.messages import ChatMessage
from leap_core.errors import LeapError, LeapGenerationError, LeapModelLoadingError
from leap_core.inference.template.chat_template import ChatTemplate
from tests.support.lengths import usually

from .hostile_templates import SINGLE, hostile_templates

MESSAGES = [ChatMessage("system", "Be brief."), ChatMessage("user", "Hello " * 20)]
ALL = hostile_templates()


def template_of(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos_text="<s>", eos_text="</s>", special_texts=["<s>", "</s>"])


def test_there_are_enough_hostile_templates():
    assert len(ALL) >= 300 and len({text for _, text in ALL}) >= 290


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), usually(ALL[9::36], ALL[::9]), ids=[name for name, _ in ALL[::9]])
def test_a_hostile_template_takes_bounded_time(name: str, text: str):
    """What is not bounded takes minutes and more, and the time of a test is."""
    try:
        template_of(text).render(MESSAGES)
    except LeapError as error:
        assert len(error.message) < 500 and "\n" not in error.message


@pytest.mark.parametrize("text", [each for each in SINGLE if "__" in each])
def test_no_template_escapes_the_sandbox(text: str):
    try:
        shown = template_of(text).render(MESSAGES)
    except LeapError:
        return
    assert not any("object" in piece or "environ" in piece for piece in shown if isinstance(piece, str))


@pytest.mark.parametrize("text", ["{% break %}", "{{ 'abcdef'|truncate(1) }}", "{{ " + "9" * 10_000 + " }}"])
def test_errors_of_pythons_compiler_or_a_filter_are_template_errors(text: str):
    with pytest.raises((LeapModelLoadingError, LeapGenerationError), match="the chat template"):
        template_of(text).render(MESSAGES)


def test_a_long_conversation_is_within_the_limits():
    template = template_of(
        "{% for m in messages %}{% set text = m.content.split('</think>')[-1].lstrip() %}"
        "<|{{ m.role }}|>{{ text | trim }}{{ '\n' if not loop.last else '' }}{% endfor %}{{ loop_count }}"
    )
    messages = [ChatMessage("user", "word " * 4000)] * 200
    (text,) = template.render(messages)
    assert len(text) > 3_900_000


def test_a_template_that_iterates_over_no_tools_is_given_an_empty_list():
    template = template_of("{% for tool in tools %}{{ tool }}{% endfor %}{{ messages[-1].content }}")
    assert template.render(MESSAGES) == ["Hello " * 20]


def test_a_template_that_needs_text_beside_a_call_gets_an_empty_one():
    template = template_of(
        "{% for m in messages %}{% if m.content is none and false %}{% endif %}{{ m.role + ':' + m.content }};"
        "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{% endfor %}"
    )
    called = ChatMessage("assistant", "", function_calls=[LeapFunctionCall("f", {})])
    assert template.render([ChatMessage("user", "go"), called])[0] == "user:go;assistant:;f"


def test_a_template_that_reads_functions_gets_them_as_text():
    template = template_of("{{ functions }}|{{ messages[-1].content }}")
    function = LeapFunction("f", "does", ())
    (text,) = template.render([ChatMessage("user", "go")], [function])
    assert '"name": "f"' in text and template.renders_functions

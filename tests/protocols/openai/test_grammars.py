"""The field ``grammar`` of a body, in llama.cpp's notation or Lark's: it shapes the answer, or is refused."""

from __future__ import annotations

import pytest

from leap_core.errors import LeapSerializationError
from leap_core.inference.constraints.compiling import lark_matcher
from leap_core.protocols.openai.fields import BodyFields, read_parameters
from leap_core.schemas.grammar_matcher import byte_tokenizer

GBNF = 'root ::= answer "!"\nanswer ::= "yes" | "no"\n'


def grammar_of(value: object) -> str:
    return str(read_parameters(BodyFields({"grammar": value}))["grammar_constraint"])


@pytest.mark.parametrize("grammar", [GBNF, 'start: ("yes" | "no") "!"\n'], ids=["gbnf", "lark"])
@pytest.mark.parametrize(("text", "fits"), [("yes!", True), ("no!", True), ("maybe", False), ("yes?", False)])
def test_a_grammar_shapes_the_answer(grammar, text, fits):
    _, matcher = lark_matcher(grammar_of(grammar), byte_tokenizer())
    assert (matcher.try_consume_tokens(list(text.encode())) == len(text)) is fits


@pytest.mark.parametrize("value", [5, ["root"], "root ::= (", "root ::= nothing"])
def test_what_is_no_grammar_is_refused(value):
    with pytest.raises(LeapSerializationError) as caught:
        grammar_of(value)
    assert caught.value.path == "grammar"

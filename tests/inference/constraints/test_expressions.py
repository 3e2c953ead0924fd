"""One meaning of ``\\d``, ``\\w`` and ``\\s`` in every way that an expression comes in, and one bound on its size."""

from __future__ import annotations

import pytest

from leap_core.conversation.options import GenerationOptions
from leap_core.errors import LeapSchemaError
from leap_core.inference.constraints.compiling import _shape
from leap_core.inference.constraints.token_constraints import CompiledConstraint
from leap_core.inference.llama.model import LlamaModel
from leap_core.models.builtin import model_path
from leap_core.schemas.expressions import matches
from leap_core.schemas.grammar_matcher import tokenizer_of


@pytest.fixture(scope="module")
def vocabulary():
    model = LlamaModel(model_path())
    yield model
    model.close()


def shape_of(vocabulary, **options) -> CompiledConstraint:
    shape = _shape(GenerationOptions(**options), vocabulary)
    assert shape is not None
    return shape


def may_be_written(vocabulary, shape: CompiledConstraint, text: str) -> bool:
    tokens = tokenizer_of(vocabulary).tokenizer.tokenize_str(text)
    matcher = shape.constraint._matcher.deep_copy()
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


CASES = [
    (r"\d{4}-\d{2}-\d{2}", "2026-11-25", "\u0662\u0660\u0662\u0666-11-25"),
    (r"\w+", "ab_1", "\u00e9"),
    (r"[\w.-]+@\w+", "a.b-c@x", "\u00e9@x"),
    (r"a\sb", "a\tb", "a\u2003b"),
    (r"\D+", "ab", "1"),
    (r"[^\d]", "x", "3"),
    (r"\p{Nd}", "\u0662", "x"),
]


@pytest.mark.parametrize(("pattern", "good", "bad"), CASES)
def test_classes_are_those_of_ascii_unless_a_property_is_asked_for(vocabulary, pattern, good, bad):
    for given in ({"regex_constraint": pattern}, {"grammar_constraint": f"start: /{pattern}/ // \\d"}):
        shape = shape_of(vocabulary, **given)
        assert may_be_written(vocabulary, shape, good) and not may_be_written(vocabulary, shape, bad), given
        assert shape.validate(good) == [] and shape.validate(bad)


def test_whitespace_of_a_schema_is_that_of_ecmascript():
    assert matches(r"^\s$", "\u2003") and matches(r"^\s$", "\ufeff") and not matches(r"^\s$", "\u200b")
    assert matches(r"^\S$", "\u200b") and not matches(r"^\S$", "\u2003")


@pytest.mark.parametrize("pattern", ["a{20001}", "(a{1000}){1000}", "((((a{50}){50}){50}){50})", "a" * 20_001])
def test_the_size_limit_holds_for_each_kind_of_expression(vocabulary, pattern, capfd):
    for given in ({"regex_constraint": pattern}, {"grammar_constraint": f"start: /{pattern}/"}):
        with pytest.raises(LeapSchemaError, match="more than"):
            shape_of(vocabulary, **given)
    assert capfd.readouterr() == ("", "")


def test_thousands_of_choices_compile(vocabulary, capfd):
    choices = [f"label {n}" for n in range(3000)]
    shape = shape_of(vocabulary, choices_constraint=choices)
    assert may_be_written(vocabulary, shape, "label 2999") and may_be_written(vocabulary, shape, "label 29")
    assert not may_be_written(vocabulary, shape, "label 3000")
    assert capfd.readouterr() == ("", "")

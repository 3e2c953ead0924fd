"""Recipes, masks, merges and probabilities."""

from __future__ import annotations

import math
import random

import pytest

from leap_core import Leap
from leap_core.errors import LeapOptionsError
from leap_core.messages import ChatMessage
from leap_core.options import GenerationOptions
from leap_core.responses import Complete
from leap_core.tasks.extraction import all_optional, fields_of_schema, merged, pieces_that_fit
from leap_core.tasks.masking import mask, unmask
from leap_core.tasks.recipe import read_recipe, recipes
from leap_core.tasks.scoring import option_logprobs, probabilities

CARDS = [
    ("translate", "LFM2-350M-ENJP-MT-Q4_0", {"language": "Japanese"}, "Translate to Japanese."),
    ("translate", "LFM2-350M-ENJP-MT", {"language": "English"}, "Translate to English."),
    (
        "summarize",
        "LFM2-2.6B-Transcript",
        {},
        "You are an expert meeting analyst. Analyze the transcript carefully\n"
        "and provide clear, accurate information based on the content.",
    ),
    (
        "extract",
        "LFM2-1.2B-Extract",
        {"fields": '- field_name: "Description of what to extract"\n- nested_object:\n  - nested_field: "Description"'},
        "Identify and extract information matching the following schema.\n"
        "Return data as a JSON object. Missing data should be omitted.\n\n"
        'Schema:\n- field_name: "Description of what to extract"\n- nested_object:\n  - nested_field: "Description"',
    ),
    (
        "redact",
        "LFM2-350M-PII-Extract-JP",
        {"categories": "<address>, <company_name>, <email_address>, <human_name>, <phone_number>"},
        "Extract <address>, <company_name>, <email_address>, <human_name>, <phone_number>",
    ),
]


@pytest.mark.parametrize(("task", "model", "values", "system"), CARDS, ids=[f"{c[0]} {c[1]}" for c in CARDS])
def test_a_nano_is_asked_in_the_words_of_its_card(task: str, model: str, values: dict, system: str):
    messages = read_recipe(task).wording_for(model).messages({**values, "text": "{fields} stay", "kind": "K"})
    assert messages[0].text == system and "{fields} stay" in messages[1].text


def test_fields_are_written_as_the_card_does():
    schema = {
        "properties": {
            "field_name": {"type": "string", "description": "Description of what to extract"},
            "nested_object": {"properties": {"nested_field": {"description": "Description"}}},
        }
    }
    assert fields_of_schema(schema) == CARDS[3][2]["fields"]
    assert all_optional({**schema, "required": ["field_name"]}).get("required") is None


def test_the_six_instructions_of_the_transcript_model():
    kinds = read_recipe("summarize").kinds
    assert list(kinds) == ["executive", "detailed", "actions", "decisions", "participants", "topics"]
    assert kinds["actions"] == "List the specific action items assigned during this meeting."


def test_a_recipe_of_the_user_comes_first(tmp_path):
    (tmp_path / "translate.toml").write_text('[[wording]]\nmodels = ["*"]\nsystem = "Mine"\n')
    (tmp_path / "poem.toml").write_text('about = "Verse"\n[[wording]]\nmodels = ["LFM3*"]\n')
    assert read_recipe("translate", [tmp_path]).wordings[0].system == "Mine"
    assert "poem" in [recipe.name for recipe in recipes([tmp_path])]
    with pytest.raises(LeapOptionsError, match="no wording for the model x"):
        read_recipe("poem", [tmp_path]).wording_for("x")
    (tmp_path / "poem.toml").write_text("[[wording]]\nmodels = 5\n")
    with pytest.raises(LeapOptionsError, match="is no recipe"):
        read_recipe("poem", [tmp_path])
    with pytest.raises(LeapOptionsError, match="known are classify"):
        read_recipe("nosuch")


def test_no_entity_is_left_and_every_text_comes_back():
    chance = random.Random(4)
    for _ in range(2000):
        text = "".join(chance.choices("ab1[]_NAMEé \n", k=chance.randint(0, 40)))
        items = ["".join(chance.choices("ab1[]_NAMEé ", k=chance.randint(1, 4))) for _ in range(chance.randint(0, 6))]
        masked, masks = mask(text, {"name": items[:3], "phone_number": items[3:]})
        assert not any(item in masked for item in items) and unmask(masked, masks) == text


def test_masks_are_readable_where_they_can_be():
    masked, masks = mask("Ann met Bob. Ann left.", {"human_name": ["Ann", "Bob", "Zoe"]})
    assert masked == "[HUMAN_NAME_1] met [HUMAN_NAME_2]. [HUMAN_NAME_1] left."
    assert masks == {"[HUMAN_NAME_1]": "Ann", "[HUMAN_NAME_2]": "Bob"}


def test_pieces_are_merged_by_the_documented_rule():
    parts = [{"a": 1, "tags": ["x"], "in": {"p": 1}}, {"a": 2, "b": 3, "tags": ["x", "y"], "in": {"q": 2}}]
    assert merged(parts) == {"a": 1, "b": 3, "tags": ["x", "y"], "in": {"p": 1, "q": 2}}
    text = "One. Two.\n\nThree four five. " * 30
    pieces = pieces_that_fit(text, lambda piece: len(piece) <= 100)
    assert "".join(pieces) == text and max(map(len, pieces)) <= 100


def test_probabilities_are_those_of_the_tokens_one_by_one():
    with Leap.load("builtin", host="never") as runner:
        messages = [ChatMessage("user", "What is the capital of France?")]
        labels = ["Paris", "Berlin", "Rome"]
        logprobs = option_logprobs(runner, messages, labels, GenerationOptions())
        shares = probabilities(logprobs)
        assert sum(shares) == pytest.approx(1) and shares[0] == max(shares)
        *_, end = runner.start(messages, (), GenerationOptions(choices_constraint=["Berlin"], logprobs=True))
        assert isinstance(end, Complete)
        prefix, total = runner.render(messages).text, 0.0
        for each in end.logprobs:  # by hand: the probability of each token after the text so far
            *_, step = runner.start_text(prefix, GenerationOptions(max_tokens=1, temperature=0.0, top_logprobs=20))
            total += dict(step.logprobs[0].top).get(each.token, each.logprob)
            prefix += each.token.decode()
        assert logprobs[1] == pytest.approx(total, abs=1e-2) and math.exp(logprobs[1]) < 1

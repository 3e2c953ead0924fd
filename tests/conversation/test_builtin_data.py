"""The generator of the built-in model's dialogues: what the model learns is what leap sends, and what it is measured on
is not what it has learned."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import jsonschema
import pytest

from leap_core.conversation.calls import LeapFunction, LFMFunctionCallParser
from leap_core.inference.template.chat_template import ChatTemplate
from tests.support.lengths import usually

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts" / "builtin"
sys.path.insert(0, str(SCRIPTS))
try:
    import evaluate_builtin as evaluation
    from builtin_data.dialogue import Dialogue, render
    from builtin_data.skills import SKILLS, WEIGHTS, example
    from builtin_data.values import Values
finally:
    sys.path.remove(str(SCRIPTS))

OPENING = "<|im_start|>assistant\n"
MARKERS = ["<|im_start|>", "<|im_end|>", "<|startoftext|>"]


def learned_prompt(dialogue: Dialogue) -> str:
    text = "".join(piece for piece, _ in render(dialogue, past_thinking=False))
    return text[: text.rindex(OPENING)] + OPENING


def sent_prompt(template: ChatTemplate, dialogue: Dialogue) -> str:
    history = [evaluation.message("system", dialogue.system)] if dialogue.system else []
    history += [evaluation.message(turn.role, turn.content) for turn in dialogue.turns[:-1]]
    functions = [LeapFunction.from_openai(tool) for tool in dialogue.tools]
    return "".join(template.render(history, functions, parser=LFMFunctionCallParser()))


def is_as_leap_writes(dialogue: Dialogue) -> bool:
    """Training also sees declarations as other programs write them, and calls in another order of arguments."""
    declared = [tool.get("function", {}) for tool in dialogue.tools]
    return all("description" in function for function in declared) and not any(
        turn.content.count("=") > 1 for turn in dialogue.turns[:-1] if turn.content.startswith("<|tool_call_start|>")
    )


def answers(dialogue: Dialogue) -> list[str]:
    return [turn.content for turn in dialogue.turns if turn.role == "assistant"]


@pytest.mark.slow
@pytest.mark.parametrize("skill", SKILLS)
def test_training_prompts_equal_those_that_leap_sends(skill):
    source = (SCRIPTS / "builtin_data" / "template.jinja").read_text("utf-8")
    template = ChatTemplate(source, bos_text=MARKERS[2], eos_text=MARKERS[1], special_texts=MARKERS)
    dialogues = [example(skill, "eval", seed) for seed in range(30)]
    usual = [dialogue for dialogue in dialogues if is_as_leap_writes(dialogue)]
    assert len(usual) > 5
    for dialogue in usual:
        assert sent_prompt(template, dialogue) == learned_prompt(dialogue)


@pytest.mark.parametrize("skill", SKILLS)
def test_an_example_is_the_same_for_the_same_seed(skill):
    assert example(skill, "eval", 3) == example(skill, "eval", 3)
    assert any(example(skill, "eval", seed) != example(skill, "train", seed) for seed in range(20))


@pytest.mark.slow
@pytest.mark.parametrize("split", usually(["eval"], ["eval", "train"]))
@pytest.mark.parametrize("skill", ["extraction", "lists by a schema", "records of any kind"])
def test_every_answer_by_a_schema_is_one_that_the_schema_allows(skill, split):
    checked = 0
    for seed in range(300):
        dialogue = example(skill, split, seed)
        if evaluation.SCHEMA_INSTRUCTION in dialogue.system:
            schema = json.loads(dialogue.system.split(evaluation.SCHEMA_INSTRUCTION)[1])
            for answer in answers(dialogue):
                jsonschema.validate(json.loads(answer), schema)
                checked += 1
    assert checked > 100


def texts_in(value: object) -> list[str]:
    """The texts in a JSON value, those of numbers left out."""
    if isinstance(value, str):
        return [] if value.isdigit() else [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in inside for text in texts_in(part)]


@pytest.mark.slow
@pytest.mark.parametrize("split", usually(["eval"], ["eval", "train"]))
@pytest.mark.parametrize("skill", ["extraction", "lists by a schema", "records of any kind"])
def test_every_extracted_value_is_in_its_text(skill, split):
    checked = 0
    for seed in range(1000):
        turns = [turn.content for turn in example(skill, split, seed).turns]
        for said, answer in zip(turns[::2], turns[1::2], strict=True):
            if answer.startswith(("{", "[")):
                assert [text for text in texts_in(json.loads(answer)) if text not in said] == [], said
                checked += 1
    assert checked > 500


@pytest.mark.slow
@pytest.mark.parametrize("split", usually(["eval"], ["eval", "train"]))
@pytest.mark.parametrize("skill", ["calls", "calls among five or six", "tool answers"])
def test_every_call_is_one_that_its_declaration_allows(skill, split):
    checked = 0
    for seed in range(200):
        dialogue = example(skill, split, seed)
        declared = [tool.get("function", tool) for tool in dialogue.tools]
        parameters = {function["name"]: function["parameters"] for function in declared}
        for answer in answers(dialogue):
            for call in evaluation.message("assistant", answer).function_calls or ():
                jsonschema.validate(dict(call.arguments), parameters[call.name])
                checked += 1
    assert checked > 100


@pytest.mark.slow
@pytest.mark.parametrize("draw", ["first_name", "invented", "coined", "random_string", "code"])
def test_evaluation_examples_are_not_in_the_training_data(draw):
    drawn = {split: Values(random.Random(1), split) for split in ("train", "eval")}
    texts = {split: {getattr(values, draw)().lower() for _ in range(2000)} for split, values in drawn.items()}
    assert len(texts["eval"]) > 20 and not texts["train"] & texts["eval"]


def test_every_skill_that_is_measured_is_trained():
    assert set(SKILLS) - set(WEIGHTS) == {"counting to hundreds"}, "which has a share of its own"

"""What is built over the engine, on a trained model: schemas, choices, batches and sessions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from leap_core import ChatMessage, GenerationOptions
from leap_core.conversation.session_recorder import SessionRecorder
from leap_core.conversation.streams import last_of
from leap_core.inference.runner import InProcessRunner

from ..support.lengths import lengths
from .conftest import answers_of

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "languages": {"type": "array", "items": {"enum": ["de", "en", "fr"]}, "minItems": 1, "maxItems": 3},
        "married": {"type": "boolean"},
    },
    "required": ["name", "age", "languages", "married"],
    "additionalProperties": False,
}
SHAPES: dict[str, tuple[dict[str, object], Callable[[str], object]]] = {
    "schema": (
        {"json_schema_constraint": json.dumps(PERSON)},
        lambda text: jsonschema.validate(json.loads(text), PERSON),
    ),
    "choice": ({"choices_constraint": ["yes", "no", "perhaps"]}, lambda text: ["yes", "no", "perhaps"].index(text)),
    "expression": ({"regex_constraint": "[A-Z]{3}-[0-9]{4}"}, lambda text: int(text[4:])),
}


@lengths(2, 5)
@pytest.mark.parametrize("shape", SHAPES)
def test_constrained_answers_are_valid_at_any_temperature(runner: InProcessRunner, shape: str, rounds: int) -> None:
    given, check = SHAPES[shape]
    message = [ChatMessage("user", "Anna Berg is 41, speaks German and English, and is married. Tell me about her.")]
    for temperature in (0.0, 1.5):
        options = GenerationOptions(temperature=temperature, rng_seed=7, max_tokens=120, **given)  # type: ignore[arg-type]
        for end in answers_of(runner, [message] * (1 if temperature == 0 else rounds), options):
            assert end.finish_reason.value == "stop", end
            check(end.full_message.text)


def test_answers_of_a_batch_equal_those_of_single_prompts(
    smol: Path, runner: InProcessRunner, leap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [f"Name one {thing}." for thing in ("fruit", "river", "colour", "metal", "bird", "planet")]
    options = GenerationOptions(temperature=0, max_tokens=12)
    alone = [answers_of(runner, [[ChatMessage("user", text)]], options)[0].full_message.text for text in prompts]
    lines = [json.dumps({"custom_id": str(n), "prompt": text}) for n, text in enumerate(prompts)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr(runner, "unload", lambda: None)  # it is asked again below
    leap.runner = runner
    command = ("batch", "in.jsonl", "-o", "out.jsonl", "-m", str(smol), "--temperature", "0", "--max-tokens", "12")
    done = leap(*command)
    assert done.code == 0, done.stderr
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert [each["response"]["body"]["choices"][0]["message"]["content"] for each in records] == alone
    assert len(set(alone)) >= 4


def test_a_session_continues_where_it_ended(runner: InProcessRunner, tmp_path: Path) -> None:
    options = GenerationOptions(temperature=0, max_tokens=16)
    turns = ("My name is Anna.", "What is my name?")
    whole = runner.create_conversation()
    texts = [str(list(whole.generate_response(text, options))[-1].full_message.text) for text in turns]
    for text, expected in zip(turns, texts, strict=True):
        with SessionRecorder(tmp_path / "sessions.db", pytest.fail, name="anna", required=True) as recorder:
            recorder.open()
            recorder.resume(last=False)
            conversation = recorder.conversation(runner, None)
            end = last_of(recorder.keeping(conversation.generate_response(text, options), conversation, text))
            assert end.full_message.text == expected
    (fresh,) = answers_of(runner, [[ChatMessage("user", turns[1])]], options)
    assert fresh.full_message.text != texts[1]

"""Examples that a model is shown before its text: what is checked, where they stand, and the room that they leave."""

from __future__ import annotations

import json

import pytest

from leap_core.conversation.messages import ChatMessage
from leap_core.errors import LeapOptionsError, LeapSerializationError
from leap_core.tasks.extraction import Example, examples_of_file, read_examples
from leap_core.tasks.task_fields import read_task
from leap_core.testing import ScriptedModelRunner

from .conftest import do

SCHEMA = {"type": "object", "properties": {"item": {"type": "string"}, "count": {"type": "integer"}}}
BOB = {"text": "Bob wants 3 lamps.", "document": {"count": 3, "item": "lamps"}}
FIELDS = {"task": "extract", "schema": SCHEMA}


def test_each_example_is_a_turn_before_the_text_with_the_fields_in_the_schemas_order():
    runner = ScriptedModelRunner('{"item": "chairs"}')
    do(runner, "Two chairs.", **FIELDS, examples=[BOB])
    system, text, answer, asked = runner.requests[0].messages
    assert [each.role.value for each in (system, text, answer, asked)] == ["system", "user", "assistant", "user"]
    assert (text.text, asked.text) == (BOB["text"], "Two chairs.")
    assert answer.text == '{"item": "lamps", "count": 3}'


@pytest.mark.parametrize(("line", "problem"), [
    ('{"text": "a", "document": {"item": "zz"}}', '/item: "zz" is not in its text'),
    ('{"text": "a", "document": {"count": "a"}}', "does not fit the schema: /count"),
    ('{"text": "a", "document": {"itm": "a"}}', "does not fit the schema"),
    ('{"text": " ", "document": {}}', "text: it is empty"),
    ('{"document": {}}', "text: missing"),
    ('{"text": "a"}', "document: missing"),
    ('{"text": 1, "document": {}}', "text: expected a string"),
    ("[1]", "expected an object"),
    ('{"text": "a"', "not JSON"),
    ('{"text": "a", "document": {"count": NaN}}', "not JSON"),
    (r'{"text": "\ud800", "document": {}}', "surrogate"),
    ("[" * 5000, "not JSON"),
])  # fmt: skip
def test_a_wrong_example_is_named_by_file_and_line(tmp_path, line, problem):
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(BOB) + "\n\n" + line + "\n")
    with pytest.raises(LeapSerializationError) as caught:
        examples_of_file(path, SCHEMA)
    assert caught.value.message.startswith("cases.jsonl:3: ") and problem in caught.value.message


def test_a_file_without_examples_is_refused(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "latin.jsonl").write_bytes(b"\xff\n")
    for name, problem in {
        "empty.jsonl": "no examples",
        "gone": "cannot read",
        ".": "cannot read",
        "latin.jsonl": "UTF-8",
    }.items():
        with pytest.raises(LeapSerializationError, match=problem):
            examples_of_file(tmp_path / name, SCHEMA)


def test_reviewed_documents_and_cases_are_examples_too(tmp_path):
    item = {"pointer": "/item", "value": "Bob", "how": "exact", "decision": "correct", "corrected": "lamps"}
    count = {"pointer": "/count", "value": 4, "how": "not_in_text", "decision": "reject"}
    document = {"item": "Bob", "count": 4}
    fields = {"file": "a", "text": "Bob, lamps", "schema": SCHEMA}
    review = {**fields, "document": document, "evidence": [item, count]}
    case = {**FIELDS, "text": "two books", "expect": {"json": {"item": "books"}}}
    path = tmp_path / "mixed.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in (review, case)))
    found = examples_of_file(path, SCHEMA)
    assert found == [Example("Bob, lamps", {"item": "lamps"}), Example("two books", {"item": "books"})]


def test_examples_in_a_line_of_a_batch_are_named_by_their_number():
    task, _ = read_task({**FIELDS, "examples": [BOB]})
    assert read_task(task.to_json())[0] == task and task.to_json()["examples"][0]["text"] == BOB["text"]
    for wrong in ([], "x", 3, {}, [BOB, {"text": "a", "document": {"count": 7}}]):
        with pytest.raises(LeapSerializationError, match=r"^examples(\[1\])?: "):
            read_examples(wrong, SCHEMA)


def test_examples_make_pieces_smaller_and_must_leave_room():
    text = "\n".join(f"Bob wants {n} lamps." for n in range(150))
    long = {"text": "Bob wants 3 lamps. " + "and so on " * 60, "document": BOB["document"]}

    def pieces(*examples):
        task, _ = read_task({**FIELDS, **({"examples": list(examples)} if examples else {})})
        runner, message = ScriptedModelRunner(context_size=400), ChatMessage("user", text)
        return [messages[-1].text for messages, _ in task.task.prompts(task.model(runner, message, None), message)]

    assert len(pieces(long)) > len(pieces()) and "".join(pieces(long)) == text
    with pytest.raises(LeapOptionsError, match="examples: they take .* tokens"):
        pieces(*[long] * 20)


@pytest.mark.slow
def test_examples_that_leave_no_room_are_refused_once(leap, tmp_path):
    (tmp_path / "long.jsonl").write_text(json.dumps({"text": "lamp " * 9000, "document": {"item": "lamp"}}))
    runner = leap.script("{}", "{}")
    done = leap("extract", "--json-schema", "item", "--lines", "--examples", "long.jsonl", stdin="a\nb\n")
    assert done.code == 2 and done.stderr.count("examples: they take") == 1 and runner.requests == []
    (tmp_path / "p.png").write_bytes(b"")
    done = leap("extract", "--json-schema", "item", "--examples", "long.jsonl", "--image", "p.png")
    assert done.code == 2


def test_a_recipe_with_the_text_in_its_system_prompt_takes_none():
    own = '[[wording]]\nmodels = ["*"]\nsystem = "{text}"\nuser = "Extract."\n'
    task, _ = read_task({**FIELDS, "examples": [BOB]}, {"extract": own})
    with pytest.raises(LeapOptionsError, match="system prompt"):
        task.complete(ScriptedModelRunner("{}"), "x")

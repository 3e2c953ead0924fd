"""Texts beyond the context: cut, merged by the documented rule, summarized level by level."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from leap_core.conversation.messages import ChatMessage
from leap_core.errors import LeapConstraintError, LeapOptionsError
from leap_core.tasks.task import head_of, merged, pieces_that_fit
from leap_core.tasks.task_fields import read_task
from leap_core.testing import ScriptedModelRunner

from .conftest import ask_of, do

HEAD = "Title: Plans\nDate: 1 May\n\n----------\n\n"


def test_pieces_are_merged_by_the_documented_rule():
    parts = [{"a": 1, "tags": ["x"], "in": {"p": 1}}, {"a": 2, "b": 3, "tags": ["x", "y"], "in": {"q": 2}}]
    assert merged(parts) == {"a": 1, "b": 3, "tags": ["x", "y"], "in": {"p": 1, "q": 2}}


def test_a_text_is_cut_where_it_may_be_and_nothing_is_lost():
    text = "One. Two.\n\nThree four five. " * 30
    pieces = pieces_that_fit(text, lambda piece: len(piece) <= 100)
    assert "".join(pieces) == text and max(map(len, pieces)) <= 100
    chance = random.Random(7)
    for _ in range(300):
        text = "".join(chance.choices("ab. \n。é", k=chance.randint(0, 300)))
        most = chance.randint(1, 40)
        pieces = pieces_that_fit(text, lambda piece, most=most: len(piece) <= most)
        assert "".join(pieces) == text and max(map(len, pieces)) <= most


def test_a_text_that_is_far_too_long_is_not_measured():
    lengths: list[int] = []

    def fits(piece: str) -> bool:
        lengths.append(len(piece))
        return len(piece) <= 500

    assert len(pieces_that_fit("word " * 2000, fits, 1000)) > 10
    assert max(lengths) <= 1000
    assert pieces_that_fit("word " * 2000, lambda _piece: False) == ["word " * 2000], "nothing fits: left to the model"


ORDER = {
    "type": "object",
    "properties": {
        "client": {"type": "string", "description": "who ordered"},
        "status": {"enum": ["none", "open", "paid"]},
        "count": {"type": ["integer", "null"]},
        "note": {"type": "string"},
    },
    "required": ["client", "status", "count"],
}


@pytest.mark.parametrize("text", ["Client Tom ordered nothing yet.", "It rains.", "Ann paid for 3 chairs."])
def test_a_required_field_is_always_there(builtin, text):
    document = json.loads(do(builtin, text, task="extract", schema=ORDER).full_message.text)
    assert set(document) >= {"client", "status", "count"} and document["status"] in ("none", "open", "paid")


def test_the_prompt_has_types_and_values_and_asks_to_omit_only_what_is_optional():
    whole = '{"client": "Tom", "status": "none", "count": null}'
    runner = ScriptedModelRunner(whole)
    do(runner, "Client Tom ordered nothing yet.", task="extract", schema=ORDER)
    system = runner.requests[0].messages[0].text
    assert "{client: string /* who ordered */, status: " in system and 'status: "none"|"open"|"paid"' in system
    assert "note: string|null" in system and "omit" not in system
    runner = ScriptedModelRunner(f'{whole[:-1]}, "note": ""}}', model_id="LFM2.5-1.2B-Instruct")
    do(runner, "Tom.", task="extract", schema={**ORDER, "required": [*ORDER["properties"]]})
    assert "omit" not in runner.requests[0].messages[0].text


def test_a_required_field_that_no_piece_had_is_asked_for_again():
    text = "Ann went there. " * 60
    optional = ScriptedModelRunner(*["{}"] * 50, context_size=200)
    do(optional, text, task="extract", schema={**ORDER, "required": []})
    pieces = len(optional.requests)
    replies = ['{"client": "Ann"}', *["{}"] * (pieces - 1), *['{"status": "open"}'] * pieces]
    runner = ScriptedModelRunner(*replies, context_size=200)
    complete = do(runner, text, task="extract", schema={**ORDER, "required": ["client", "status"]})
    assert json.loads(complete.full_message.text) == {"client": "Ann", "status": "open"}
    assert pieces > 1
    first, again = (json.loads(runner.requests[n].options.json_schema_constraint) for n in (0, pieces))
    assert {"type": "null"} in first["properties"]["client"]["anyOf"]
    assert (list(again["properties"]), again["required"]) == (["status"], ["status"])


def test_extraction_joins_the_pieces():
    schema = {"type": "object", "properties": {"names": {"type": "array"}, "city": {"type": "string"}}}
    runner = ScriptedModelRunner(
        '{"names": ["Ann"]}', '{"names": ["Ann", "Bob"], "city": "Rome"}', '{"city": "Paris"}', "{}", context_size=200
    )
    text = "Ann went there. " * 60
    complete = do(runner, text, task="extract", schema=schema)
    assert json.loads(complete.full_message.text) == {"names": ["Ann", "Bob"], "city": "Rome"}
    assert "".join(request.messages[-1].text for request in runner.requests) == text
    narrow = {"type": "object", "properties": {"names": {"type": "array", "maxItems": 1}}}
    runner = ScriptedModelRunner(*['{"names": ["Ann"]}', '{"names": ["Bob"]}'] * 2, context_size=200)
    with pytest.raises(LeapConstraintError, match="together do not fit the schema"):
        do(runner, text, task="extract", schema=narrow)


def test_summaries_are_summarized_until_one_is_left_and_the_tree_is_told():
    task, _ = read_task({"task": "summarize", "kind": "topics"})
    body = "Ann spoke. " * 80
    runner = ScriptedModelRunner(*[f"summary {n}" for n in range(4)], "the whole", context_size=100)
    tree: list[str] = []
    shown: list[str] = []
    message = ChatMessage("user", HEAD + body)
    complete = task.complete(runner, message, ask_of(runner), name="x", tell=tree.append, emit=shown.append)
    assert complete.full_message.text == "the whole"
    *first, last = [request.messages[-1].text for request in runner.requests]
    instruction = "List the main topics and subjects that were discussed.\n\n"
    assert all(text.startswith(instruction + HEAD) for text in (*first, last)), "each piece has the head"
    assert last == instruction + HEAD + "\n\n".join(f"summary {n}" for n in range(len(first)))
    assert tree[0].startswith(f"{len(first)} pieces of") and tree[-1].startswith("  1 piece of")


def test_summaries_that_are_not_shorter_stand_side_by_side():
    runner = ScriptedModelRunner(*["long " * 200] * 4, context_size=100)
    complete = do(runner, "Ann spoke. " * 25, task="summarize")
    assert (
        complete.full_message.text == "\n\n".join(["long " * 200] * len(runner.requests)).replace(" \n", "\n").strip()
    )


def test_a_transcript_has_a_head():
    assert head_of(HEAD + "**Ann**: Hi") == (HEAD, "**Ann**: Hi")
    assert head_of("no head") == ("", "no head")


def test_translations_keep_the_space_between_pieces():
    pieces = []
    runner = ScriptedModelRunner(*[f" T{n}\n" for n in range(8)], context_size=100)
    task, _ = read_task({"task": "translate", "to": "de"})
    text = "\n".join(f"Sentence number {n} stands here.\n" for n in range(20))
    complete = task.complete(runner, ChatMessage("user", text), ask_of(runner), name="x", emit=pieces.append)
    count = len(runner.requests)
    assert count > 1 and complete.full_message.text == "\n\n".join(f"T{n}" for n in range(count))
    asked = [request.messages[-1].text for request in runner.requests]
    assert "\n\n".join(asked) == text.strip()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"task": "translate", "to": "xx"}, "no language that leap knows"),
        ({"task": "translate", "to": "de", "from": "German"}, "German is the language"),
        ({"task": "summarize", "kind": "haiku"}, "is not one of executive"),
    ],
)
def test_impossible_tasks_are_refused(fields, message):
    with pytest.raises(LeapOptionsError, match=message):
        read_task(fields)


def test_options_of_the_user_override_the_recipe(builtin):
    task, _ = read_task({"task": "summarize"})
    options = task.model(builtin, ChatMessage("user", "x"), ask_of(builtin)).options()
    assert options.temperature == 0.3
    over = replace(options, temperature=0.7, max_tokens=9, json_schema_constraint="{}")
    mine = task.model(builtin, ChatMessage("user", "x"), ask_of(builtin), overrides=over).options()
    assert (mine.temperature, mine.max_tokens, mine.json_schema_constraint) == (0.7, 9, None)

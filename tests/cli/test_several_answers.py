"""``leap generate -n``: several answers to one prompt, at the same time."""

from __future__ import annotations

import json
import threading

import pytest

from leap_core.conversation.responses import MessageResponse
from leap_core.errors import LeapGenerationError
from leap_core.testing import Stall

from .test_interrupts import interrupt_at
from .test_interrupts import pytestmark as takes_interrupts


@pytest.fixture
def generate(leap):
    return lambda *args, **how: leap("generate", "-m", "some", *args, **how)


def test_text_has_a_line_between_two_answers(leap, generate):
    leap.script(["same", " answer"], ["same", " answer"], ["same", " answer"])
    done = generate("-n", "3", "x")
    assert (done.code, done.stdout, done.stderr) == (0, "same answer\n---\nsame answer\n---\nsame answer\n", "")


def test_seeds_count_up_from_the_given_one(leap, generate):
    runner = leap.script("a", "b", "c")
    generate("-n", "3", "--seed", "7", "x")
    assert sorted(request.options.rng_seed for request in runner.requests) == [7, 8, 9]
    assert {request.messages for request in runner.requests} == {runner.requests[0].messages}
    runner = leap.script("a", "b")
    generate("-n", "2", "x")
    assert [request.options.rng_seed for request in runner.requests] == [None, None]


def test_json_is_an_array_with_the_index_of_each(leap, generate):
    leap.script("same", "same")
    documents = json.loads(generate("-n", "2", "--format", "json", "x").stdout)
    assert [document["index"] for document in documents] == [0, 1]
    assert [document["message"]["content"] for document in documents] == ["same", "same"]


def test_answers_with_a_schema_have_their_index(leap, generate):
    leap.script('{"a": 1}', '{"a": 1}')
    done = generate("-n", "2", "--format", "json", "--json-schema", "a int", "x")
    assert [json.loads(document["message"]["content"]) for document in json.loads(done.stdout)] == [{"a": 1}] * 2


def test_every_event_has_the_index_of_its_answer(leap, generate):
    leap.script(["Par", "is"], ["Par", "is"])
    events = [json.loads(line) for line in generate("-n", "2", "--format", "jsonl", "x").stdout.splitlines()]
    assert [event.pop("index") for event in events] == [0, 0, 0, 1, 1, 1]
    assert [MessageResponse.from_json(event).to_json() for event in events] == events


def test_each_answer_has_a_slot_up_to_eight(leap, generate):
    for count, slots in ((1, 1), (3, 3), (20, 8)):
        leap.script(*["x"] * count)
        assert generate("-n", str(count), "x").code == 0
        assert leap.loaded[-1][1].slots == slots


def test_answers_are_generated_concurrently(leap, generate):
    """Each waits until all of them have begun."""
    stalls = [Stall(seconds=20) for _ in range(3)]
    leap.script(*([stall, "done"] for stall in stalls))
    met = []

    def release() -> None:
        met.append(all(stall.reached.wait(100) for stall in stalls))
        for stall in stalls:
            stall.release()

    thread = threading.Thread(target=release, daemon=True)
    thread.start()
    assert generate("-n", "3", "x").stdout == "done\n---\ndone\n---\ndone\n"
    thread.join()
    assert met == [True]


def test_a_failed_answer_does_not_end_the_others(leap, generate):
    leap.script("fine", [LeapGenerationError("broken")], "fine")
    done = generate("-n", "3", "x")
    assert done.code == 1
    assert sorted(done.stdout.split("---\n")) == ["", "fine\n", "fine\n"]
    assert done.stderr == "leap: error: 1 of 3 answers failed: broken\n"
    leap.script("fine", [LeapGenerationError("broken")])
    documents = json.loads(generate("-n", "2", "--format", "json", "x").stdout)
    assert sorted(document.get("error", "") for document in documents) == ["", "broken"]


def test_a_prompt_too_long_for_any_answer_is_one_error(leap, generate):
    leap.script("a", "b", context_size=8)
    done = generate("-n", "2", "word " * 20)
    assert (done.code, done.stderr.count("\n")) == (5, 1)
    assert "leap: error: the prompt has 23 tokens" in done.stderr


def test_several_raw_answers(leap, generate):
    runner = leap.script("a", "a")
    assert generate("-n", "2", "--raw", "Once").stdout == "a\n---\na\n"
    assert [request.text for request in runner.requests] == ["Once", "Once"]


@takes_interrupts
@pytest.mark.parametrize("which", [0, 1])
def test_ctrl_c_stops_all_answers_and_keeps_their_text(leap, generate, which):
    stalls = [Stall(), Stall()]
    runner = leap.script(*(["half", stall, "never"] for stall in stalls))
    interrupt_at(stalls[which])
    done = generate("-n", "2", "--format", "json", "x")
    documents = json.loads(done.stdout)
    assert done.code == 130 and [document["finish_reason"] for document in documents] == ["interrupted"] * 2
    assert "half" in [document["message"]["content"] for document in documents]
    assert runner.is_unloaded

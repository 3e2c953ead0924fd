"""``leap sessions log``: what commands ask is logged where the user wants it, and nowhere else."""

from __future__ import annotations

import json
import time

import pytest

from leap_core import __version__
from leap_core.conversation.prompt_log import Entry, PromptLog


@pytest.fixture
def on(leap):
    done = leap("sessions", "log", "on")
    assert (done.code, done.stdout) == (0, "")
    return done


def ask(leap, *args, answers=("ok",), stdin=""):
    leap.script(*answers)
    done = leap(*args, stdin=stdin)
    assert done.code == 0, done.stderr
    return done


def rows(leap, *args) -> list[dict]:
    done = leap("sessions", "log", "list", "--format", "json", *args)
    assert done.code == 0, done.stderr
    return json.loads(done.stdout)


def test_the_log_is_off_by_default(leap, leap_home):
    ask(leap, "generate", "one")
    assert not (leap_home / "log.db").exists()
    assert "leap sessions log on does that" in leap("sessions", "log").stderr and leap(
        "sessions", "log", "status"
    ).stdout.startswith("state    off\n")
    leap("config", "set", "log", "true")
    ask(leap, "generate", "two")
    leap.variables["LEAP_LOG"] = "0"
    ask(leap, "generate", "three")
    assert "$LEAP_LOG is set" in leap("sessions", "log", "off").stderr
    leap.variables["LEAP_LOG"] = "yes"
    ask(leap, "generate", "four")
    del leap.variables["LEAP_LOG"]
    ask(leap, "generate", "five")
    assert [row["prompt"] for row in rows(leap)] == ["four", "two"]


def test_every_command_that_asks_a_model_is_logged(leap, on):
    ask(leap, "generate", "-s", "S", "--temperature", "0.5", "one")
    ask(leap, "chat", "--no-save", stdin="two\nthree\n", answers=("a", "b"))
    ask(leap, "batch", "-", stdin='{"prompt": "four"}\n')
    ask(leap, "extract", "--json-schema", "name", stdin="five", answers=('{"name": "Ann"}',))
    logged = list(reversed(rows(leap)))
    assert [row["command"] for row in logged] == ["generate", "chat", "chat", "batch", "extract"]
    assert [row["prompt"] for row in logged][:4] == ["one", "two", "three", "four"]
    assert (logged[0]["system"], logged[0]["options"], logged[0]["answer"]) == ("S", {"temperature": 0.5}, "ok")
    assert [row["turns"] for row in logged][:3] == [0, 0, 2]
    ask(leap, "generate", "--dry-run", "none")
    assert len(rows(leap)) == 5


def test_entries_are_listed(leap, on):
    for n in range(23):
        with PromptLog(leap.home / "log.db") as log:
            log.add(Entry("generate", "builtin" if n else "other", f"prompt {n}", answer="yes", finish="stop"))
    done = leap("sessions", "log")
    assert done.stdout.count("\n") == 21 and "23 entries in all; --limit lists more" in done.stderr
    assert done.stdout.splitlines()[1].split() == ["23", "0s", "generate", "builtin", "prompt", "22", "yes"]
    assert leap("sessions", "log", "--limit", "1", "--format", "quiet").stdout == "23\n"
    assert [row["id"] for row in rows(leap, "-m", "Oth")] == [1]
    assert len(rows(leap, "--since", "1h", "--limit", "30")) == 23
    assert rows(leap, "--since", "2100-01-01") == []
    assert "neither a length of time" in leap("sessions", "log", "list", "--since", "yesterday").stderr
    assert "of this kind" in leap("sessions", "log", "-m", "none").stderr


def test_an_entry_is_shown_and_found_by_words(leap, on):
    ask(leap, "generate", "-s", "Be brief.", "What is a café?", answers=("A place\nfor coffee.",))
    shown = leap("sessions", "log", "show").stdout
    assert shown.startswith("id       1\n") and "# system\n\nBe brief.\n" in shown
    assert shown.endswith("# prompt\n\nWhat is a café?\n\n# answer\n\nA place\nfor coffee.\n")
    assert (
        json.loads(leap("sessions", "log", "show", "1", "--format", "json").stdout)["answer"] == "A place\nfor coffee."
    )
    assert leap("sessions", "log", "search", "CAFE", "--format", "quiet").stdout == "1\n"
    assert (
        json.loads(leap("sessions", "log", "search", "coffee", "--format", "json").stdout)[0]["snippet"]
        == "A place\nfor coffee."
    )
    assert "no entry has these words" in leap("sessions", "log", "search", "tea").stderr
    missing = leap("sessions", "log", "show", "7")
    assert missing.code == 2 and "there is no entry 7" in missing.stderr


def test_data_lists_the_json_of_answers_by_schema(leap, on):
    leap("saved", "schemas", "add", "person", "name")
    for name in ("Ann", "Bob"):
        ask(leap, "generate", "--json-schema", "person", name, answers=(json.dumps({"name": name}),))
    ask(leap, "generate", "--json-schema", "n int", "3", answers=('{"n": 3}',))
    expected = '{"name": "Ann"}\n{"name": "Bob"}\n'
    assert leap("sessions", "log", "--data", "--json-schema", "person").stdout == expected
    assert leap("sessions", "log", "list", "--data").stdout == expected + '{"n": 3}\n'
    assert leap("sessions", "log", "--data", "--limit", "1").stdout == '{"n": 3}\n'
    assert "--json-schema is for --data" in leap("sessions", "log", "--json-schema", "person").stderr


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"name": {"type": "string"}}},
        {"properties": {"name": {"type": "string"}}, "required": ["name"], "minProperties": 1},
        {
            "type": "object",
            "properties": {"name": {}, "of": {"$ref": "#/$defs/p"}, "in": {"items": {"required": ["x"]}}},
            "$defs": {"p": {"properties": {"n": {}}, "required": ["n"]}},
            "dependentRequired": {"of": ["name"]},
        },
        "name, age? int",
    ],
)
def test_data_lists_extracted_json(leap, on, schema):
    argument = schema if isinstance(schema, str) else json.dumps(schema)
    ask(leap, "extract", "--json-schema", argument, stdin="I am Ann.", answers=('{"name": "Ann"}',))
    ask(leap, "extract", "--json-schema", "other", stdin="x", answers=("{}",))
    assert leap("sessions", "log", "--data", "--json-schema", argument).stdout == '{"name": "Ann"}\n'


def test_entries_are_cleared_by_age_and_only_with_yes(leap, on):
    with PromptLog(leap.home / "log.db") as log:
        log.add(Entry("generate", "m", "old", asked=time.time() - 10 * 86400))
        log.add(Entry("generate", "m", "new"))
    refused = leap("sessions", "log", "clear")
    assert refused.code == 2 and "2 entries of the log would be removed: give --yes" in refused.stderr
    assert (
        "1 entry of the log would be removed"
        in leap("sessions", "log", "clear", "--older-than", "7d", "--dry-run").stderr
    )
    assert "1 entry removed" in leap("sessions", "log", "clear", "--older-than", "7d", "--yes").stderr
    assert [row["prompt"] for row in rows(leap)] == ["new"]
    assert leap("sessions", "log", "clear", "--yes").code == 0 and rows(leap) == []
    assert "nothing to remove" in leap("sessions", "log", "clear", "--yes").stderr


def test_the_status_shows_size_and_location(leap, on):
    ask(leap, "generate", "one")
    status = json.loads(leap("sessions", "log", "status", "--format", "json").stdout)
    assert (status["state"], status["entries"]) == ("on", 1) and status["bytes"] > 0
    assert status["file"] == str(leap.home / "log.db") and leap("config", "get", "log").stdout == "true\n"


def test_an_unusable_log_prevents_no_answer(leap, on, leap_home):
    (leap_home / "log.db").write_bytes(b"this is no database" * 100)
    leap.script("Paris.")
    done = leap("generate", "x")
    assert (done.code, done.stdout) == (0, "Paris.\n") and done.stderr.count("\n") == 2
    assert "warning: this prompt is not in the log: the log of prompts " in done.stderr
    assert leap("sessions", "log").code == 1 and "cannot be used" in leap("sessions", "log").stderr


def test_a_prompt_is_replayed_and_compared(leap, on):
    ask(leap, "generate", "--temperature", "0", "--system", "Be brief.", "one", answers=("the answer",))
    request = leap.runner.requests[-1]
    runner = leap.script("the answer", "the other")
    same = leap("sessions", "log", "replay", "1", "--format", "json")
    assert (same.code, json.loads(same.stdout)["same"]) == (0, True)
    assert runner.requests[0].messages == request.messages and runner.requests[0].options.temperature == 0
    leap.script("the other")
    other = leap("sessions", "log", "replay", "1", "--format", "json")
    found = json.loads(other.stdout)
    assert (other.code, found["from_character"], found["was"], found["is"]) == (1, 4, "the answer", "the other")
    assert "another file of the model" in found["reasons"][0] and "version" not in found["reasons"][0]


def test_a_replay_reports_what_has_changed(leap, on, leap_home):
    old = {"prompt": "one", "answer": "the answer", "finish": "stop", "options": {"temperature": 0}}
    model = leap.script("").model_id
    with PromptLog(leap_home / "log.db") as log:
        for made_by in ({"leap": "0.0.9", "weights": "ab"}, {}):
            log.add(Entry("generate", model, **old, made_by=made_by))
    reasons = []
    for number in "12":
        leap.script("the other")
        reasons.append(json.loads(leap("sessions", "log", "replay", number, "--format", "json").stdout)["reasons"])
    assert reasons[0] == [f"another version of leap or of llama.cpp: 0.0.9 answered, now {__version__}"]
    assert "another file of the model, or another version" in reasons[1][0], "an old entry says nothing of either"


def test_incomplete_entries_are_not_replayed(leap, on, leap_home):
    with PromptLog(leap_home / "log.db") as log:
        log.add(Entry("chat", "m", "and then?", turns=2))
        log.add(Entry("generate", "m", "[image]\nwhat is it?"))
        log.add(Entry("generate", "m", "x", error="given up"))
    for number, word in (("1", "2 earlier messages"), ("2", "picture"), ("3", "given up")):
        done = leap("sessions", "log", "replay", number)
        assert done.code != 0 and word in done.stderr and done.stderr.count("\n") == 1
    assert leap("sessions", "log", "replay", "9").code == 2


def test_answers_are_rated(leap, on):
    ask(leap, "generate", "one")
    assert json.loads(leap("sessions", "log", "rate", "1", "good", "--format", "json").stdout) == {
        "id": 1,
        "rating": "good",
    }
    assert rows(leap)[0]["rating"] == "good" and "rating   good" in leap("sessions", "log", "show").stdout
    leap("sessions", "log", "rate", "1", "none")
    assert rows(leap)[0]["rating"] is None
    for wrong, message in ((("2", "bad"), "there is no entry 2"), (("1", "fine"), "'fine' is not one of")):
        done = leap("sessions", "log", "rate", *wrong)
        assert done.code == 2 and message in done.stderr

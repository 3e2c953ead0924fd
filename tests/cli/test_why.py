"""``leap why``: the cause of a request first, then the change, then how it went."""

from __future__ import annotations

import json

import pytest

from leap_core.conversation.prompt_log import Entry, PromptLog
from leap_core.conversation.request_facts import Departure, RequestFacts, failed
from leap_core.errors import LeapGenerationError, LeapGenerationPromptExceedContextLengthError
from leap_core.protocols.host import served_models
from leap_core.system.configuration import log_file
from leap_core.system.directories import Directories

RULES = "Be short, and answer in whole sentences."
CLOCK = RequestFacts(
    prompt_tokens=2000,
    reading=3.0,
    writing=0.5,
    answer_tokens=10,
    departure=Departure(
        9, 1900, before="It is Fri Nov 27 01:4", had="0. Be", got="1. Be", role="system", message=1, messages=2
    ),
)


@pytest.fixture
def log(leap):
    """Puts requests into the log."""

    def add(facts: RequestFacts, **given) -> int:
        values = {"command": "generate", "model": "builtin", "prompt": "Hello?", "finish": "stop", "seconds": 3.5}
        with PromptLog(log_file(Directories.from_environment())) as opened:
            return opened.add(Entry(**{**values, **given}, facts=facts.to_json()))

    return add


def test_the_cause_comes_first_then_the_advice_and_the_timeline(leap, log):
    log(CLOCK)
    first, change, *rest = leap("why").stdout.splitlines()
    assert first.startswith("a clock in the system prompt changes: the prefix departed at token 9 of 2000")
    assert 'had "is Fri Nov 27 01:40. Be"' in first or '01:40. Be", got "' in first
    assert change == "change: send what changes at the end of the last message, or not at all"
    assert any(line.split()[:2] == ["read", "2000"] for line in rest)


def test_json_has_all_causes_and_facts(leap, log):
    number = log(CLOCK, seconds=9.0)
    value = json.loads(leap("why", str(number), "--format", "json").stdout)
    assert [cause["name"] for cause in value["causes"]] == ["clock"] and value["causes"][0]["change"]
    assert value["facts"]["departure"]["position"] == 9 and value["id"] == number


def test_the_last_request_is_the_default_and_a_healthy_one_has_no_cause(leap, log):
    log(CLOCK)
    log(RequestFacts(prompt_tokens=20, cached=19, answer_tokens=5, reading=0.1, writing=1.0))
    done = leap("why")
    assert done.stdout.splitlines()[0] == "nothing unusual" and "change:" not in done.stdout and done.code == 0


def test_an_entry_of_an_earlier_version_has_no_facts(leap, log):
    log(RequestFacts())
    assert leap("why").stdout.splitlines()[0] == "nothing unusual"


def test_a_prompt_that_was_too_long_is_explained_by_its_error(leap, log):
    error = LeapGenerationPromptExceedContextLengthError(9000, 4096)
    log(failed(error), finish=None, error="in other words", seconds=0.1)
    assert leap("why").stdout.startswith("the context is too small: the prompt has 9000 tokens, it holds 4096\n")


def test_an_error_without_a_known_cause_is_shown(leap, log):
    log(RequestFacts(), finish=None, error="the disk is full", seconds=0.1)
    done = leap("why")
    assert done.stdout.splitlines()[0] == "the request failed: the disk is full" and "change:" not in done.stdout


@pytest.mark.parametrize("id", ["7", "req_nobody", "99999999999999999999999"])
def test_an_unknown_request_is_refused(leap, log, id):
    log(CLOCK)
    done = leap("why", id)
    assert done.code == 2 and f"there is no request {id}" in done.stderr and done.stderr.count("\n") == 1


def test_an_empty_log_says_how_to_turn_it_on(leap):
    done = leap("why")
    assert done.code == 2 and "leap sessions log on" in done.stderr


def test_a_request_to_a_server_is_found_by_its_id(leap, monkeypatch):
    request = {"id": "req_1", "model": "m", "seconds": 4.0, "asked": 5.0, "finish": "stop", "facts": CLOCK.to_json()}
    other = {**request, "id": "req_2", "asked": 6.0, "facts": {}}
    monkeypatch.setattr(served_models, "served_requests", lambda _: [request, other])
    assert leap("why", "req_1").stdout.startswith("a clock") and leap("why").stdout.startswith("nothing unusual")
    done = leap("why", "req_1", "--replay")
    assert done.code == 2 and "a server does not keep what was said" in done.stderr


def test_a_replay_applies_the_advice_and_shows_both_times(leap, log):
    log(CLOCK, system=f"It is Fri Nov 27 01:41. {RULES}", prompt="Hello?")
    runner = leap.script("Good day.", "Good", "Good day.")
    value = json.loads(leap("why", "--replay", "--format", "json").stdout)
    assert value["as_it_was"]["seconds"] >= 0 and value["with_the_change"]["ended"] == ""
    before, _, after = runner.requests
    assert RULES in before.messages[0].text and before.messages[1].text == "Hello?"
    assert [message.text for message in after.messages] == [RULES, "Hello?\n\nIt is Fri Nov 27 01:41."]


def test_a_replay_allows_more_tokens_and_reports_a_failure(leap, log):
    log(RequestFacts(prompt_tokens=9, failure="max_tokens"), options={"max_tokens": 3}, finish=None, error="it was cut")
    runner = leap.script([LeapGenerationError("the power is out")])
    assert "ask with a higher --max-tokens, or with --complete-json" in leap("why").stdout
    value = json.loads(leap("why", "--replay", "--format", "json").stdout)
    assert (value["as_it_was"]["ended"], value["with_the_change"]["ended"]) == ("it was cut", "the power is out")
    assert runner.requests[0].options.max_tokens == 24


def test_a_replay_without_an_applicable_change_is_refused(leap, log):
    log(RequestFacts(prompt_tokens=99, reading=1.0, masks=2.0))
    done = leap("why", "--replay")
    assert done.code == 2 and "not one that a replay can make" in done.stderr and done.stderr.count("\n") == 1
    log(RequestFacts())
    assert "there is no change to try" in leap("why", "--replay").stderr

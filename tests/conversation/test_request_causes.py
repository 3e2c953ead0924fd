"""The causes that are named of what is known of a request: planted ones first, and none of a healthy request."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from leap_core.conversation.request_causes import RequestEnd, alternative_system, causes_of, course_of, departed
from leap_core.conversation.request_facts import Departure, RequestFacts, failed
from leap_core.errors import LeapConstraintError, LeapError, LeapGenerationPromptExceedContextLengthError
from leap_core.inference.engine.request_timeline import share_lost

FINE = RequestEnd(4.0, "stop")
QUICK = RequestFacts(prompt_tokens=2000, cached=1900, answer_tokens=100, context_size=8192, reading=0.5, writing=3.5)


def left(before: str, had: str, got: str, **more: Any) -> RequestFacts:
    """A prompt of which all but the first 40 tokens had to be read again."""
    place = {"role": "system", "message": 1, "messages": 3, "shared": 1800, "in_slots": 40, **more}
    departure = Departure(40, before=before, had=had, got=got, **place)
    return replace(QUICK, cached=40, reading=3.0, departure=departure)


def kept_state(before: str, had: str, got: str, **more: Any) -> RequestFacts:
    """A change at the end of a system prompt, in a model whose memory goes back to no state before it."""
    place = {"role": "system", "message": 1, "messages": 2, "in_slots": 495, **more}
    departure = Departure(495, before=before, had=had, got=got, **place)
    return replace(QUICK, prompt_tokens=512, cached=0, reading=1.5, by_states=True, departure=departure)


def waiting(**facts: Any) -> RequestFacts:
    return replace(QUICK, **facts)


PREFIXES = {
    "clock": [
        left("It is Fri Nov 27 01:4", "0. Be short.", "1. Be short."),
        left("Date: 2026-", "11-26\nRules:", "11-27\nRules:"),
        left("The time is ", "14:03:59 UTC", "14:04:02 UTC"),
        left("Today is ", "Thursday, be kind", "Friday, be kind"),
        left("now=", "1764208800 user", "1764208861 user"),
        left("last seen ", "5 minutes ago.", "6 minutes ago."),
        left("Heute ist ", "Donnerstag, der 26. November 2026, 9 Uhr", "Freitag, der 27. November 2026, 9 Uhr"),
        left("Hoy es ", "jueves, 26 de noviembre de 2026", "viernes, 27 de noviembre de 2026"),
        left("Now it is the ", "evening of the 26th of May. Be", "morning of the 27th of May. Be"),
        left("今天是2026年11月2", "6日。", "7日。"),
        left("run 202611", "26T190211Z", "27T081500Z"),
        left("It is ", "7 pm in Rome", "8 pm in Rome"),
        left("ns=", "1795806131123000111 a", "1795806204456000222 a"),
        left("<env>\nDate: 2026-11-2", "6\n</env>", "7\n</env>", role="user", message=1, edited=True),
        left("It is 10:1", "1. Classify", "2. Classify", role="user", message=1, messages=1, edited=True),
    ],
    "id": [
        left("Request ", "3f2a9c1e-77aa-4b1c-9d00", "8b1a9c1e-77aa-4b1c-9d00"),
        left("session_id: ", "sess_8Zk2Qp11xY", "sess_0aB3Lm77tR"),
        left("trace ", "9f86d081884c7d65\n", "2c26b46b68ffc68f\n"),
        left("build=", "a1b2c; go", "0c9de; go"),
        left("sessionidentifier", " 3f2a9c1e-77aa-4b1c-9d00", " 8b1a9c1e-77aa-4b1c-9d00"),
        left("The correlation-identifier is", " 3f2a9c1e-77aa-4b1c-9d00", " 3b1a9c1e-77aa-4b1c-9d00"),
        *(kept_state(f"{what} ", "3f2a9c1e-77aa-4b1c", "8b1a9c1e-77aa-4b1c") for what in ("Session", "request")),
    ],
    "counter": [
        left("You have ~", "12k tokens remaining", "11k tokens remaining"),
        left("uptime ", "48211s, all well", "48377s, all well"),
    ],
    "billing-header": [
        left("x-anthropic-billing-header: cc_version=2.1; cch=", "a1b2c", "d3e4f"),
        left("", "x-anthropic-billing-header: a", "You are"),
        left("x-acme-billing-id: plan=2; nonce=", "a1b2c", "d3e4f"),
    ],
    "tools-reordered": [
        left(
            '"name": "', 'read", ', 'write", ', tool="write", tools_had=("read", "write"), tools_got=("write", "read")
        ),
        left('[{"name": "', "a", "b", tool="b", tools_had=("a", "b", "c"), tools_got=("b", "a", "c")),
    ],
    "tools-changed": [
        left('{"name": "', "a", "x", tool="x", tools_had=("a", "b"), tools_got=("x", "a", "b")),
        left('"description": "', "Read a file", "Read a text", tool="read"),
    ],
    "thinking-removed": [
        left("assistant\n", "<think>\nThe user", "The answer", role="assistant", message=3),
        left("assistant\n<think>", "So the user", "</think>Yes", role="assistant", message=3),
    ],
    "picture": [left("Look: ", "[picture or sound]", "[picture or sound]", role="user", message=2, media=True)],
    "system-changed": [
        left("You are ", "a helpful friend", "an expert of law"),
        left("You are ", "a helpful friend", "an expert of law", messages=2, edited=True),
        kept_state("Answer in ", "English.", "German."),
    ],
    "history-changed": [left("user\n", "Read the file", "Summary of before", role="user", message=2)],
    "adapter": [
        left("", "", "", other_adapter=True),
        waiting(cached=0, departure=Departure(1900, ended=True, other_adapter=True)),
    ],
    "slot-lost": [
        waiting(cached=0, reading=3.0, departure=Departure(1900, ended=True)),
        waiting(cached=30, reading=3.0, departure=Departure(1500, shared=20, in_slots=30, had="a", got="b")),
    ],
}
TIMES = {
    "queue": [waiting(queued=3.0, running=2, ahead_tokens=6000), waiting(queued=9.0, waiting=4)],
    "preempted": [waiting(preempted=2, swapped=2.5)],
    "loading": [waiting(loading=2.2)],
    "repairs": [waiting(repairs=2, repairing=2.0)],
    "masks": [waiting(masks=2.0)],
    "other-work": [waiting(others=0.7)],
}
NO_CHANGES = [  # something else is asked, and nothing that was said before is another
    left("Date: 2026-11-2", "6 From: a", "7 From: b", role="user", message=1, messages=1),
    left("No. 2026-118", "0 Customer A", "1 Customer B", role="user", message=2, messages=2),
    left("Translate: ", "Table backup", "Letter customer", role="user", message=1, messages=1, edited=True),
    left("", "[picture or sound]", "[picture or sound]", role="user", message=1, messages=1, media=True),
    left("system\n", "Write code.", "Make a title of six words.", messages=2),
    left("", "Once upon", "In the year", role="", message=0, messages=0, edited=True),
    kept_state("Translate: ", "Table backup", "Letter customer", role="user", message=2, messages=2),
    failed(LeapError("the prompt has 9000 tokens and the context holds 4096; it does not fit its constraint")),
]
PLANTED = [(name, facts, FINE) for name, all_facts in {**PREFIXES, **TIMES}.items() for facts in all_facts]
PLANTED += [
    ("context-too-small", failed(LeapGenerationPromptExceedContextLengthError(9000, 4096)), RequestEnd(0.1)),
    ("context-too-small", replace(QUICK, failure="exceed_context"), RequestEnd(4.0, None, "some words")),
    ("repetition", replace(QUICK, failure="repetition"), RequestEnd(4.0, None, "some words")),
    (
        "answer-cut",
        failed(LeapConstraintError("some words", text="", facts=QUICK, cut_by="max_tokens")),
        RequestEnd(4.0, None, "some words"),
    ),
    (
        "constraint",
        failed(LeapConstraintError("some words", text="", facts=QUICK)),
        RequestEnd(4.0, None, "some words"),
    ),
    ("context-too-small", replace(QUICK, queued=3.0), RequestEnd(9.0, "exceed_context")),
    ("repetition", replace(QUICK, loading=2.0), RequestEnd(4.0, "repetition")),
]


@pytest.mark.parametrize(("name", "facts", "end"), PLANTED)
def test_a_planted_cause_is_named_first(name, facts, end):
    causes = causes_of(facts, end)
    assert causes[0].name == name and "\n" not in causes[0].text and causes[0].change


@pytest.mark.parametrize("facts", NO_CHANGES)
def test_another_question_is_not_a_cause(facts):
    assert causes_of(facts, FINE) == []


def test_the_advised_context_holds_the_prompt_within_the_models_limit():
    def advice(prompt: int, trained: int, **facts: Any) -> tuple[str, int]:
        error = LeapGenerationPromptExceedContextLengthError(prompt, 4096, trained=trained)
        cause = causes_of(replace(failed(error), **facts), RequestEnd(1.0))[0]
        assert ("--context-size" in cause.change) == ("load the model" in (error.hint or ""))
        return cause.change, cause.context_size

    assert advice(9000, 0) == ("load the model with --context-size 9256 or more, or shorten the prompt", 9256)
    assert advice(9000, 16_384)[1] == 9256 and advice(9000, 9100)[1] == 9100
    assert advice(9000, 0, at_least=True)[1] == 18_512, "how long it is was not counted"
    for prompt, trained in ((9000, 4096), (9000, 8192)):
        assert advice(prompt, trained) == (f"shorten the prompt: the model allows no context above {trained}", 0)
    filled = replace(QUICK, context_size=4096, trained_context=4096)
    assert "--context-size" not in causes_of(filled, RequestEnd(4.0, "exceed_context"))[0].change
    wished = RequestEnd(4.0, "exceed_context", options={"max_tokens": 9000})
    assert causes_of(QUICK, wished)[0].context_size == 11_000, "prompt and answer"


def test_advice_omits_what_was_already_done():
    end = RequestEnd(4.0, "repetition", options={"repetition_penalty": 1.3})
    assert causes_of(QUICK, end)[0].change == "ask with a higher temperature"
    assert "leap load" not in causes_of(replace(QUICK, loading=3.0), replace(FINE, served=True))[0].change


def test_a_saved_state_before_the_change_is_explained():
    (cause,) = causes_of(kept_state("Answer in ", "English.", "German.", in_slots=495), FINE)
    assert "goes back only to kept states, here to token 0" in cause.text
    assert causes_of(replace(kept_state("Answer in ", "English.", "German."), by_states=False), FINE) == []


def test_other_work_is_not_blamed_while_a_request_had_no_slot():
    facts = waiting(preempted=2, swapped=3.0, writing=3.5, reading=0.5, others=0.8)
    assert [cause.name for cause in causes_of(facts, FINE)] == ["preempted"]


def test_there_are_at_least_thirty_planted_causes():
    assert len(PLANTED) >= 30 and len({name for name, *_ in PLANTED}) >= 18


def healthy(seed: int) -> tuple[RequestFacts, RequestEnd]:
    """A request as they usually are: a new question, a next turn, a first prompt, an answer under a schema."""
    rng = random.Random(seed)
    prompt = rng.randint(20, 6000)
    cached = rng.choice([0, int(prompt * 0.9), prompt - 1])
    reading, writing = (prompt - cached) / 400, rng.uniform(0.2, 20)
    position = rng.choice([cached, min(prompt - 1, cached + rng.randint(0, 40))])
    departure = Departure(
        position,
        shared=rng.randint(0, 60),
        in_slots=position,
        before=f"It is 10:{rng.randint(10, 59)}. ",
        had="What is the time at 12:30?",
        got="Is 3f2a9c1e-77aa-4b1c-9d00 an id?",
        role="user",
        message=rng.randint(2, 9),
        ended=rng.random() < 0.5,
    )
    facts = RequestFacts(
        prompt_tokens=prompt,
        cached=cached,
        answer_tokens=rng.randint(1, 400),
        context_size=8192,
        queued=rng.choice([0.0, 0.004, 0.05]),
        reading=reading,
        writing=writing,
        masks=rng.choice([0.0, 0.05 * writing]),
        others=rng.choice([None, 0.0, 0.2]),
        loading=rng.choice([0.0, 0.03]),
        searches=rng.choice([0, 1]),
        departure=rng.choice([None, departure]),
    )
    return facts, RequestEnd(reading + writing, rng.choice(["stop", "max_tokens", "interrupted"]))


def test_no_cause_is_named_of_a_hundred_healthy_requests():
    assert [seed for seed in range(100) if causes_of(*healthy(seed))] == []


def test_the_most_expensive_cause_comes_first():
    facts = replace(left("It is 01:4", "0 ", "1 "), loading=9.0, queued=2.0)
    assert [cause.name for cause in causes_of(facts, RequestEnd(15.0, "stop"))] == ["loading", "clock"]


@pytest.mark.parametrize(
    ("computed", "waited", "seconds", "is_named"),
    [
        (1.86, 0.05, 1.91, False),
        (1.69, 0.10, 1.79, False),
        (3.11, 7.59, 10.61, True),
        (2.94, 8.21, 10.93, True),
        (7.9, 24.0, 4.0, False),
        (0.4, 0.02, 4.0, False),
    ],
    ids=["quiet", "quiet too", "busy", "busy too", "own threads wait for each other", "the disk was waited for"],
)
def test_other_work_is_the_time_of_other_processes(computed: float, waited: float, seconds: float, is_named: bool):
    """The first four were measured with SmolLM2-135M on two cores: one thread before all other processes, and among
    ten to twenty that computed too."""
    others = share_lost(computed, waited, 2 * seconds)
    facts = replace(QUICK, reading=seconds / 4, writing=seconds * 3 / 4, others=others)
    named = [cause.name for cause in causes_of(facts, RequestEnd(seconds, "stop"))]
    assert named == (["other-work"] if is_named else [])


@pytest.mark.parametrize("more", [{"queued": 3.0}, {"loading": 2.9}, {"preempted": 1, "swapped": 4.0}])
def test_other_work_is_not_named_beside_what_cost_more(more: dict[str, Any]):
    facts, end = replace(QUICK, others=0.7, **more), RequestEnd(8.0, "stop")
    assert "other-work" not in [cause.name for cause in causes_of(facts, end)]
    assert "other-work" not in [
        cause.name for cause in causes_of(replace(left("It is 01:4", "0 ", "1 "), others=0.7), end)
    ]
    assert causes_of(replace(facts, queued=0.0, loading=0.5, swapped=0.0), end)[0].name == "other-work"


def test_facts_read_back_equal_and_unknown_ones_are_left_out():
    for _, facts, _ in PLANTED:
        assert RequestFacts.from_json({**facts.to_json(), "later": 1}) == facts
    assert RequestFacts().to_json() == {}


def test_the_server_log_of_a_cache_miss_has_no_text_of_prompts():
    said = departed(left("SECRET It is 01:4", "0 SECRET", "1 SECRET"))
    assert said == "departed at token 40 in the system prompt (clock)"
    assert departed(QUICK) is None


def test_the_timeline_shows_only_what_happened():
    course = course_of(replace(QUICK, queued=1.0, preempted=1, swapped=0.5, level="batch"), FINE)
    assert course["waited"] == "1.00 s for a slot (level batch)" and course["preempted"] == "once, and waited 0.50 s"
    assert course["read"] == "2000 tokens, 1900 of them from the cache, in 0.50 s (200 tokens/s)"
    assert {"loaded", "masks", "repairs", "prefix"}.isdisjoint(course)


def test_the_changing_line_is_moved_to_the_end():
    system = "You are X.\nIt is Fri Nov 27 01:41.\nBe short."
    departure = Departure(9, before="\nIt is Fri Nov 27 01:4", had="0.\nBe", got="1.\nBe")
    changed, without, moved = alternative_system(system, departure)
    assert (without, moved) == ("You are X.\nBe short.", "It is Fri Nov 27 01:41.")
    assert changed != system and changed.endswith("1.\nBe short.")

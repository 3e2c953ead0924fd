"""``ignore_eos``, ``min_tokens`` and ``stop_token_ids`` as servers that are benchmarked have them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from leap_core import ChatMessage, GenerationOptions, Leap, LeapFunction, LeapOptionsError, ModelLoadingOptions
from leap_core.conversation.responses import Complete
from leap_core.conversation.responses import GenerationFinishReason as Reason
from leap_core.conversation.streams import Stream, last_of
from leap_core.inference.engine.repetition import PROSE, RepetitionWatch
from leap_core.inference.runner import InProcessRunner
from leap_core.inference.template.reply import StopStrings

FRANCE = "What is the capital of France?"
LIGHT = {"type": "function", "function": {"name": "light", "parameters": {"properties": {"room": {"type": "string"}}}}}
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}


@pytest.fixture(scope="module")
def runner() -> Iterator[InProcessRunner]:
    with Leap.load("builtin", ModelLoadingOptions(context_size=1024)) as loaded:
        assert isinstance(loaded, InProcessRunner)
        yield loaded


def begun(runner: InProcessRunner, prompt: str = FRANCE, functions: Any = (), **given: Any) -> Stream:
    options = GenerationOptions(**{"temperature": 0.0, **given})
    return runner.start([ChatMessage("user", prompt)], functions, options)


def asked(runner: InProcessRunner, *prompt: Any, **given: Any) -> Complete:
    return last_of(begun(runner, *prompt, **given))


def text(end: Complete) -> str:
    return str(end.full_message.text)


def counted(end: Complete) -> int:
    assert end.stats is not None
    return end.stats.completion_tokens


@pytest.fixture(scope="module")
def plain(runner: InProcessRunner) -> Complete:
    end = asked(runner)
    assert end.finish_reason is Reason.STOP and counted(end) < 20, "it ends by itself"
    return end


def test_ignore_eos_gives_max_tokens_and_the_same_beginning(runner: InProcessRunner, plain: Complete) -> None:
    end = asked(runner, ignore_eos=True, max_tokens=60)
    assert (end.finish_reason, counted(end)) == (Reason.MAX_TOKENS, 60)
    assert text(end).startswith(text(plain)) and not end.warnings


def test_min_tokens_are_generated_before_the_natural_end(runner: InProcessRunner, plain: Complete) -> None:
    end = asked(runner, min_tokens=counted(plain) + 7, max_tokens=200)
    assert end.finish_reason is Reason.STOP and counted(plain) + 7 <= counted(end) < 200
    assert text(end).startswith(text(plain))
    few = asked(runner, min_tokens=counted(plain))
    assert (text(few), counted(few)) == (text(plain), counted(plain))


def test_a_stop_token_ends_the_answer_and_is_in_it(runner: InProcessRunner, plain: Complete) -> None:
    *_, token = runner.tokenize(" Paris")
    end = asked(runner, stop_token_ids=[token, 10**9])
    assert end.finish_reason is Reason.STOP and text(plain).startswith(text(end)) and text(end).endswith("Paris")
    later = asked(runner, stop_token_ids=[token, 10**9], min_tokens=counted(end), max_tokens=60)
    assert counted(later) > counted(end), "the first one would have come too early"
    assert text(asked(runner)) == text(plain), "what is kept of them is not taken for the whole answer"


def test_an_end_token_as_stop_token_counts_with_ignore_eos(runner: InProcessRunner, plain: Complete) -> None:
    end = asked(runner, ignore_eos=True, stop_token_ids=sorted(runner.model.eog_tokens), max_tokens=60)
    assert (text(end), end.finish_reason) == (text(plain), Reason.STOP)


def test_a_stop_text_counts_after_min_tokens(runner: InProcessRunner, plain: Complete) -> None:
    first = asked(runner, stop=["a"])
    assert first.stop_string == "a" and text(first) == text(plain).partition("a")[0]
    later = asked(runner, stop=["a"], min_tokens=counted(first))
    assert later.stop_string == "a" and text(plain).startswith(text(later) + "a") and "a" in text(later)
    assert asked(runner, stop=["Paris"], min_tokens=60, max_tokens=60).finish_reason is Reason.MAX_TOKENS


def test_a_stop_text_can_begin_within_min_tokens_and_end_after() -> None:
    stops = StopStrings(["abc", "x"], 2)
    given = ["xabc", "ab", "c.x."]
    taken = []
    for piece in given:
        taken.append(stops.feed(piece))
        stops.after -= 1
    assert (taken, stops.met) == (["x", "abc", ""], "abc")


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ({"regex_constraint": "[ab]{3}"}, (3, Reason.STOP)),
        ({"regex_constraint": "a+"}, (30, Reason.MAX_TOKENS)),
        ({"grammar_constraint": 'root ::= "yes" | "no"'}, (None, Reason.STOP)),
        ({"choices_constraint": ["yes", "no"]}, (None, Reason.STOP)),
    ],
    ids=str,
)
@pytest.mark.parametrize("ends", [{"ignore_eos": True}, {"min_tokens": 30}], ids=str)
def test_a_finished_constraint_ends_the_answer_before_min_tokens(
    runner: InProcessRunner, shape: dict[str, Any], expected: tuple[int | None, Reason], ends: dict[str, Any]
) -> None:
    end = asked(runner, max_tokens=30, **shape, **ends)
    length, reason = expected
    assert end.finish_reason is reason
    assert len(text(end)) == length or (length is None and text(end) in ("yes", "no"))


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
def test_json_and_calls_are_complete(runner: InProcessRunner, whole: bool) -> None:
    end = asked(runner, json_schema_constraint=json.dumps(CITY), ignore_eos=True, complete_json=whole, max_tokens=60)
    assert end.finish_reason is Reason.STOP and json.loads(text(end))["city"]
    functions = [LeapFunction.from_openai(LIGHT)]
    for choice in ("auto", "light"):
        said = "Switch on the light in the hall."
        end = asked(runner, said, functions, tool_choice=choice, ignore_eos=True, max_tokens=40)
        calls = end.full_message.function_calls
        assert calls is not None and {call.name for call in calls} == {"light"}


@pytest.mark.slow
def test_concurrent_and_cached_answers_equal_those_alone(runner: InProcessRunner) -> None:
    def options(n: int) -> dict[str, Any]:
        ends = ({"ignore_eos": True}, {"min_tokens": 25}, {"stop_token_ids": runner.tokenize(" is")}, {"stop": ["is"]})
        return {"temperature": 1.0, "rng_seed": n, "max_tokens": 30, "logprobs": n % 8 > 3, **ends[n % 4]}

    alone = [asked(runner, **options(n)) for n in range(8)]
    together = [last_of(stream) for stream in [begun(runner, **options(n)) for n in range(8)]]
    assert [(text(end), counted(end)) for end in together] == [(text(end), counted(end)) for end in alone]
    for n, end in enumerate(together):
        assert counted(end) == 30 or n % 4, "equal lengths"
        assert counted(end) >= 25 or n % 4 != 1
        assert len(end.logprobs) == (counted(end) if n % 8 > 3 else 0)

    def again(n: int) -> Complete:
        said = [ChatMessage("user", FRANCE), alone[n].full_message, ChatMessage("user", "And of Italy?")]
        return last_of(runner.start(said, (), GenerationOptions(**options(n))))

    for n in range(4):
        new, cached = again(n), again(n)
        assert text(new) == text(cached) and cached.stats is not None and cached.stats.cached_prompt_tokens


@pytest.mark.slow
def test_drafts_do_not_run_past_the_end(runner: InProcessRunner, plain: Complete) -> None:
    loading = ModelLoadingOptions(context_size=1024, prompt_lookup=True)
    with Leap.load("builtin", loading) as drafting:
        assert isinstance(drafting, InProcessRunner)
        said = f"Repeat: {text(plain) * 4}"
        stops = drafting.tokenize(" Paris")
        for given in ({"ignore_eos": True, "max_tokens": 90}, {"min_tokens": 40, "max_tokens": 90}):
            assert 40 <= counted(asked(drafting, said, **given)) <= 90
        stopped = asked(drafting, said, stop_token_ids=stops, max_tokens=60)
    assert text(stopped) == text(asked(runner, said, stop_token_ids=stops, max_tokens=60))


def test_repetition_does_not_end_an_answer_before_min_tokens() -> None:
    def ended(least: int) -> int:
        watch = RepetitionWatch(lambda token: b" word", least=least)
        return next(n for n in range(1, 10_000) if watch.goes_in_circles(n % 5))

    assert ended(0) < PROSE[0] + 20 and ended(2000) == 2000


def test_min_tokens_above_max_tokens_is_refused() -> None:
    with pytest.raises(LeapOptionsError, match="min_tokens"):
        GenerationOptions(min_tokens=5, max_tokens=4)
    with pytest.raises(LeapOptionsError, match="min_tokens"):
        GenerationOptions.build(lambda options: (setattr(options, "max_tokens", 4), setattr(options, "min_tokens", 5)))

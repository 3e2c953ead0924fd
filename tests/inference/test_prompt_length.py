"""Prompts that cannot fit are refused before any work is done on them, and given up when nobody waits."""

from __future__ import annotations

import pytest

from leap_core import ChatMessage, Leap, LeapGenerationError, LeapGenerationPromptExceedContextLengthError
from leap_core.conversation.generator import given_up_when
from leap_core.inference import prompt_maker
from leap_core.inference.prompt_maker import PIECE

LONG = "word " * 4_000_000


@pytest.fixture(scope="module")
def runner():
    with Leap.load("builtin") as runner:
        yield runner


@pytest.mark.slow
def test_reasoning_is_open_only_after_its_marker_in_replies_of_the_model(runner):
    for text, is_open in {"Hm. <think>": True, "Here are my reasoning steps:": False, "<mm:think>\n": False}.items():
        assert runner._prompts.of_text(text).opens_reasoning is is_open, text


@pytest.mark.slow
def test_a_long_prompt_is_neither_rendered_nor_tokenized_to_its_end(runner, monkeypatch):
    read = []
    tokenize = runner.model.tokenize

    def noted(text: str, **given: bool) -> list[int]:
        read.append(len(text))
        return tokenize(text, **given)

    monkeypatch.setattr(runner.model, "tokenize", noted)
    for start in (
        lambda: runner.start([ChatMessage("system", LONG), ChatMessage("user", "Hello?")]),
        lambda: runner.start([ChatMessage("user", "Hello?"), ChatMessage("assistant", LONG), ChatMessage("user", "x")]),
        lambda: runner.start_text(LONG),
    ):
        with pytest.raises(LeapGenerationPromptExceedContextLengthError, match="more than") as caught:
            start()
        assert caught.value.prompt_tokens > 2 * runner.context_size
    assert sum(read) <= 3 * PIECE


def test_a_prompt_that_nearly_fits_is_counted_to_its_end(runner):
    text = "a" * (runner.context_size + 10)
    with pytest.raises(LeapGenerationPromptExceedContextLengthError) as caught:
        runner.start_text(text)
    assert caught.value.prompt_tokens == 1 + len(runner.tokenize(text)), "with the token that opens it"


def test_a_cancelled_prompt_stops_being_tokenized(runner, monkeypatch):
    monkeypatch.setattr(prompt_maker, "check_length", _patient(prompt_maker.check_length))
    asked = iter([False, False, True])
    with given_up_when(lambda: next(asked)), pytest.raises(LeapGenerationError, match="given up"):
        runner.start_text(LONG)


def _patient(check):
    """The check for a context that would hold everything."""
    return lambda model, texts, context_size: check(model, texts, 3_000_000)

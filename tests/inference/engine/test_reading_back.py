"""A reply whose tokens are not the ones its text would be cut into is still in memory at the next turn."""

from __future__ import annotations

from leap_core import ChatMessage, Complete, GenerationOptions, Leap, ModelLoadingOptions
from leap_core.inference.runner import InProcessRunner

LENGTH = 40
AROUND = 15
"""At most so many tokens: the turn markers and the short message that follow the reply."""


def test_a_reply_of_unusual_tokens_stays_cached_at_the_next_turn() -> None:
    runner = Leap.load("builtin", ModelLoadingOptions(slots=1))
    assert isinstance(runner, InProcessRunner)
    with runner:
        (letter,) = runner.model.tokenize("e", parse_special=False)
        asked = [ChatMessage("user", "hello")]
        spelled = GenerationOptions(logit_bias={letter: 100.0}, max_tokens=LENGTH)
        *_, end = runner.start(asked, options=spelled)
        assert isinstance(end, Complete) and end.full_message.text == "e" * LENGTH
        assert len(runner.model.tokenize(end.full_message.text, parse_special=False)) < LENGTH
        more = [*asked, end.full_message, ChatMessage("user", "and now")]
        *_, end = runner.start(more, options=GenerationOptions(max_tokens=1))
        assert isinstance(end, Complete) and end.stats
        computed = end.stats.prompt_tokens - end.stats.cached_prompt_tokens
        assert computed <= AROUND < LENGTH < end.stats.cached_prompt_tokens

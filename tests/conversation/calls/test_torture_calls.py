"""The short form of scripts/torture_calls.py: random replies, streamed in random pieces."""

from __future__ import annotations

import pytest

from scripts.torture_calls import CHANNELS, PARSER_NAMES, differing, learn_from

from ...inference.template.unseen_templates import UNSEEN


def test_random_replies_read_the_same_in_pieces_and_whole():
    wrong, called = differing(20 * len(PARSER_NAMES), seed=7)
    assert wrong == []
    assert all(called[name] > 1 for name in PARSER_NAMES if name != CHANNELS.name), called


@pytest.mark.parametrize("rounds", [6, pytest.param(200, marks=pytest.mark.long)])
def test_random_replies_of_learned_formats_read_the_same_in_pieces_and_whole(rounds: int):
    names = learn_from({name: each.template for name, each in UNSEEN.items()})
    assert names == [name for name, each in UNSEEN.items() if each.is_learned]
    wrong, called = differing(rounds * len(names), 7, names)
    assert wrong == [] and all(called[name] for name in names), called

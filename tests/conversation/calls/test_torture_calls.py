"""The short form of scripts/torture_calls.py: random replies, streamed in random pieces."""

from __future__ import annotations

from scripts.torture_calls import CHANNELS, PARSER_NAMES, differing


def test_random_replies_give_in_pieces_what_they_give_whole():
    wrong, called = differing(20 * len(PARSER_NAMES), seed=7)
    assert wrong == []
    assert all(called[name] > 1 for name in PARSER_NAMES if name != CHANNELS.name), called

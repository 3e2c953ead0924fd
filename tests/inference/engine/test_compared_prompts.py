"""Which earlier prompt a prompt departs from, and how much of it is a change of the same."""

from __future__ import annotations

import random
from array import array

from leap_core.inference.engine.prompt_comparison import MOST_PROMPTS, ComputedLately, Words, departure_of
from leap_core.inference.engine.request_timeline import Computed

WORDS = Words(lambda keys: " ".join(map(str, keys)), frozenset({1}), frozenset({2}), roles=("system", "user"))
RNG = random.Random(1)
FRAME = RNG.sample(range(10, 1000), 24)


def tokens(count: int) -> list[int]:
    return [RNG.randrange(10, 30_000) for _ in range(count)]


def departure(had: list[int], got: list[int]):
    found = departure_of(got, b"", [Computed(array("q", had), b"")], WORDS)
    assert found is not None
    return found


def test_a_prompt_with_a_change_shares_what_follows():
    start, rest = tokens(20), tokens(400)
    found = departure([*start, 5, *rest], [*start, 6, *rest])
    assert found.position == 20 and found.shared >= 380 and found.edited


def test_declarations_with_only_common_syntax_are_not_similar():
    had, got = ([key for _ in range(20) for key in (*FRAME, *tokens(12))] for _ in range(2))
    assert departure([2, *had], [2, *tokens(3), *got]).shared == 0


def test_a_shortened_prompt_shares_the_rest():
    start, rest = tokens(40), tokens(2000)
    assert departure([*start, *rest], [*start, *rest[1600:], *tokens(30)]).shared >= 380


def test_image_rows_are_compared_by_their_number():
    start, rest = tokens(10), tokens(30)
    had, got = ([*start, *(-1000 * n - row for row in range(90)), *rest] for n in (1, 2))
    found = departure(had, [*got, *tokens(20)])
    assert found.media and found.shared >= 90


def test_a_prompt_is_remembered_after_many_others():
    lately, own = ComputedLately(), tokens(200)
    lately.add(own, b"")
    for _ in range(40):
        lately.add(tokens(300), b"")
    found = departure_of([*own, *tokens(80)], b"", lately.all(), WORDS)
    assert MOST_PROMPTS > 40 and found is not None and found.position == 200

"""When media are encoded: one at a time, and the others get as long as it took."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from leap_core.errors import LeapGenerationError
from leap_core.inference.engine.batch_plan import Encoder
from leap_core.inference.engine.request import Embeddings, PromptTokens, Tokens
from leap_core.inference.engine.slots import CachedRows, MediaCache

from .prompts import prompt_of


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def slot(prompt: PromptTokens, *, at: int = 0, used: int = 0) -> Any:
    return SimpleNamespace(request=SimpleNamespace(prompt=prompt), keys=prompt.keys[:at], last_used=used)


def picture(cache: MediaCache, key: bytes, clock: Clock, seconds: float = 1.0, rows: int = 4) -> PromptTokens:
    def encode(threads: int) -> Any:
        clock.now += seconds
        if key == b"broken":
            raise LeapGenerationError("no such pixels")
        return np.full((rows, 2), threads, np.float32)

    return PromptTokens((Embeddings(rows, key, CachedRows(cache, key, encode)), Tokens((1, 2))))


def test_one_medium_is_encoded_while_others_get_their_turn() -> None:
    clock, cache = Clock(), MediaCache()
    encoder = Encoder(lambda: 2, clock)
    talk = slot(prompt_of([1, 2, 3]))
    one, two = slot(picture(cache, b"one", clock), used=1), slot(picture(cache, b"two", clock, 5.0), used=2)
    failed: list[Any] = []

    def step() -> list[Any]:
        return encoder.encode_next([talk, two, one], lambda *failure: failed.append(failure))

    assert step() == [talk, one] and cache.encoded == 1 and clock.now == 1.0
    clock.now += 0.5
    assert step() == [talk, one] and cache.encoded == 1, "half of the time that the first took has gone"
    clock.now += 0.6
    assert step() == [talk, one, two] and cache.encoded == 2 and clock.now > 7
    assert step() == [talk, two, one] and not failed
    assert (cache.find(b"one") == 2.0).all()  # type: ignore[union-attr]


def test_an_encoding_alone_does_not_wait() -> None:
    clock, cache = Clock(), MediaCache()
    encoder = Encoder(lambda: 1, clock)
    one, two = slot(picture(cache, b"one", clock)), slot(picture(cache, b"two", clock), used=1)
    assert encoder.encode_next([one], print) == [one]
    assert encoder.encode_next([two], print) == [two] and cache.encoded == 2


def test_a_failed_encoding_fails_only_its_request() -> None:
    clock, cache = Clock(), MediaCache()
    talk, broken = slot(prompt_of([1])), slot(picture(cache, b"broken", clock))
    failed: list[Any] = []
    ready = Encoder(lambda: 1, clock).encode_next([talk, broken], lambda *failure: failed.append(failure))
    assert ready == [talk] and failed[0][0] is broken and "no such pixels" in str(failed[0][1])


def test_encoded_media_are_not_encoded_again() -> None:
    clock, cache = Clock(), MediaCache()
    beyond = slot(picture(cache, b"one", clock), at=4)
    assert Encoder(lambda: 1, clock).encode_next([beyond], print) == [beyond] and cache.encoded == 0


def test_the_cache_evicts_the_least_recently_used_within_its_bytes() -> None:
    cache = MediaCache(most_bytes=100)
    rows = {key: np.zeros((5, 2), np.float32) for key in (b"a", b"b", b"c")}  # 40 bytes each
    for key in (b"a", b"b"):
        cache.keep(key, rows[key])
    assert cache.find(b"a") is rows[b"a"]
    cache.keep(b"c", rows[b"c"])
    assert b"b" not in cache and b"a" in cache and b"c" in cache
    cache.keep(b"huge", np.zeros((100, 2), np.float32))
    assert b"huge" not in cache

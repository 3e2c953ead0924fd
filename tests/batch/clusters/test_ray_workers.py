"""Joining a cluster, with a stand-in for Ray."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from leap_core.batch.clusters.ray_workers import CLIENT_TRIES, connect
from leap_core.errors import LeapUnavailableError

REFUSAL = "Initialization failure from server:\nTraceback (most recent call last):\nRuntimeError: no server came"


def ray_that_refuses(times: int) -> SimpleNamespace:
    """A Ray whose head starts no server for a client so many times; ``asked`` counts."""
    made = SimpleNamespace(asked=0)

    def init(**_given: object) -> None:
        made.asked += 1
        if made.asked <= times:
            raise ConnectionAbortedError(REFUSAL)

    made.init = init
    return made


def test_a_client_retries_when_the_head_started_no_server_for_it():
    ray = ray_that_refuses(CLIENT_TRIES - 1)
    connect(ray, "ray://127.0.0.1:1")
    assert ray.asked == CLIENT_TRIES


def test_a_head_that_starts_no_server_is_an_error_with_its_reason():
    ray = ray_that_refuses(CLIENT_TRIES)
    with pytest.raises(LeapUnavailableError, match=": .* from server: RuntimeError: no server came$"):
        connect(ray, "ray://127.0.0.1:1")
    assert ray.asked == CLIENT_TRIES

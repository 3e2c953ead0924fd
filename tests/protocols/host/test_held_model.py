"""A warm model whose host ends is loaded again for the request that meets it."""

from __future__ import annotations

import pytest

from leap_core.errors import LeapGenerationError, LeapModelLoadingError, LeapUnavailableError
from leap_core.protocols.host.host_runner import HeldModel


class Host:
    """It answers, or has ended."""

    def __init__(self, alive: bool) -> None:
        self.alive = alive

    def open(self, *_: object, **__: object) -> str:
        if not self.alive:
            error = LeapUnavailableError("the model host ended unexpectedly")
            error.host_ended = True
            raise error
        return "answer"


def lost_while_loading() -> LeapModelLoadingError:
    error = LeapModelLoadingError("the model host ended unexpectedly while it loaded m")
    error.host_ended = True
    return error


def opened(*loaded: Host | Exception) -> object:
    """What a request gets from a host that is gone and whose successors are ``loaded``, one after the other."""
    coming = iter(loaded)

    def load_again(host, description):
        following = next(coming)
        if isinstance(following, Exception):
            raise following
        return following, description

    return HeldModel(Host(alive=False), {"key": "m"}, load_again).open("/", {}, timeout=1)


@pytest.mark.parametrize("first", [Host(alive=False), lost_while_loading()])
def test_a_model_is_loaded_again_when_the_next_host_ends_too(first):
    assert opened(first, Host(alive=True)) == "answer"


def test_reloading_stops_when_every_host_ends():
    with pytest.raises(LeapUnavailableError, match="ended unexpectedly"):
        opened(*[Host(alive=False)] * 9)
    with pytest.raises(
        LeapGenerationError, match="cannot be loaded again: .* ended unexpectedly while it loaded"
    ) as one:
        opened(*[lost_while_loading()] * 9)
    assert one.value.host_ended, "a line of a batch may be asked again"


def test_a_refused_model_is_not_loaded_again():
    with pytest.raises(LeapGenerationError, match="cannot be loaded again: no such file"):
        opened(LeapModelLoadingError("no such file"))

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leap_core import Leap
from leap_core.conversation.runner import ModelRunner
from leap_core.protocols.endpoint.retries import Patience

from ...conftest import CommandLine
from .fake_server import FakeEndpoint, fake_endpoint

KEY = "sk-test-1234567890"
QUICK = Patience(retries=2, first_wait=0.01, held_back=60.0, connect=60.0, silence=60.0)
"""Tries again soon; only a hang reaches the other times."""
SOON_TIRED = Patience(retries=100, first_wait=0.01, held_back=60.0, connect=60.0, silence=0.3)
"""For silence: on a slow machine an answer may be late, too, and is then asked for again."""


@pytest.fixture
def fake() -> Iterator[FakeEndpoint]:
    with fake_endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def runner(fake: FakeEndpoint, leap_home: object) -> Iterator[ModelRunner]:
    with Leap.connect(fake.url, model="m", api_key=KEY, patience=QUICK) as made:
        yield made


@pytest.fixture
def far(leap: CommandLine, fake: FakeEndpoint, tmp_path: Path) -> FakeEndpoint:
    """The fake, which ``far`` names, with a key."""
    (tmp_path / "key").write_text(KEY + "\n")
    done = leap("models", "add-endpoint", "far", fake.url, "--model", "m", "--key-file", str(tmp_path / "key"))
    assert done.code == 0, done
    return fake

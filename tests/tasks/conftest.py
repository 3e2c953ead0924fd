"""A model that is asked, and one that answers as a test wrote."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leap_core import Leap
from leap_core.conversation.runner import ModelRunner
from leap_core.tasks.task import TaskReply
from leap_core.tasks.task import asking as ask_of
from leap_core.tasks.task_fields import read_task

__all__ = ["ask_of", "do"]


@pytest.fixture(scope="package")
def builtin() -> Iterator[ModelRunner]:
    with Leap.load("builtin", host="never") as runner:
        yield runner


def do(runner: ModelRunner, text: str, **fields) -> TaskReply:
    """What a task makes of a text."""
    task, rest = read_task(fields)
    assert rest == []
    return task.complete(runner, text, name="x")

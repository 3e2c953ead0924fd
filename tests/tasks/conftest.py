"""A model that is asked, and one that answers as a test wrote."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leap_core import Leap
from leap_core.messages import ChatMessage
from leap_core.responses import Complete
from leap_core.runner.contract import ModelRunner
from leap_core.tasks.reading import read_task
from leap_core.tasks.task import TaskReply


@pytest.fixture(scope="package")
def builtin() -> Iterator[ModelRunner]:
    with Leap.load("builtin", host="never") as runner:
        yield runner


def ask_of(runner: ModelRunner):
    """Asks a runner to the end of its answer."""

    def ask(messages, options, on_text=None) -> Complete:
        *_, end = runner.start(messages, (), options)
        assert isinstance(end, Complete)
        return end

    return ask


def do(runner: ModelRunner, text: str, **fields) -> TaskReply:
    """What a task makes of a text."""
    task, rest = read_task(fields)
    assert rest == []
    return task.complete(runner, ChatMessage("user", text), ask_of(runner), name="x")

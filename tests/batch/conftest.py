"""A runner whose answers depend on what is asked, so that the order in which threads ask does not matter."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from leap_core.batch.input.rows import InputRows
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import GenerationOptions
from leap_core.errors import LeapError
from leap_core.testing import ScriptedModelRunner


class AnsweringRunner(ScriptedModelRunner):
    """Answers ``answer(text of the last message)``; an exception that this returns is raised."""

    def __init__(self, answer: Callable[[str], object] = lambda text: f"<{text}>") -> None:
        super().__init__()
        self._answer = answer
        self._turn = threading.Lock()

    def start(self, messages: Sequence[ChatMessage], functions=(), options: GenerationOptions | None = None):
        said = self._answer(messages[-1].text)
        if isinstance(said, LeapError):
            raise said
        with self._turn:
            self.add([said] if isinstance(said, str) else said)
            return super().start(messages, functions, options)

    @property
    def asked(self) -> list[str]:
        return sorted(request.messages[-1].text for request in self.requests)


@pytest.fixture
def batch(leap, tmp_path):
    """Write lines to a file and run ``leap batch`` on it with a fresh runner; returns (finished, runner)."""

    def run(lines, *args, answer=lambda text: f"<{text}>", output="out.jsonl"):
        path = tmp_path / "in.jsonl"
        path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines), "utf-8")
        leap.runner = runner = AnsweringRunner(answer)
        model = () if "-m" in args else ("-m", "builtin")
        return leap("batch", "in.jsonl", "-o", output, *model, *args), runner

    return run


@pytest.fixture
def results(tmp_path):
    """The records of an output file."""

    def read(name: str = "out.jsonl") -> list[dict]:
        return [json.loads(line) for line in (tmp_path / Path(name)).read_text("utf-8").splitlines()]

    return read


def rows_of(text: bytes) -> InputRows:
    """The rows of a JSONL text."""
    return InputRows("-", stdin=io.BytesIO(text))

"""One contract for every generation that wraps another one: stopped and closed at any moment, it ends at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from leap_core.batch.escalation import EscalatingRunner, When
from leap_core.conversation.calls.declaration import FIND, LeapFunction
from leap_core.conversation.generator import Generation, PassingGeneration, PromptProgress
from leap_core.conversation.logged_runner import LoggedRunner, LogWriter
from leap_core.conversation.messages import ChatMessage, ChatMessageRole, LeapFunctionCall
from leap_core.conversation.prompt_progress import ReportingRunner
from leap_core.conversation.responses import Chunk, Complete, FunctionCalls, GenerationFinishReason
from leap_core.conversation.streams import CheckedGeneration
from leap_core.errors import LeapGenerationError
from leap_core.inference.constraints.token_constraints import CompiledConstraint
from leap_core.tasks.decisions.guard import Guard, read_guard
from leap_core.testing import ScriptedModelRunner
from leap_core.tools.deferred_tools import FoldingRunner

USER = [ChatMessage("user", "Hello")]
READ = LeapFunction("read", "Read a file", [], deferred=True)


class Endless(Generation):
    """Gives pieces of text until it is stopped or closed."""

    prompt_tokens = 3

    def __init__(self) -> None:
        self.stopped, self.closed = threading.Event(), threading.Event()
        self.begun = threading.Event()
        self._ended = False

    @property
    def progress(self) -> PromptProgress:
        return PromptProgress(3, 0, 3, 0.1)

    def __next__(self) -> Chunk | Complete:
        self.begun.set()
        if self._ended or self.closed.is_set():
            raise StopIteration
        if self.stopped.wait(0.01):
            self._ended = True
            return Complete(ChatMessage(ChatMessageRole.ASSISTANT, "a"), GenerationFinishReason.INTERRUPTED)
        return Chunk("a")

    def stop(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        self.closed.set()


class Runner(ScriptedModelRunner):
    """Its first answers are scripts, its last one is ``last``; it begins when ``may_begin`` is set."""

    def __init__(self, *scripts: object) -> None:
        super().__init__(*scripts)
        self._left = len(scripts)
        self.last, self.may_begin, self.beginning = Endless(), threading.Event(), threading.Event()

    def start(self, messages: object, functions: object = (), options: object = None) -> Generation:
        self._left -= 1
        if self._left >= 0:
            return super().start(messages, functions, options)  # type: ignore[arg-type]
        self.beginning.set()
        assert self.may_begin.wait(100)
        return self.last


def checked(runner: Runner) -> Generation:
    constraint = CompiledConstraint(None, validate=lambda text: [] if text == "right" else ["wrong"], exact=False)
    return CheckedGeneration(runner.start(USER), constraint, lambda more: runner.start([*USER, *more]))


def guarded(runner: Runner) -> Generation:
    questions = read_guard([{"type": "predicate", "instructions": "Is it rude?", "of": "answer"}])
    return Guard(ScriptedModelRunner(), questions).guarding(USER, lambda: runner.start(USER))


def escalating(runner: Runner) -> Generation:
    near = ScriptedModelRunner("I'm sorry, I can't.")
    return EscalatingRunner(near, runner, When(refused=True)).start(USER)


def folding(runner: Runner) -> Generation:
    return FoldingRunner(runner).start(USER, [READ])


SEARCH = [FunctionCalls((LeapFunctionCall(FIND, {"query": "read a file"}),))]
FAR = {
    "checked": (checked, ("wrong",)),
    "guarded": (guarded, ()),
    "escalating": (escalating, ()),
    "folding": (folding, (SEARCH,)),
}
"""Those that begin a generation while they are read, and the answers before it."""


def near(kind: str, runner: Runner, path: Path) -> Generation:
    """Those that wrap one that runs already."""
    runner.may_begin.set()
    if kind == "passing":
        return PassingGeneration(runner.start(USER))
    if kind == "logged":
        return LoggedRunner(runner, LogWriter(path / "log.db", lambda: True, print), "test").start(USER)
    if kind == "reporting":
        return ReportingRunner(runner, lambda *_: None).start(USER)
    return FAR[kind][0](runner)


NEAR = ["passing", "logged", "reporting", "checked", "folding"]


def read(generation: Generation) -> tuple[threading.Thread, list[object]]:
    """A thread that reads to the end, and what it gets."""
    seen: list[object] = []

    def run() -> None:
        with suppress(LeapGenerationError):  # as a closed generation may end
            seen.extend(generation)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, seen


def ended(thread: threading.Thread) -> bool:
    thread.join(100)
    return not thread.is_alive()


def in_time(call: Callable[[], object]) -> None:
    """It returns although a model is being started."""
    thread = threading.Thread(target=call)
    thread.start()
    assert ended(thread)


@pytest.mark.parametrize("kind", NEAR)
def test_a_running_generation_is_stopped_and_delivers_its_end(kind: str, tmp_path: Path) -> None:
    runner = Runner()
    generation = near(kind, runner, tmp_path)
    assert (generation.prompt_tokens, generation.progress) == (3, runner.last.progress)
    thread, seen = read(generation)
    assert runner.last.begun.wait(100)
    generation.stop()
    assert ended(thread)
    assert seen[-1].finish_reason is GenerationFinishReason.INTERRUPTED


@pytest.mark.parametrize("kind", NEAR)
def test_a_closed_generation_delivers_nothing_more(kind: str, tmp_path: Path) -> None:
    runner = Runner()
    generation = near(kind, runner, tmp_path)
    generation.close()
    generation.close()
    generation.stop()
    assert list(generation) == [] and runner.last.closed.is_set()


def test_a_generation_closed_during_a_check_ends_quietly() -> None:
    generation = PassingGeneration(Endless())

    class Closing(deque[object]):
        """Is looked at, and the generation is closed at that moment."""

        def __bool__(self) -> bool:
            full = len(self) > 0
            closing = threading.Thread(target=generation.close)
            closing.start()
            closing.join(0.2)
            return full

    generation._ready = Closing([Chunk("a")])  # type: ignore[assignment]
    assert len(list(generation)) <= 1


@pytest.mark.parametrize("kind", FAR)
@pytest.mark.parametrize("close", [False, True], ids=["stop", "close"])
def test_a_generation_that_is_starting_can_be_stopped_without_waiting(kind: str, close: bool) -> None:
    wrap, scripts = FAR[kind]
    runner = Runner(*scripts)
    generation = wrap(runner)
    thread, seen = read(generation)
    assert runner.beginning.wait(100)
    in_time(generation.close if close else generation.stop)
    runner.may_begin.set()
    assert (runner.last.closed if close else runner.last.stopped).wait(100)
    assert ended(thread)
    if not close:
        assert seen[-1].finish_reason is GenerationFinishReason.INTERRUPTED


@pytest.mark.parametrize("kind", FAR)
def test_a_generation_stopped_before_it_began_starts_nothing(kind: str) -> None:
    wrap, scripts = FAR[kind]
    runner = Runner(*scripts)
    generation = wrap(runner)
    generation.stop()
    responses = list(generation)
    assert responses[-1].finish_reason is GenerationFinishReason.INTERRUPTED
    assert not runner.beginning.is_set()
    assert list(generation) == []


def test_stopping_before_the_larger_model_keeps_the_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    generation = escalating(Runner())

    def judge(*_: object) -> str:
        generation.stop()
        return "refused"

    monkeypatch.setattr(EscalatingRunner, "judge", judge)
    (complete,) = list(generation)
    assert isinstance(complete, Complete) and complete.full_message.text == "I'm sorry, I can't."
    assert complete.finish_reason is GenerationFinishReason.INTERRUPTED

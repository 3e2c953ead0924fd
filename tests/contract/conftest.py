"""The runners that must all keep one contract: the fake, llama.cpp in this process, the warm host's client, and the
client of an endpoint."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from leap_core import GenerationOptions, Leap, LeapModelLoadingError, ModelLoadingOptions, ModelRunner
from leap_core.protocols.host.lookup import keep_warm, runner_of, running_or_new_host
from leap_core.protocols.host.model_host import ModelHost
from leap_core.testing import Script, ScriptedModelRunner, Stall

LONG = 300
"""Pieces in a long answer: more than any test waits for."""


class Subject(ABC):
    """A way to get runners, and prompts whose answers are known to be short or long. ``shows_prompts``: its runners
    know the prompt that messages make, and its length."""

    shows_prompts = True

    def __init__(self) -> None:
        self._open = ExitStack()

    @abstractmethod
    def load(self, context_size: int | None = None) -> ModelRunner:
        """A new runner, which the test may unload."""

    @abstractmethod
    def short(self, runner: ModelRunner) -> str:
        """A prompt with a short answer that ends by itself."""

    @abstractmethod
    def long(self, runner: ModelRunner) -> str:
        """A prompt with an answer of LONG pieces or more."""

    def new_runner(self, context_size: int | None = None) -> ModelRunner:
        return self._open.enter_context(self.load(context_size))

    def close(self) -> None:
        self._open.close()


class Scripted(Subject):
    """The fake that ships."""

    def load(self, context_size: int | None = None) -> ModelRunner:
        return ScriptedModelRunner(context_size=context_size or 4096)

    def short(self, runner: ModelRunner) -> str:
        assert isinstance(runner, ScriptedModelRunner)
        runner.add(["The capital", " is", " Paris", "."])
        return "What is the capital of France?"

    def long(self, runner: ModelRunner) -> str:
        assert isinstance(runner, ScriptedModelRunner)
        steps: list[str | Stall] = []
        for number in range(LONG):
            steps += [f"{number} ", Stall(seconds=0.002)]
        runner.add(Script(steps))
        return "Count to 300."


class BuiltIn(Subject):
    """llama.cpp with the built-in model."""

    def load(self, context_size: int | None = None) -> ModelRunner:
        return Leap.load("builtin", ModelLoadingOptions(context_size=context_size, cpu_threads=1))

    def short(self, runner: ModelRunner) -> str:
        return "What is the capital of France?"

    def long(self, runner: ModelRunner) -> str:
        return "Count to 300."


class Warm(BuiltIn):
    """The built-in model in a host: a process of its own, which all these tests share."""

    def __init__(self, variables: dict[str, str]) -> None:
        super().__init__()
        self._variables = variables

    def load(self, context_size: int | None = None) -> ModelRunner:
        wish = {"cpu_threads": 1, "context_size": context_size}
        try:
            host, held = keep_warm("builtin", variables=self._variables, **wish)
            if context_size is None and held["context_size"] == SMALL:
                raise LeapModelLoadingError("left by another test")
        except LeapModelLoadingError:  # it is there with another context
            running_or_new_host(self._variables).unload("builtin")
            host, held = keep_warm("builtin", variables=self._variables, **wish)
        return runner_of(host, held)


class Elsewhere(Warm):
    """The built-in model at an endpoint: the host's, asked as any client of OpenAI's protocol asks it."""

    shows_prompts = False

    def load(self, context_size: int | None = None) -> ModelRunner:
        super().load(context_size).unload()
        host = ModelHost.running(self._variables)
        assert host is not None
        return Leap.connect(f"http://127.0.0.1:{host.state.port}/v1", model="builtin", api_key=host.files.read_token())


SMALL = 64
"""The context that tests of its end ask for."""

SUBJECTS: dict[str, type[Subject]] = {"scripted": Scripted, "built-in": BuiltIn, "host": Warm, "endpoint": Elsewhere}


@pytest.fixture(scope="session")
def host_variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a host that is ended after the last test."""
    variables = {**os.environ, "LEAP_HOME": str(tmp_path_factory.mktemp("host"))}
    yield variables
    host = ModelHost.running(variables)
    if host is not None:
        host.unload(None)


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    kind = SUBJECTS[request.param]
    made = kind(request.getfixturevalue("host_variables")) if issubclass(kind, Warm) else kind()
    yield made
    made.close()


@pytest.fixture
def runner(subject: Subject) -> ModelRunner:
    return subject.new_runner()


GREEDY = GenerationOptions(temperature=0)

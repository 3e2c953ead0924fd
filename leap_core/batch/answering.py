"""What answers the lines of a batch: threads over a model that writes, calls of one that makes vectors, a cluster."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from ..errors import LeapError
from ..runner.contract import ModelRunner
from ..runner.embedding import EmbeddingRunner
from .concurrent_answers import AnsweringThreads, Answers
from .embedding_answers import EmbeddingAnswers
from .input.line_index import LineIndex
from .input.lines import RequestReader
from .journal.line_result import Embedded
from .pace import Pace

Answer: TypeAlias = "Answers | Embedded"


class LineAnswers(Protocol):
    """Answers lines as they come."""

    def answers(
        self, work: Iterator[tuple[int, LineIndex]], count: int, /
    ) -> Iterator[tuple[int, str, Answer | LeapError]]:
        """Place, name and outcome of each of the ``count`` lines, in any order; it ends early once it is stopped."""
        ...


class RemoteRunner(ABC):
    """Models of other processes that answer lines. A context manager."""

    model_id: str
    speaks: bool

    @abstractmethod
    def answering(self, stop: threading.Event) -> AbstractContextManager[LineAnswers]:
        """What answers lines until ``stop`` is set."""

    @abstractmethod
    def __enter__(self) -> RemoteRunner: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...


Runner = ModelRunner | EmbeddingRunner | RemoteRunner


def answering(
    runner: Runner, reader: RequestReader, concurrency: int, stop: threading.Event, pace: Pace | None = None
) -> AbstractContextManager[LineAnswers]:
    """A context manager whose ``answers`` gives the outcomes of lines. All lines are of the runner's kind."""
    if isinstance(runner, RemoteRunner):
        return runner.answering(stop)
    if isinstance(runner, EmbeddingRunner):
        return EmbeddingAnswers(runner, reader, stop)
    return AnsweringThreads(runner, reader, concurrency, stop, pace)

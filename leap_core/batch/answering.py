"""What answers the lines of a batch: threads over a model that writes, or calls of one that makes vectors."""

from __future__ import annotations

import threading
from typing import TypeAlias

from ..runner.contract import ModelRunner
from ..runner.embedding import EmbeddingRunner
from .concurrent_answers import AnsweringThreads, Answers
from .embedding_answers import EmbeddingAnswers
from .input.lines import RequestReader
from .journal.line_result import Embedded

Runner = ModelRunner | EmbeddingRunner
Answer: TypeAlias = "Answers | Embedded"


def answering(
    runner: Runner, reader: RequestReader, concurrency: int, stop: threading.Event
) -> AnsweringThreads | EmbeddingAnswers:
    """A context manager whose ``answers`` gives the outcomes of lines. All lines are of the runner's kind."""
    if isinstance(runner, EmbeddingRunner):
        return EmbeddingAnswers(runner, reader, stop)
    return AnsweringThreads(runner, reader, concurrency, stop)

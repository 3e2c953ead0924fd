"""Vectors for the lines of a batch: the texts of several lines in one call of the model."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from ..errors import LeapError, LeapOptionsError, LeapUnavailableError
from ..runner.embedding import EmbeddingRunner
from .input.embedding_lines import EmbeddingLine
from .input.line_index import LineIndex, read_again
from .input.lines import RequestReader
from .journal.line_result import Embedded

TEXTS_AT_ONCE = 32

Named = tuple[int, str, EmbeddingLine]
"""A line's place, its name, and what it asks."""


class EmbeddingAnswers:
    """Answers lines one call after the other: the model's arithmetic takes turns anyway. A context manager."""

    def __init__(self, runner: EmbeddingRunner, reader: RequestReader, stop: threading.Event) -> None:
        self._runner, self._reader, self._stop = runner, reader, stop

    def answers(
        self, work: Iterator[tuple[int, LineIndex]], _count: int
    ) -> Iterator[tuple[int, str, Embedded | LeapError]]:
        """Place, name and outcome of each line, in order; it ends early once ``stop`` is set. Raises InputChangedError
        for a line that is no longer what was checked."""
        held: list[Named] = []
        for n, lines in work:
            if self._stop.is_set():
                return
            custom_id, line = read_again(self._reader, lines, n)
            assert isinstance(line, EmbeddingLine), "a line for an answer"
            texts = sum(len(each.request.texts) for _, _, each in held)
            if held and (texts >= TEXTS_AT_ONCE or line.request.options != held[0][2].request.options):
                yield from self._embed(held)
                held = []
            held.append((n, custom_id, line))
        if held:
            yield from self._embed(held)

    def __enter__(self) -> EmbeddingAnswers:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def _embed(self, held: Sequence[Named]) -> Iterator[tuple[int, str, Embedded | LeapError]]:
        """Outcomes of lines with equal options; of one alone where their texts together are refused."""
        if self._stop.is_set():
            return
        texts = [text for _, _, line in held for text in line.request.texts]
        request = held[0][2].request
        try:
            counts = self._runner.count_tokens(texts, request.kind)
            vectors = self._runner.embed(texts, cancelled=self._stop, **request.options)
        except LeapUnavailableError:
            raise
        except LeapError as error:
            if self._stop.is_set():
                return
            if isinstance(error, LeapOptionsError) and len(held) > 1:  # one text is too long: the others are not
                for each in held:
                    yield from self._embed([each])
                return
            yield from ((n, custom_id, error) for n, custom_id, _ in held)
            return
        most, place = self._runner.most_tokens, 0
        for n, custom_id, line in held:
            part = slice(place, place + len(line.request.texts))
            tokens = sum(min(most, count) for count in counts[part])
            yield n, custom_id, Embedded(vectors[part], tokens, line.request.as_base64)
            place = part.stop

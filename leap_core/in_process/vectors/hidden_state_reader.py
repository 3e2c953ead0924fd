"""Hidden states of texts, computed in a context of their own beside the one that generates."""

from __future__ import annotations

import threading

from ...engine.embedding_queue import EmbeddingQueue, EmbeddingWork
from ...engine.request import Adapters
from ...engine.threads import usable_cores
from ...errors import LeapGenerationError, LeapGenerationPromptExceedContextLengthError
from ...llama.embedding_context import EmbeddingContext
from ...llama.model import LlamaModel
from ...options import ModelLoadingOptions
from ...runner.hidden_states import HiddenStates

POLL_SECONDS = 1.0


class HiddenStateReader:
    """Reads texts of up to ``context_size`` tokens. Its context is made when the first text comes."""

    def __init__(self, model: LlamaModel, context_size: int, options: ModelLoadingOptions) -> None:
        self._model, self._context_size, self._options = model, context_size, options
        self._guard = threading.Lock()
        self._context: EmbeddingContext | None = None
        self._queue: EmbeddingQueue | None = None

    def of_text(self, text: str, adapters: Adapters) -> HiddenStates:
        """The hidden states of a text as it is. Raises LeapGenerationError."""
        tokens = self._model.tokenize(text, parse_special=True)
        bos = self._model.bos_token
        if bos is not None and tokens[:1] != [bos]:
            tokens.insert(0, bos)
        if not tokens:
            raise LeapGenerationError("the text is empty")
        if len(tokens) > self._context_size:
            raise LeapGenerationPromptExceedContextLengthError(len(tokens), self._context_size)
        context, queue = self._opened()
        work = EmbeddingWork(context, [tokens], adapters=adapters)
        queue.submit(work)
        while not work.wait(POLL_SECONDS):
            pass
        if work.error is not None:
            raise work.error
        return HiddenStates(work.vectors[0])

    def _opened(self) -> tuple[EmbeddingContext, EmbeddingQueue]:
        threads = self._options.cpu_threads or usable_cores()
        with self._guard:
            if self._context is None or self._queue is None:
                self._context = EmbeddingContext(
                    self._model,
                    pooling="none",
                    most_tokens=self._context_size,
                    most_texts=1,
                    threads=threads,
                    flash=self._options.flash_attention,
                )
                self._queue = EmbeddingQueue(threads)
            return self._context, self._queue

    def close(self) -> None:
        """Free the context."""
        with self._guard:
            if self._queue is not None:
                self._queue.close()
            if self._context is not None:
                self._context.close()

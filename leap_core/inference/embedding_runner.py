"""Texts to vectors in this process: embeddings and hidden states."""

from __future__ import annotations

import string
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..conversation.embedding import (
    NO_POOLING,
    EmbeddingKind,
    EmbeddingOptions,
    EmbeddingRequest,
    EmbeddingRunner,
    TooLong,
    checked_texts,
    require_pooling,
    unit_rows,
)
from ..conversation.generator import HiddenStates, OnGpu
from ..conversation.options import ModelLoadingOptions
from ..errors import (
    LeapGenerationError,
    LeapGenerationPromptExceedContextLengthError,
    LeapModelLoadingError,
    LeapOptionsError,
)
from ..system.dataclass import dataclass
from .engine.embedding_queue import EmbeddingQueue, EmbeddingWork
from .engine.request import Adapters
from .engine.threads import usable_cores
from .llama.embedding_context import EmbeddingContext
from .llama.model import LlamaModel
from .model_parts import Closing, ModelParts, open_with_fewer_layers

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

QUERY_KEY, DOCUMENT_KEY = "leap.embedding.query_prefix", "leap.embedding.document_prefix"
"""Keys of a GGUF's header by which a file says it itself."""
QUERY_MARKER, DOCUMENT_MARKER = "[Q] ", "[D] "
"""Tokens of ColBERT models, read after the opening token."""


@dataclass(frozen=True)
class Prefixes:
    """Text before a query and before a document; "" for none."""

    query: str = ""
    document: str = ""

    def of(self, kind: str) -> str:
        """The prefix of a kind of text."""
        return self.query if kind == EmbeddingKind.QUERY else self.document


BY_NAME = (
    ("lfm2.5-embedding", Prefixes("query: ", "document: ")),
    ("embeddinggemma", Prefixes("task: search result | query: ", "title: none | text: ")),
    ("nomic-embed-text", Prefixes("search_query: ", "search_document: ")),
    ("multilingual-e5", Prefixes("query: ", "passage: ")),
    ("e5-", Prefixes("query: ", "passage: ")),
    ("mxbai-embed", Prefixes("Represent this sentence for searching relevant passages: ", "")),
    ("qwen3-embedding", Prefixes("Instruct: Given a web search query, retrieve relevant passages\nQuery: ", "")),
)
"""By a part of the model's name, as the cards of the models say. The first that fits counts."""


def prefixes_of(model: LlamaModel) -> Prefixes:
    """What the file's header says, else what is known by the model's name, else none."""
    query, document = model.metadata(QUERY_KEY), model.metadata(DOCUMENT_KEY)
    if query is not None or document is not None:
        return Prefixes(query or "", document or "")
    names = f"{model.metadata('general.name') or ''} {model.path.name}".lower().replace(" ", "-")
    return next((prefixes for part, prefixes in BY_NAME if part in names), Prefixes())


MOST_TOKENS_OF_ENCODERS = 512
"""A text has at most these by default: encoders read it in one piece, and LFM2.5-Embedding was trained so."""
MOST_TOKENS = 2048
"""The same for models that read from left to right."""
TEXTS_AT_ONCE = 32
POLL_SECONDS = 0.05


class InProcessEmbeddingRunner(EmbeddingRunner):
    """A model loaded into this process to make vectors.

    ``options``: ``context_size`` is the most tokens of a text. ``hold`` is closed with the model. A model that was not
    made for embeddings loads too; it then needs ``pooling`` at every call. Raises LeapModelLoadingError.
    """

    def __init__(self, path: Path, model_id: str, options: ModelLoadingOptions, *, hold: Closing | None = None) -> None:
        self._model_id = model_id
        self._options = options = options.with_extras()
        self.model, _ = open_with_fewer_layers(path, options, generates=False)
        try:
            self._most_tokens = most_tokens_for(self.model, model_id, options.context_size)
            if self.model.pooling == "rank":
                raise LeapModelLoadingError(f"{model_id} gives scores for pairs of texts, not vectors")
        except BaseException:
            self.model.close()
            raise
        self._prefixes = prefixes_of(self.model)
        self._contexts = _Contexts(self.model, self._most_tokens, options)
        self._queue = EmbeddingQueue(options.cpu_threads or usable_cores())
        self._loaded = ModelParts(self._queue, self._contexts, self.model, *([hold] if hold else []))
        self._loaded.unload_with(self)

    @property
    def model_id(self) -> str:
        return self._model_id

    @property
    def fingerprint(self) -> bytes:
        return self.model.fingerprint

    @property
    def dimensions(self) -> int:
        return self.model.output_width

    @property
    def on_gpu(self) -> OnGpu:
        return self.model.share_on_gpu

    @property
    def most_tokens(self) -> int:
        return self._most_tokens

    def text_of(self, tokens: Sequence[int]) -> str:
        self.model.check_tokens(tokens)
        return self.model.text_of(tokens)

    @property
    def pools(self) -> bool:
        return self.model.pooling not in (None, NO_POOLING)

    @property
    def is_late(self) -> bool:
        return self.model.pooling == NO_POOLING

    def count_tokens(self, texts: Sequence[str], kind: EmbeddingKind | str = EmbeddingKind.DOCUMENT) -> list[int]:
        with self._loaded.in_use():
            kind = EmbeddingOptions(kind).kind
            return [len(self._tokens(text, kind, self._prefixes.of(kind))) for text in texts]

    def _embed(self, request: EmbeddingRequest) -> NDArray[float32]:
        import numpy as np

        dimensions = request.options.dimensions
        if dimensions is not None and dimensions > self.dimensions:
            raise LeapOptionsError("dimensions", f"{dimensions} must be between 1 and {self.dimensions}")
        how = request.options.pooling or require_pooling(self._model_id, self.model.pooling)
        with self._loaded.in_use():
            vectors = self._compute(how, self._all_tokens(request), request)
        rows = np.stack(vectors) if vectors else np.zeros((0, self.dimensions), np.float32)
        return unit_rows(rows[:, :dimensions])

    def _embed_tokens(self, request: EmbeddingRequest) -> list[NDArray[float32]]:
        with self._loaded.in_use():
            tokens = self._all_tokens(request)
            vectors = self._compute(NO_POOLING, tokens, request)
            positions = [self._scored(ids, request.options.kind) for ids in tokens]
        return [unit_rows(rows[each]) for rows, each in zip(vectors, positions, strict=True)]

    def unload(self) -> None:
        self._loaded.unload()

    def _all_tokens(self, request: EmbeddingRequest) -> list[list[int]]:
        texts = checked_texts(request.texts)
        kind, prefix = request.options.kind, request.options.prefix
        prefix = self._prefixes.of(kind) if prefix is None else prefix
        all_tokens = []
        for number, text in enumerate(texts):
            tokens = self._tokens(text, kind, prefix)
            if len(tokens) > self._most_tokens:
                if request.options.too_long == TooLong.REFUSE:
                    raise LeapOptionsError(
                        f"texts[{number}]",
                        f"{len(tokens)} tokens, and {self._model_id} reads at most {self._most_tokens}; "
                        "cut it into pieces, or let its end be cut off (too_long)",
                    )
                tokens = self._cut(tokens)
            all_tokens.append(tokens)
        return all_tokens

    def _tokens(self, text: str, kind: str, prefix: str) -> list[int]:
        """A text as the model reads it, special tokens that it spells staying text; at least one token."""
        tokens = self.model.tokenize(prefix + text, parse_special=False, add_special=True)
        marker = self.model.special_tokens.get(QUERY_MARKER if kind == EmbeddingKind.QUERY else DOCUMENT_MARKER)
        if marker is not None:
            tokens.insert(1 if tokens[:1] == [self.model.bos_token] else 0, marker)
        return tokens or self.model.tokenize(" ", parse_special=False)

    def _cut(self, tokens: list[int]) -> list[int]:
        """A text that is too long without its end, but with the token that closes it."""
        closing = tokens[-1:] if tokens[-1] in self.model.control_tokens else []
        return tokens[: self._most_tokens - len(closing)] + closing

    def _scored(self, tokens: list[int], kind: str) -> list[int]:
        """The positions of late interaction: ColBERT leaves the punctuation of documents out."""
        if kind == EmbeddingKind.QUERY or DOCUMENT_MARKER not in self.model.special_tokens:
            return list(range(len(tokens)))
        pieces = [self.model.piece(token).decode("utf-8", "replace") for token in tokens]
        kept = [n for n, piece in enumerate(pieces) if len(piece) != 1 or piece not in string.punctuation]
        return kept or list(range(len(tokens)))

    def _compute(self, pooling: str, tokens: list[list[int]], request: EmbeddingRequest) -> list[NDArray[float32]]:
        work = EmbeddingWork(self._contexts.of(pooling), tokens, request.on_progress, request.cancelled)
        self._queue.submit(work)
        while not work.wait(POLL_SECONDS):
            if work.was_cancelled:
                self._queue.cancel(work)
        if work.error is not None:
            raise work.error
        return [work.vectors[n] for n in range(len(tokens))]


class _Contexts:
    """A context for each kind of pooling, made when it is first used."""

    def __init__(self, model: LlamaModel, most_tokens: int, options: ModelLoadingOptions) -> None:
        self._model, self._most_tokens, self._options = model, most_tokens, options
        self._guard = threading.Lock()
        self._made: dict[str, EmbeddingContext] = {}

    def of(self, pooling: str) -> EmbeddingContext:
        """Raises LeapModelLoadingError when there is no memory for it."""
        with self._guard:
            context = self._made.get(pooling)
            if context is None:
                context = self._made[pooling] = EmbeddingContext(
                    self._model,
                    pooling=pooling,
                    most_tokens=self._most_tokens,
                    most_texts=TEXTS_AT_ONCE,
                    threads=self._options.cpu_threads or usable_cores(),
                    flash=self._options.flash_attention,
                )
            return context

    def close(self) -> None:
        """Free their memory."""
        for context in self._made.values():
            context.close()


def most_tokens_for(model: LlamaModel, name: str, size: int | None) -> int:
    """The most tokens of a text: ``size``, or the model's own. Raises LeapModelLoadingError for more than it was
    trained for."""
    trained = model.trained_context
    default = MOST_TOKENS if model.is_causal else MOST_TOKENS_OF_ENCODERS
    if size is None:
        return min(default, trained) if trained > 0 else default
    if 0 < trained < size:
        raise LeapModelLoadingError(
            f"texts of {size} tokens are longer than the {trained} that {name} was trained for",
            hint=f"use {trained} or less",
        )
    return size


HIDDEN_STATE_POLL_SECONDS = 1.0


class HiddenStateReader:
    """Reads texts of up to ``context_size`` tokens. Raises LeapModelLoadingError when there is no memory for it."""

    def __init__(self, model: LlamaModel, context_size: int, options: ModelLoadingOptions) -> None:
        self._model = model
        threads = options.cpu_threads or usable_cores()
        self._context = EmbeddingContext(
            model,
            pooling=NO_POOLING,
            most_tokens=context_size,
            most_texts=1,
            threads=threads,
            flash=options.flash_attention,
        )
        self._queue = EmbeddingQueue(threads)

    def of_text(self, text: str, adapters: Adapters) -> HiddenStates:
        """The hidden states of a text as it is. Raises LeapGenerationError."""
        tokens = self._model.tokenize(text, parse_special=True)
        bos = self._model.bos_token
        if bos is not None and tokens[:1] != [bos]:
            tokens.insert(0, bos)
        if not tokens:
            raise LeapGenerationError("the text is empty")
        if len(tokens) > self._context.most_tokens:
            raise LeapGenerationPromptExceedContextLengthError(len(tokens), self._context.most_tokens)
        work = EmbeddingWork(self._context, [tokens], adapters=adapters)
        self._queue.submit(work)
        while not work.wait(HIDDEN_STATE_POLL_SECONDS):
            pass
        if work.error is not None:
            raise work.error
        return HiddenStates(work.vectors[0])

    def close(self) -> None:
        """Free the context."""
        self._queue.close()
        self._context.close()

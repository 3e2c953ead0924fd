"""The contract of a model that turns texts into vectors."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import LeapOptionsError
from ..system.dataclass import dataclass
from .loading_options import refusing_unknown
from .option_rows import SAME, Endpoint, OneOf, Whole, Words, keep_checked, option, rows_of

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from .generator import OnGpu


Value = TypeVar("Value")


class EmbeddingKind(str, Enum):
    """What a text is: retrieval models read a prefix, another one for questions than for what may answer them."""

    QUERY = "query"
    DOCUMENT = "document"


class Pooling(str, Enum):
    """How the vectors of a text's tokens become one."""

    MEAN = "mean"
    CLS = "cls"
    """The first token's."""
    LAST = "last"


class TooLong(str, Enum):
    """What happens to a text of more tokens than the model takes."""

    REFUSE = "refuse"
    CUT = "cut"
    """Its end is left out."""


def _names(kind: type[Enum]) -> OneOf:
    return OneOf(tuple(str(each.value) for each in kind))


@refusing_unknown
@dataclass(frozen=True)
class EmbeddingOptions:
    """How texts become vectors, see ``EmbeddingRunner.embed``. Raises LeapOptionsError for a value out of range."""

    kind: str = option(
        _names(EmbeddingKind),
        "document",
        chat=("input_type",),
        common=True,
        text="Kind of the texts; some models embed queries and documents differently.",
    )
    pooling: str | None = option(
        _names(Pooling),
        chat=(SAME,),
        endpoint="a pooling",
        common=True,
        text="Pooling of the token embeddings; the model's own by default.",
    )
    dimensions: int | None = option(
        Whole(1),
        chat=(SAME,),
        endpoint=Endpoint.SENT,
        common=True,
        text="Truncate each embedding to its first N dimensions.",
    )
    prefix: str | None = option(
        Words(), chat=(SAME,), common=True, text="Prefix for each text, instead of the model's own."
    )
    too_long: str = option(
        _names(TooLong),
        "refuse",
        chat=(SAME,),
        common=True,
        text="Refuse a text that exceeds the model's context, or truncate it.",
    )

    def __post_init__(self) -> None:
        keep_checked(self, EMBEDDING)

    def to_json(self) -> dict[str, Any]:
        """Those that are not left at their defaults."""
        return {name: value for name, row in EMBEDDING.items() if (value := getattr(self, name)) != row.default}


EMBEDDING = rows_of(EmbeddingOptions)


@dataclass(frozen=True)
class EmbeddingRequest:
    """What ``embed`` and ``embed_tokens`` are called with."""

    texts: Sequence[str]
    options: EmbeddingOptions = field(default_factory=EmbeddingOptions)
    on_progress: Callable[[int], object] | None = None
    cancelled: threading.Event | None = None


NO_POOLING = "none"


def require_pooling(model_id: str, pooling: str | None) -> str:
    """The pooling that a model's file names. Raises LeapOptionsError where it names none that makes one vector of a
    text."""
    if pooling == NO_POOLING:
        raise LeapOptionsError(
            "pooling", f"{model_id} gives a vector for each token (--tokens, embed_tokens), none for a text"
        )
    if pooling is None:
        raise LeapOptionsError(
            "pooling", f"{model_id} was not made for embeddings; say mean, cls or last to use it all the same"
        )
    return pooling


class EmbeddingRunner(ABC):
    """A loaded model for embeddings. Any thread may call; calls of several threads take turns."""

    @property
    @abstractmethod
    def model_id(self) -> str:
        """The name of the model, for people and records."""

    @property
    @abstractmethod
    def fingerprint(self) -> bytes:
        """Distinguishes models whose vectors cannot be compared (16 bytes)."""

    @property
    @abstractmethod
    def dimensions(self) -> int:
        """Numbers of a vector."""

    @property
    @abstractmethod
    def most_tokens(self) -> int:
        """Tokens that a text may have, prefix included."""

    @property
    def on_gpu(self) -> OnGpu | None:
        """What of the model is on GPUs; None where that is not known."""
        return None

    @property
    def pools(self) -> bool:
        """Whether ``embed`` works without ``pooling``."""
        return True

    @property
    def is_late(self) -> bool:
        """Whether the model was made for late interaction: a vector for each token."""
        return False

    def text_of(self, tokens: Sequence[int]) -> str:
        """The text of token ids. Raises LeapOptionsError where it cannot be had, or there is no such token."""
        raise LeapOptionsError("input", f"{self.model_id} takes texts here, and no token ids")

    def texts_of(self, inputs: Sequence[str | list[int]]) -> list[str]:
        """The texts that inputs are or whose token ids they are. Raises LeapOptionsError."""
        return [each if isinstance(each, str) else self.text_of(each) for each in inputs]

    @abstractmethod
    def count_tokens(self, texts: Sequence[str], kind: EmbeddingKind | str = EmbeddingKind.DOCUMENT) -> list[int]:
        """Tokens of each text, prefix included."""

    def embed(
        self,
        texts: Sequence[str],
        kind: EmbeddingKind | str = EmbeddingKind.DOCUMENT,
        *,
        pooling: Pooling | str | None = None,
        dimensions: int | None = None,
        prefix: str | None = None,
        too_long: TooLong | str = TooLong.REFUSE,
        on_progress: Callable[[int], object] | None = None,
        cancelled: threading.Event | None = None,
    ) -> NDArray[float32]:
        """One vector of unit length for each text, shape [texts, dimensions], float32.

        ``pooling``: None is the model's own. ``dimensions``: only so many of a vector's first numbers, brought to unit
        length again (for models trained for that). ``prefix``: instead of the model's own for this ``kind``.
        ``on_progress`` gets the count of texts that are done, from another thread. Setting ``cancelled`` ends the call
        with LeapGenerationError. Raises LeapOptionsError for options that the model cannot follow and for a text that
        is too long, LeapGenerationError after ``unload``.
        """
        options = EmbeddingOptions(kind, pooling, dimensions, prefix, too_long)
        return self._embed(EmbeddingRequest(texts, options, on_progress, cancelled))

    def embed_tokens(
        self,
        texts: Sequence[str],
        kind: EmbeddingKind | str = EmbeddingKind.DOCUMENT,
        *,
        prefix: str | None = None,
        too_long: TooLong | str = TooLong.REFUSE,
        on_progress: Callable[[int], object] | None = None,
        cancelled: threading.Event | None = None,
    ) -> list[NDArray[float32]]:
        """Vectors of unit length for the tokens of each text, shape [tokens, dimensions], for late interaction: the
        score of a document is the sum over the query's tokens of the best product with one of the document's. Options
        as in ``embed``."""
        options = EmbeddingOptions(kind, None, None, prefix, too_long)
        return self._embed_tokens(EmbeddingRequest(texts, options, on_progress, cancelled))

    @abstractmethod
    def _embed(self, request: EmbeddingRequest) -> NDArray[float32]: ...

    @abstractmethod
    def _embed_tokens(self, request: EmbeddingRequest) -> list[NDArray[float32]]:
        """``pooling`` and ``dimensions`` have no meaning here."""

    @abstractmethod
    def unload(self) -> None:
        """Free the model; calls that run end with LeapGenerationError. Harmless when repeated."""

    async def embed_async(
        self, texts: Sequence[str], kind: EmbeddingKind | str = EmbeddingKind.DOCUMENT, **options: object
    ) -> NDArray[float32]:
        """``embed`` without blocking the event loop; cancelling the task ends the work."""
        return await _in_thread(lambda cancelled: self.embed(texts, kind, cancelled=cancelled, **options))  # type: ignore[arg-type]

    async def embed_tokens_async(
        self, texts: Sequence[str], kind: EmbeddingKind | str = EmbeddingKind.DOCUMENT, **options: object
    ) -> list[NDArray[float32]]:
        """``embed_tokens`` without blocking the event loop; cancelling the task ends the work."""
        return await _in_thread(lambda cancelled: self.embed_tokens(texts, kind, cancelled=cancelled, **options))  # type: ignore[arg-type]

    def __enter__(self) -> EmbeddingRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.unload()


async def _in_thread(work: Callable[[threading.Event], Value]) -> Value:
    import asyncio  # here, because every start of a command would pay for it

    cancelled = threading.Event()
    try:
        return await asyncio.to_thread(work, cancelled)
    except asyncio.CancelledError:
        cancelled.set()
        raise


def checked_texts(texts: Sequence[str]) -> Sequence[str]:
    """Raises LeapOptionsError for what is no list of texts."""
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise LeapOptionsError("texts", "must be a list of texts")
    return texts


def parts_of(texts: Sequence[str], most: int, most_characters: int) -> Iterator[list[str]]:
    """As many texts as make a request. Raises LeapOptionsError for what is no list of texts."""
    part: list[str] = []
    for text in checked_texts(texts):
        if part and (len(part) >= most or sum(map(len, part)) + len(text) > most_characters):
            yield part
            part = []
        part.append(text)
    if part:
        yield part


def unit_rows(rows: NDArray[float32]) -> NDArray[float32]:
    """Rows of unit length; a row of zeros stays."""
    import numpy as np

    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    unit: NDArray[float32] = (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return unit


def max_sim(query: NDArray[float32], document: NDArray[float32]) -> float:
    """The sum over the query's tokens of the largest product with one of the document's; rows have unit length."""
    if not len(query) or not len(document):
        return 0.0
    return float((query @ document.T).max(axis=1).sum())


def rank(
    runner: EmbeddingRunner, query: str, documents: Sequence[str], *, cancelled: threading.Event | None = None
) -> list[tuple[int, float]]:
    """Numbers of the documents with their scores, best first: by MaxSim where the model gives a vector for each token,
    else by the cosine of the texts' vectors. Setting ``cancelled`` ends it with LeapGenerationError. Raises
    LeapOptionsError for a model that was not made for embeddings."""
    if not documents:
        return []
    if runner.pools:
        vector = runner.embed([query], "query", too_long="cut", cancelled=cancelled)[0]
        scores = (runner.embed(documents, "document", too_long="cut", cancelled=cancelled) @ vector).tolist()
    elif not runner.is_late:
        raise LeapOptionsError("model", f"{runner.model_id} was not made for embeddings, and orders nothing")
    else:
        (tokens,) = runner.embed_tokens([query], "query", too_long="cut", cancelled=cancelled)
        rows = runner.embed_tokens(documents, "document", too_long="cut", cancelled=cancelled)
        scores = [max_sim(tokens, each) for each in rows]
    return sorted(enumerate(scores), key=lambda pair: -pair[1])

"""Questions to an index: by words, by vectors, or by both; and the prompt made of the passages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from ...conversation.embedding import rank
from ...conversation.messages import ChatMessage
from ...errors import LeapModelNotFoundError, LeapOptionsError
from ...system.dataclass import dataclass
from ...system.full_text_search import fts_query
from .index_file import IndexFile, Passage
from .vector_table import VectorTable, open_table

if TYPE_CHECKING:
    from ...conversation.embedding import EmbeddingRunner

RANK_CONSTANT = 10
"""The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009). They take 60, with which a poor model's
vectors outweigh the words: see benchmarks/recall.py."""
DEEP = 100
"""Chunks that each kind of search contributes at least."""
RERANKED = 50


class SearchMode(str, Enum):
    """What a question is held against."""

    HYBRID = "hybrid"
    WORDS = "words"
    VECTORS = "vectors"


@dataclass(frozen=True)
class Hit:
    """A passage that was found. ``score``: higher is better, and comparable within one answer only. ``word_rank`` and
    ``vector_rank``: its place in each search, from 1; None where it was not found by that."""

    passage: Passage
    score: float
    word_rank: int | None
    vector_rank: int | None


def runner_of_index(
    index: IndexFile, mode: SearchMode | str, open_runner: Callable[[str], EmbeddingRunner]
) -> tuple[EmbeddingRunner | None, LeapModelNotFoundError | None]:
    """The model that made the index's vectors, opened by its reference; None where none is needed. Where it cannot be
    found, words alone can be searched, and the error is returned; where only vectors are wanted it is raised."""
    mode, settings = _mode(mode), index.settings
    if settings is None or settings.model is None or mode is SearchMode.WORDS:
        return None, None
    try:
        return open_runner(settings.model), None
    except LeapModelNotFoundError as error:
        if mode is SearchMode.VECTORS:
            raise
        return None, error


class Searcher:
    """An open index with its vectors. ``runner``: the model of the index, None to search by words alone."""

    def __init__(self, index: IndexFile, runner: EmbeddingRunner | None = None) -> None:
        self.index = index
        self.runner = runner
        self._table: VectorTable | None = None
        self._change = -1

    def search(
        self,
        question: str,
        *,
        most: int = 10,
        mode: SearchMode | str = SearchMode.HYBRID,
        files: Sequence[str] = (),
        reranker: EmbeddingRunner | None = None,
    ) -> list[Hit]:
        """The passages that fit best. ``files``: only in files whose path fits one of these patterns. ``reranker``: a
        model that orders the best ones anew. Raises LeapOptionsError where vectors are demanded and there are none."""
        mode = _mode(mode)
        within = self._matching_files(files) if files else None
        deep = max(DEEP, most)
        words = [] if mode is SearchMode.VECTORS else self._by_words(question, deep, within)
        vectors = [] if mode is SearchMode.WORDS else self._by_vectors(question, deep, within, mode)
        hits = self._fused(words, vectors, max(most, RERANKED) if reranker is not None else most)
        if reranker is not None:
            hits = _reranked(reranker, question, hits)
        return hits[:most]

    def _matching_files(self, patterns: Sequence[str]) -> list[int]:
        files = self.index.files().values()
        return [file.id for file in files if any(_fits(file.path, pattern) for pattern in patterns)]

    def _by_words(self, question: str, most: int, within: Sequence[int] | None) -> list[int]:
        query = fts_query(question)
        return [] if query is None else self.index.matching(query, most, within)

    def _by_vectors(self, question: str, most: int, within: Sequence[int] | None, mode: SearchMode) -> list[int]:
        import numpy as np

        table = self._vectors()
        if table is None or self.runner is None or self.runner.fingerprint.hex() != self.index.fingerprint:
            if mode is SearchMode.VECTORS:
                reason = "has no vectors" if table is None else "was made with another model"
                raise LeapOptionsError("mode", f"the index {reason}; `leap index update` makes new ones")
            return []
        query = self.runner.embed([question], "query", too_long="cut")[0]
        among = None if within is None else np.array(self.index.chunks_of(within), np.int64)
        return [int(id) for id in table.nearest(query, most, among)[0]]

    def _vectors(self) -> VectorTable | None:
        change = self.index.change
        if change != self._change:
            self._table, self._change = open_table(self.index), change
        return self._table

    def _fused(self, words: list[int], vectors: list[int], most: int) -> list[Hit]:
        places = [{id: place for place, id in enumerate(ids, 1)} for ids in (words, vectors)]
        scores = {
            id: sum(1 / (RANK_CONSTANT + ranks[id]) for ranks in places if id in ranks) for id in {*words, *vectors}
        }
        best = sorted(scores, key=lambda id: (-scores[id], id))[:most]
        return [
            Hit(passage, scores[passage.id], places[0].get(passage.id), places[1].get(passage.id))
            for passage in self.index.passages(best)
        ]


def _reranked(reranker: EmbeddingRunner, question: str, hits: list[Hit]) -> list[Hit]:
    texts = [text_of_hit(hit) for hit in hits]
    return [replace(hits[number], score=score) for number, score in rank(reranker, question, texts)]


def _fits(path: str, pattern: str) -> bool:
    return fnmatch(path, pattern) or fnmatch(path, f"*/{pattern}") or path.endswith(f"/{pattern}")


def _mode(mode: SearchMode | str) -> SearchMode:
    try:
        return SearchMode(mode)
    except ValueError:
        names = ", ".join(each.value for each in SearchMode)
        raise LeapOptionsError("mode", f"{mode!r} is not one of {names}") from None


OPENING = "The following documents may provide you additional information to answer questions:"
CITE = "Answer from the documents alone, and name the documents that you used as [1], [2] and so on."
NOTHING = "The documents do not say."
STRICT = f"If the documents do not hold the answer, say only: {NOTHING}"
RAG_MODEL = "lfm2-1.2b-rag"
"""Was trained without instructions beside the documents."""


@dataclass(frozen=True)
class Source:
    """A passage that the prompt holds; ``number`` from 1."""

    number: int
    hit: Hit


def prompt_of(
    question: str,
    hits: Sequence[Hit],
    fits: Callable[[Sequence[ChatMessage]], bool],
    *,
    model_names: Sequence[str] = (),
    strict: bool = False,
) -> tuple[list[ChatMessage], list[Source]]:
    """The messages, and the passages in them: as many of the best ones as ``fits`` lets in. With none there is no
    system message about documents."""
    count = len(hits)
    while count:
        sources = [Source(number, hit) for number, hit in enumerate(hits[:count], 1)]
        messages = [ChatMessage("system", _system(sources, model_names, strict)), ChatMessage("user", question)]
        if fits(messages):
            return messages, sources
        count -= 1
    return [ChatMessage("user", question)], []


def _system(sources: Sequence[Source], model_names: Sequence[str], strict: bool) -> str:
    documents = "\n\n".join(
        f"<document{source.number}>\n{text_of_hit(source.hit)}\n</document{source.number}>" for source in sources
    )
    instructions = [] if any(name.lower().startswith(RAG_MODEL) for name in model_names) else [CITE]
    return "\n\n".join([f"{OPENING}\n\n{documents}", *instructions, *([STRICT] if strict else [])])


def text_of_hit(hit: Hit) -> str:
    """A passage as the prompt has it."""
    passage = hit.passage
    return f"{passage.heading}\n{passage.text}" if passage.heading else passage.text

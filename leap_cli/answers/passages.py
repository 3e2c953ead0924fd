"""Passages of an index for a question, with the models that it takes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from ..framework.environment import Environment
from ..framework.output import Output
from ..options.embedding import PassageOptions, open_embedder
from ..options.loading import ModelChoice

if TYPE_CHECKING:
    from leap_core.conversation.embedding import EmbeddingRunner
    from leap_core.tasks.search.searching import Hit


def find_passages(
    env: Environment, stack: ExitStack, wish: PassageOptions, embedder: ModelChoice, *, mode: str = "hybrid"
) -> list[Hit]:
    """The best passages. Models are loaded while ``stack`` is open. Where the model of the index is not on this machine
    any more, words alone are searched, and a warning says so."""
    from leap_core.tasks.search.searching import Searcher, runner_of_index
    from leap_core.tasks.search.updating import Indexes

    index = stack.enter_context(Indexes.of(env.directories).open(wish.index))

    def load(model: str) -> EmbeddingRunner:
        return stack.enter_context(open_embedder(env, model, embedder))

    runner, missing = runner_of_index(index, mode, load)
    if missing is not None:
        Output(env).warning(f"only words are searched: {missing.message}")
    reranker = None if wish.rerank is None else load(wish.rerank)
    return Searcher(index, runner).search(
        wish.question, most=wish.limit, mode=mode, files=wish.files, reranker=reranker
    )

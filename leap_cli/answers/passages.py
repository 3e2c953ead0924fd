"""Passages of an index for a question, with the models that it takes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from ..framework.environment import Environment
from ..framework.output import Output
from ..options.embedding import open_embedder

if TYPE_CHECKING:
    from leap_core.search.searching import Hit


def find_passages(
    env: Environment,
    stack: ExitStack,
    name: str,
    question: str,
    *,
    most: int,
    mode: str = "hybrid",
    files: tuple[str, ...] = (),
    rerank: str | None = None,
    threads: int | None = None,
) -> list[Hit]:
    """The best passages. Models are loaded while ``stack`` is open. Where the model of the index is not on this machine
    any more, words alone are searched, and a warning says so."""
    from leap_core.search.indexes import Indexes
    from leap_core.search.searching import Searcher, runner_of_index

    index = stack.enter_context(Indexes.of(env.directories).open(name))
    runner, missing = runner_of_index(
        index, mode, lambda model: stack.enter_context(open_embedder(env, model, cpu_threads=threads))
    )
    if missing is not None:
        Output(env).warning(f"only words are searched: {missing.message}")
    reranker = None if rerank is None else stack.enter_context(open_embedder(env, rerank, cpu_threads=threads))
    return Searcher(index, runner).search(question, most=most, mode=mode, files=files, reranker=reranker)

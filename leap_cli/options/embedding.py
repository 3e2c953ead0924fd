"""The options of models that make vectors, and which model it is when none is named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ..framework.environment import Environment
from ..framework.output import Output
from .loading import host_use
from .value_types import ModelName

if TYPE_CHECKING:
    from leap_core.runner.embedding import EmbeddingRunner

BUILTIN_EMBED = "builtin-embed"

embedding_model_flag = click.option(
    "-m",
    "--model",
    type=ModelName(),
    metavar="MODEL",
    help="Use this embedding model; the small built-in one by default.",
)
threads_flag = click.option(
    "--threads", "cpu_threads", type=int, metavar="N", help="Compute with this many CPU threads."
)
rerank_flag = click.option(
    "--rerank",
    metavar="MODEL",
    help="Order the best passages anew with this model, token by token where it is a ColBERT.",
)
limit_flag = click.option(
    "--limit", type=click.IntRange(1, 1000), default=5, show_default=True, help="Take at most this many passages."
)
files_flag = click.option(
    "--files", multiple=True, metavar="PATTERN", help="Search only files whose path fits, such as '*.md' or 'docs/*'."
)


def question_of(words: Sequence[str]) -> str:
    """The question that the words make. Raises UsageError for an empty one."""
    question = " ".join(words)
    if not question.strip():
        raise click.UsageError("the question is empty")
    return question


@contextmanager
def open_embedder(env: Environment, reference: str, **loading: Any) -> Iterator[EmbeddingRunner]:
    """The warm host's model where it holds it so, else one of this process, until the block ends."""
    from leap_core.opening import open_embedding_runner
    from leap_core.options import ModelLoadingOptions

    loading_options = {name: value for name, value in loading.items() if value is not None}
    runner = open_embedding_runner(
        reference,
        ModelLoadingOptions(**loading_options),
        host=host_use(),
        variables=env.variables,
        cwd=env.cwd,
        on_warning=Output(env).warning,
        load=lambda reference, options: env.load_embedder(reference, options, env),
    )
    with runner:
        yield runner


def full_reference(env: Environment, reference: str) -> str:
    """A reference that means the same in any directory: a file's is its path."""
    from leap_core.models.references.resolving import path_of

    path = path_of(reference, variables=env.variables, cwd=env.cwd)
    return reference if path is None else str(path)

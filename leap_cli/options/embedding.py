"""The options of models that make vectors, and which model it is when none is named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from leap_core.conversation.embedding import EMBEDDING, EmbeddingOptions

from ..completion.value_types import ModelName
from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from ..framework.output import Output
from .first_use import downloading_first
from .loading import HOST_OPTION, THREADS_OPTION, ModelChoice, host_use, note_endpoint
from .option_rows import checked, option_of

if TYPE_CHECKING:
    from leap_core.conversation.embedding import EmbeddingRunner

BUILTIN_EMBED = "builtin-embed"


_MODEL_OPTION = option(
    "-m", "--model", type=ModelName(), help="Use this embedding model; the small built-in one by default."
)


def _embedder(arguments: Arguments) -> ModelChoice:
    threads = arguments.of("cpu_threads")
    return ModelChoice(arguments.get("model"), threads, arguments["host"], command=arguments.command)


EMBEDDER = OptionGroup("embedder", "Model", (_MODEL_OPTION, THREADS_OPTION, HOST_OPTION), _embedder)
EMBEDDING_OPTIONS = OptionGroup(
    "options",
    "",
    tuple(
        option_of(row, **({} if row.default is None else {"default": row.default, "show_default": True}))
        for row in EMBEDDING.values()
    ),
    lambda arguments: checked(EmbeddingOptions, EMBEDDING, arguments.of(*EMBEDDING)),
)
EMBEDDER_OF_INDEX = OptionGroup("embedder", "Model", (THREADS_OPTION, HOST_OPTION), _embedder)
"""Where the index says which model it is."""


@contextmanager
def open_embedder(env: Environment, reference: str, model: ModelChoice) -> Iterator[EmbeddingRunner]:
    """The warm host's model where it holds it so and ``model`` allows that, else one of this process, until the block
    ends."""
    from leap_core.conversation.options import ModelLoadingOptions
    from leap_core.opening import open_embedding_runner

    open_here = partial(
        open_embedding_runner,
        reference,
        ModelLoadingOptions(**model.fields),
        host=host_use(model.host),
        variables=env.variables,
        cwd=env.cwd,
        on_warning=Output(env).warning,
        load=env.load_embedder,
    )
    runner = downloading_first(env, reference, open_here)
    note_endpoint(env, reference)
    with runner:
        yield runner


def full_reference(env: Environment, reference: str) -> str:
    """A reference that means the same in any directory: a file's is its path."""
    from leap_core.models.resolving import Registry

    path = Registry(env.variables, env.cwd).path_of(reference)
    return reference if path is None else str(path)


@contextmanager
def naming_texts(places: Sequence[str]) -> Iterator[None]:
    """Let a refusal of the runner's ``texts[N]`` name its place instead: a file, a line or an argument."""
    import re

    from leap_core.errors import LeapOptionsError

    try:
        yield
    except LeapOptionsError as error:
        number = re.fullmatch(r"texts\[(\d+)\]", error.option)
        if number is None:
            raise
        reason = error.reason.replace("(too_long)", "(--option too-long=cut)")
        raise LeapOptionsError(places[int(number[1])], reason) from None

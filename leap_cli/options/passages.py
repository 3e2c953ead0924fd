"""The options of a question to an index, and the passages that are found."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from leap_core.system.dataclass import dataclass

from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from ..framework.output import Output
from .embedding import open_embedder
from .loading import ModelChoice

if TYPE_CHECKING:
    from leap_core.conversation.embedding import EmbeddingRunner
    from leap_core.tasks.search.searching import Hit


@dataclass(frozen=True)
class PassageOptions:
    """The passages of an index that fit a question: at most ``limit``, of ``files``; ``rerank``: the model that orders
    the best anew."""

    index: str
    question: str
    limit: int = 5
    files: tuple[str, ...] = ()
    rerank: str | None = None


def _passages(arguments: Arguments) -> PassageOptions:
    index, question = named_index(arguments.env, arguments["words"])
    return PassageOptions(index, question, **arguments.of("limit", "files", "rerank"))


PASSAGES = OptionGroup(
    "passages",
    "",
    (
        click.argument("words", metavar="[NAME] QUESTION...", nargs=-1, required=True),
        option(
            "--limit",
            type=click.IntRange(1, 1000),
            default=5,
            show_default=True,
            help="Return at most this many passages.",
        ),
        option(
            "--include",
            "files",
            multiple=True,
            metavar="PATTERN",
            help="Search only files whose path matches, such as '*.md' or 'docs/*'.",
        ),
        option(
            "--rerank",
            metavar="MODEL",
            help="Rerank the best passages with this model; a ColBERT compares token by token.",
        ),
    ),
    _passages,
)


def _offered(arguments: Arguments) -> Sequence[str]:
    """Raises IndexNotFoundError for an index that is not there."""
    from leap_core.tasks.search.updating import Indexes

    names: Sequence[str] = arguments["page_indexes"]
    for name in names:
        Indexes.of(arguments.env.directories).open(name).close()
    return names


OFFERED_INDEXES = OptionGroup(
    "page_indexes",
    "Web UI",
    (option("--index", "page_indexes", multiple=True, metavar="NAME", help="Offer this search index in the web UI."),),
    _offered,
)
"""For ``web_ui.FEATURES``."""


def named_index(env: Environment, words: Sequence[str]) -> tuple[str, str]:
    """The index and the question: the only index, and the default one, need not be named. Raises UsageError where
    either is missing."""
    from leap_core.system.configuration import read_configuration
    from leap_core.tasks.search.updating import Indexes

    names = Indexes.of(env.directories).names()
    default = read_configuration(env.directories.config_file).default_index
    unnamed = default or (names[0] if len(names) == 1 else None)
    first, *others = words
    if first in names or (unnamed is None and others):  # opening reports a name that is not there
        if not others:
            raise click.UsageError(f"the question is missing: what is asked of the index {first}?")
        name, question = first, " ".join(others)
    elif unnamed is not None:
        name, question = unnamed, " ".join(words)
        _check_is_question(env, first, others, names, name)
    elif names:
        raise click.UsageError(
            f"there are several indexes ({', '.join(names)}); name one before the question, or set default_index"
        )
    else:
        raise click.UsageError("there is no index yet; `leap index NAME PATH` makes one")
    if not question.strip():
        raise click.UsageError("the question is empty")
    return name, question


def _check_is_question(env: Environment, first: str, others: Sequence[str], names: Sequence[str], name: str) -> None:
    """See to it that the first word is no mistyped name of an index, where the index ``name`` would be asked instead.
    Raises UsageError for a word that is nearly one, and for one before a question in quotes."""
    from difflib import get_close_matches

    if not others or any(map(str.isspace, first)):
        return
    near = get_close_matches(first, names, 1, 0.75)
    if near or (len(others) == 1 and any(map(str.isspace, others[0].strip()))):
        meant = f"did you mean {near[0]}?" if near else f"there is {', '.join(names)}"
        raise click.UsageError(f"there is no index {first!r}: {meant} (put a question in quotes)")
    Output(env).note(f"took {' '.join([first, *others])[:80]!r} as the question to the index {name}")


def find_passages(
    env: Environment, stack: ExitStack, passages: PassageOptions, embedder: ModelChoice, *, mode: str = "hybrid"
) -> list[Hit]:
    """The best passages. Models are loaded while ``stack`` is open. Where the model of the index is not on this machine
    any more, words alone are searched, and a warning says so."""
    from leap_core.tasks.search.searching import Searcher, runner_of_index
    from leap_core.tasks.search.updating import Indexes

    index = stack.enter_context(Indexes.of(env.directories).open(passages.index))

    def load(model: str) -> EmbeddingRunner:
        return stack.enter_context(open_embedder(env, model, embedder))

    runner, missing = runner_of_index(index, mode, load)
    if missing is not None:
        Output(env).warning(f"only words are searched: {missing.message}")
    reranker = None if passages.rerank is None else load(passages.rerank)
    return Searcher(index, runner).search(
        passages.question, most=passages.limit, mode=mode, files=passages.files, reranker=reranker
    )

"""What the MCP server offers of search: the indexes, their passages, and files made searchable."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ...options.loading import ModelChoice
from ...options.passages import PassageOptions, find_passages
from ...options.stored_commands import read_command
from .mcp import Abilities, in_thread, policy_of_client

if TYPE_CHECKING:
    from jobs.client import JobsClient

MOST_PASSAGES = 50


def abilities(of: Abilities) -> list[Callable[..., Any]]:
    """Those of the feature, for ``mcp.FEATURES``."""
    env = of.env

    async def list_indexes() -> list[str]:
        """List the indexes of files that can be searched."""

        def work() -> list[str]:
            from leap_core.tasks.search.updating import Indexes

            return Indexes.of(env.directories).names()

        return list(await in_thread(work))

    async def search(index: str, question: str, limit: int = 5) -> list[dict[str, Any]]:
        """Find the passages of an index that fit a question best: file, line, text."""

        def work() -> list[dict[str, Any]]:
            wish = PassageOptions(index, question, max(1, min(limit, MOST_PASSAGES)))
            with ExitStack() as stack:
                hits = find_passages(env, stack, wish, ModelChoice())
            return [
                {"file": hit.passage.path, "line": hit.passage.first, "text": hit.passage.text, "score": hit.score}
                for hit in hits
            ]

        return list(await in_thread(work))

    async def index(name: str, paths: list[str]) -> dict[str, Any]:
        """Make files or directories of this machine searchable under a name, in the background. Gives the job's id."""

        def submit(jobs: JobsClient) -> str:
            words = read_command(["index", "make", "--", name, *paths], env).words
            return jobs.command(words, label=f"index {name}", cwd=env.cwd, policy=policy_of_client())

        return await of.submit(submit)

    return [list_indexes, search, index]

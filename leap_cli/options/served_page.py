"""The page of a server, and what it may do beside asking models."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from .tool_options import known_tools, read_policy

if TYPE_CHECKING:
    from leap_core.functions import LeapFunction
    from leap_core.host.server.page.services import PageServices

NEEDING_PAGE = ("opens", "sessions", "page_tools", "page_indexes")


@dataclass(frozen=True)
class ServedPage:
    """``opens``: the page is opened in a browser. ``sessions``: conversations are kept. ``functions``: what models may
    call there. ``indexes``: what is searched."""

    wanted: bool
    opens: bool
    sessions: bool
    functions: Sequence[LeapFunction]
    indexes: Sequence[str]

    def services(self, env: Environment, api_key: str | None) -> PageServices | None:
        """What the page may do; None without a page. What is private has a fresh key where the server has none."""
        from leap_core.host.server.page.services import PageServices

        if not self.wanted:
            return None
        services: dict[str, Any] = guides()
        if self.sessions:
            services["sessions"] = env.directories.sessions_file
        if self.functions:
            services |= {"functions": self.functions, "policy": read_policy(env, self.functions)}
        if self.indexes:
            services |= {"indexes": self.indexes, "index_directory": env.directories.data / "indexes"}
        private = PageServices(**services).are_private
        return PageServices(**services, key=api_key or (secrets.token_urlsafe(16) if private else None))


def guides() -> dict[str, Any]:
    """The guides that the page shows."""
    from ..help.topics import TOPICS, text_of

    return {"guides": TOPICS, "guide": text_of}


def _page(arguments: Arguments) -> ServedPage:
    """Raises UsageError, LeapToolError, and IndexNotFoundError for an index that is not there."""
    env, names, indexes = arguments.env, arguments["page_tools"], arguments["page_indexes"]
    if not arguments["page"]:
        for name in NEEDING_PAGE:
            if arguments.is_set(name):
                raise click.UsageError(f"{arguments.flag(name)} is for the page: add --page")
    functions: Sequence[LeapFunction] = ()
    if names:
        from leap_core.tools.sources import choose

        functions = choose(names, known_tools(env))
    if indexes:
        from leap_core.search.indexes import Indexes

        for name in indexes:
            Indexes.of(env.directories).open(name).close()
    return ServedPage(arguments["page"], arguments["opens"], arguments["sessions"], functions, indexes)


PAGE = OptionGroup(
    "page",
    "The page",
    (
        option("--page", is_flag=True, help="Serve a page for people at /: conversations, models, speed, jobs."),
        option("--open", "opens", is_flag=True, help="Open the page in the default web browser."),
        option(
            "--sessions", is_flag=True, help="Keep the page's conversations as sessions, which leap chat -c continues."
        ),
        option(
            "--tool",
            "page_tools",
            multiple=True,
            metavar="NAME",
            help="Let models call this tool on the page, whose user allows or refuses calls (see leap tools list).",
        ),
        option("--index", "page_indexes", multiple=True, metavar="NAME", help="Let the page search this index."),
    ),
    _page,
)

"""The options of the web UI."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from leap_core.system.dataclass import dataclass
from leap_core.system.features import own_parts

from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from .tools import known_tools, read_policy

if TYPE_CHECKING:
    from leap_core.conversation.calls import LeapFunction
    from leap_core.server.page.routes import WebPage

FEATURES = {"search": "leap_cli.options.passages:OFFERED_INDEXES"}
INDEXES = tuple(own_parts(FEATURES).values())
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

    def web_page(self, env: Environment, api_key: str | None) -> WebPage | None:
        """What the page may do; None without a page. What is private has a fresh key where the server has none."""
        from leap_core.server.page.page_sessions import PageServices
        from leap_core.server.page.routes import WebPage

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
        return WebPage(PageServices(**services, key=api_key or (secrets.token_urlsafe(16) if private else None)))


def guides() -> dict[str, Any]:
    """The guides that the page shows."""
    from ..help.topics import topics
    from ..reference.pages import page

    return {"guides": topics(), "guide": page}


def _page(arguments: Arguments) -> ServedPage:
    """Raises UsageError, LeapToolError, and IndexNotFoundError for an index that is not there."""
    env, names = arguments.env, arguments["page_tools"]
    if not arguments["page"]:
        for name in NEEDING_PAGE:
            if arguments.is_set(name):
                raise click.UsageError(f"{arguments.flag(name)} is for the page: add --web-ui")
    functions: Sequence[LeapFunction] = ()
    indexes: Sequence[str] = next((group.build(arguments) for group in INDEXES), ())
    if names:
        from leap_core.tools.sources import choose

        functions = choose(names, known_tools(env))
    return ServedPage(arguments["page"], arguments["opens"], arguments["sessions"], functions, indexes)


PAGE = OptionGroup(
    "page",
    "Web UI",
    (
        option("--web-ui", "page", is_flag=True, help="Serve a web UI at /: conversations, models, speed, jobs."),
        option("--open", "opens", is_flag=True, help="Open the page in the web browser."),
        option(
            "--sessions", is_flag=True, help="Save the web UI's conversations as sessions; leap chat -c continues them."
        ),
        option(
            "--tool",
            "page_tools",
            multiple=True,
            metavar="NAME",
            help="Offer this tool in the web UI, whose user approves each call (see leap tools list).",
        ),
        *INDEXES,
    ),
    _page,
)

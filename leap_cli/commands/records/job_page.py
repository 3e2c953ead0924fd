"""``leap jobs page``: jobs in the web browser."""

from __future__ import annotations

import secrets

import click

from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Output, page_opener
from ...options.web_ui import guides


@leap_command("page", short_help="Show jobs in a web browser.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port to listen on; 0 takes any free one.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in the web browser.")
def page(env: Environment, /, port: int, opens: bool) -> None:
    """Serve a web page of jobs and batches to this machine, with their progress and a button to cancel each.

    The printed address contains a new key, so only you can open it. It runs until Ctrl-C and loads no model; leap serve
    --web-ui includes the same page.
    """
    from jobs.client.server_jobs import ServedJobs
    from leap_core.server.foreground import ServerSettings, serve
    from leap_core.server.page.page_sessions import PageServices
    from leap_core.server.page.routes import WebPage

    output = Output(env)
    key = secrets.token_urlsafe(16)

    def tell(url: str) -> None:
        address = f"{url.removesuffix('/v1')}/#key={key}"
        output.text(f"{address}\n")
        if opens:
            open_page(address)

    settings = ServerSettings(
        port=port,
        api_key=key,
        jobs=ServedJobs(env.variables),
        files=env.directories.data / "served",
        page=WebPage(PageServices(key=key, **guides())),
        all_jobs=True,
    )
    with page_opener(env) as open_page:
        serve((), settings, cwd=env.cwd, on_listening=tell, on_ready=lambda _: output.note("Ctrl-C ends it"))

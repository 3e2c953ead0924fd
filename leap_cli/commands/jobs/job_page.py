"""``leap jobs page``: the jobs in a web browser."""

from __future__ import annotations

import secrets

import click

from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Output
from ...framework.web_browser import page_opener
from ...options.served_page import guides


@leap_command("page", short_help="Show jobs in a web browser.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Listen on this port; 0 takes any."
)
@click.option("--open", "opens", is_flag=True, help="Open the page in the default web browser.")
@click.pass_obj
def page(env: Environment, /, port: int, opens: bool) -> None:
    """Serve a page of jobs and batches to this machine, with their progress and a button to cancel each.

    Prints the page's address, which holds a fresh key: it opens the page for nobody else. It runs until Ctrl-C, and
    loads no model; leap serve --page is the same page beside models.
    """
    from jobs.client.served_batches import ServedBatches
    from leap_core.host.server.page.services import PageServices
    from leap_core.host.server.process.foreground import ServerSettings, serve

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
        batches=ServedBatches(env.variables),
        files=env.directories.data / "served",
        page=PageServices(key=key, **guides()),
    )
    with page_opener(env) as open_page:
        serve((), settings, cwd=env.cwd, on_listening=tell, on_ready=lambda _: output.note("Ctrl-C ends it"))

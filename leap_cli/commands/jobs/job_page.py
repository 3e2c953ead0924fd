"""``leap jobs page``: the jobs in a web browser."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path

import click

from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Output


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
    from leap_core.host.server.process.foreground import ServerSettings, serve

    output = Output(env)
    key = secrets.token_urlsafe(16)

    def tell(url: str) -> None:
        address = f"{url.removesuffix('/v1')}/#key={key}"
        output.text(f"{address}\n")
        if opens:
            import webbrowser

            way.write_text(f'<meta charset="utf-8"><meta http-equiv="refresh" content="0;url={address}">\n')
            if not webbrowser.open(way.as_uri()):
                output.warning("there is no web browser that can be opened from here")

    settings = ServerSettings(
        port=port,
        api_key=key,
        batches=ServedBatches(env.variables),
        files=env.directories.data / "served",
        page=True,
    )
    with tempfile.TemporaryDirectory(dir=env.directories.run, prefix="page-") as private:
        way = Path(private) / "open.html"  # what a program is started with can be read by others; this file cannot
        serve((), settings, cwd=env.cwd, on_listening=tell, on_ready=lambda _: output.note("Ctrl-C ends it"))

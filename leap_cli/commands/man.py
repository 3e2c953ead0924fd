"""``leap man``: the manual, printed and installed."""

from __future__ import annotations

import shutil
import subprocess
import sys

import click

from ..framework.click_classes import CommandTable, leap_command
from ..framework.environment import Environment
from ..framework.output import Output


@leap_command("man", repairs=True)
@click.argument("name", metavar="[COMMAND]", required=False)
@click.option("--install", is_flag=True, help="Put all pages where man finds them: man leap, man leap-generate.")
@click.pass_context
def command(ctx: click.Context, name: str | None, install: bool) -> None:
    """Show the manual page of COMMAND, or of leap itself; in a pipe it is printed as man reads it.

    leap's package brings the pages along in share/man, where man finds those of the environment that is active.
    """
    from ..help.man_pages import page_of, pages

    env = ctx.ensure_object(Environment)
    root = ctx.find_root().command
    assert isinstance(root, CommandTable)
    output = Output(env)
    if install:
        from ..help import man_pages as man_installation

        if name is not None:
            raise click.UsageError("--install puts all pages there, and takes no COMMAND")
        directory = man_installation.man_directory(env.variables)
        man_installation.install(pages(root), directory)
        output.text(f"{directory}\n")
        if man_installation.is_searched(directory, env.variables):
            output.note("man leap, man leap-generate and so on are there")
        else:
            output.note(
                f"man does not look there: man -M {directory.parent} leap, or put {directory.parent} on MANPATH"
            )
        return
    if name is not None and name not in root.table:
        raise click.exceptions.NoSuchCommand(name, possibilities=root.table, ctx=ctx.parent)
    text = pages(root)["leap.1"] if name is None else page_of(root, name)
    if env.stdout is sys.stdout and env.stdout_is_terminal and shutil.which("man"):
        subprocess.run(["man", "-l", "-"], input=text.encode(), check=False)
    else:
        output.text(text)

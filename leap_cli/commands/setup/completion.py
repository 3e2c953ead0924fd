"""``leap completion``: TAB in bash, zsh, fish and PowerShell."""

from __future__ import annotations

import click

from ...completion.shell import SHELLS
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Output


@leap_command("completion", repairs=True)
@click.argument("shell", type=click.Choice(SHELLS, case_sensitive=False))
@click.option("--install", is_flag=True, help="Install the script for all future sessions of the shell.")
def command(env: Environment, /, shell: str, install: bool) -> None:
    """Print the completion script of SHELL: commands, options, models, quantizations, tools and jobs.

    For this session only: eval "$(leap completion bash)" (zsh likewise), or leap completion fish | source.
    """
    output = Output(env)
    if not install:
        from ...completion.scripts import script_of

        output.text(script_of(shell))
        return
    from ...completion import scripts as completion_install

    place = completion_install.place_of(shell, env)
    changed = completion_install.install(place, shell)
    output.text(f"{place.script}\n")
    if changed:
        output.note(f"added a line to {place.start_file} that loads it")
    output.note(f"new {shell} sessions complete leap")

"""``leap unload``: unload warm models."""

from __future__ import annotations

import click

from ...completion.value_types import WarmModel
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Output


@leap_command("unload")
@click.argument("model", required=False, type=WarmModel())
@click.option("--all", "everything", is_flag=True, help="Unload every model and end the background process.")
@click.pass_obj
def command(env: Environment, /, model: str | None, everything: bool) -> None:
    """Unload the warm MODEL and wait until its memory is free. With the last one the background process ends.

    Answers that it is giving end with an error. Without MODEL the only warm one is meant.
    """
    from leap_core.errors import LeapModelNotFoundError
    from leap_core.host.client.host_connection import ModelHost

    if everything and model is not None:
        raise click.UsageError("give either MODEL or --all")
    if everything:
        _unload_all(env)
        return
    output = Output(env)
    host = ModelHost.running(env.variables)
    if host is not None:
        for name in host.unload(model or _only(host.status()["models"]), str(env.cwd)):
            output.text(f"{name}\n")
    elif model is not None:
        raise LeapModelNotFoundError(f"the model {model!r} is not loaded", hint="leap ps shows what is")
    else:
        output.note("no model is warm")


def _unload_all(env: Environment) -> None:
    from leap_core.host.client.lookup import end_host

    output = Output(env)
    ending = end_host(env.variables)
    for name in ending.models:
        output.text(f"{name}\n")
    if ending.forced_because is not None:
        output.note(f"the model host was ended by force: {ending.forced_because}")
    elif not ending.models:
        output.note("no model is warm")


def _only(models: list[dict[str, object]]) -> str:
    names = [str(model["model"]) for model in models]
    if len(names) != 1:
        listed = f": {', '.join(names)}" if names else ""
        raise click.UsageError(f"{len(names)} models are warm{listed}; name one, or give --all")
    return names[0]

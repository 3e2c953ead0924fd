"""``leap unload``: unload warm models."""

from __future__ import annotations

import click

from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..framework.output import Output
from ..options.value_types import WarmModel


@leap_command("unload")
@click.argument("model", required=False, type=WarmModel())
@click.option("--all", "everything", is_flag=True, help="Unload every model and end the background process.")
@click.pass_obj
def command(env: Environment, /, model: str | None, everything: bool) -> None:
    """Unload the warm MODEL and wait until its memory is free. With the last one the background process ends.

    Answers that it is giving end with an error. Without MODEL the only warm one is meant.
    """
    from leap_core.errors import LeapModelNotFoundError, LeapUnavailableError
    from leap_core.host.client.connection import ModelHost

    if everything and model is not None:
        raise click.UsageError("give either MODEL or --all")
    output = Output(env)
    try:
        host = ModelHost.running(env.variables)
        if host is None:
            if model is not None:
                raise LeapModelNotFoundError(f"the model {model!r} is not loaded", hint="leap ps shows what is")
            output.note("no model is warm")
            return
        if model is None and not everything:
            model = _only(host.status()["models"])
        for name in host.unload(model, str(env.cwd)):
            output.text(f"{name}\n")
    except LeapUnavailableError as error:
        if not everything:
            raise
        if ModelHost.end_by_force(env.variables):
            output.note(f"the model host was ended by force: {error.message}")


def _only(models: list[dict[str, object]]) -> str:
    names = [str(model["model"]) for model in models]
    if len(names) != 1:
        listed = f": {', '.join(names)}" if names else ""
        raise click.UsageError(f"{len(names)} models are warm{listed}; name one, or give --all")
    return names[0]

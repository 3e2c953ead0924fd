"""``leap ps``: the models that are kept warm. It starts quickly, because scripts and prompts ask often."""

from __future__ import annotations

from typing import Any

import click

from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Format, Output
from ...framework.output_format import format_option

COLUMNS = ["model", "size", "memory", "context_size", "slots", "tokens_per_second", "expires"]


@leap_command("ps")
@format_option("names")
@click.pass_obj
def command(env: Environment, /, format: str) -> None:
    """Show the models that are kept warm: size on disk, memory, slots in use, speed lately, and when they go.

    Those of `leap serve` are shown with the port of their server.
    """
    from leap_core.host.client.host_connection import ModelHost
    from leap_core.host.client.served_models import served_models

    output = Output(env, format)
    host = ModelHost.running(env.variables)
    status = {"pid": None, "models": []} if host is None else host.status()
    warm = [{"pid": status["pid"], "port": None} | model for model in status["models"]]
    models = [*warm, *served_models(env.directories.run_path)]
    if output.format is not Format.TEXT:
        records = [{key: value for key, value in model.items() if key not in ("key", "wish")} for model in models]
        output.records(records, COLUMNS, name="model")
        return
    columns = [*COLUMNS, *(["port"] if len(models) > len(warm) else [])]
    output.records([_shown(model) for model in models], columns, name="model")
    if not models:
        output.note("no model is warm; `leap load MODEL` keeps one so")


def _shown(model: dict[str, Any]) -> dict[str, Any]:
    from ...framework.durations import in_words
    from ...framework.sizes import in_bytes

    waiting = f" (+{model['waiting']} waiting)" if model["waiting"] else ""
    if model["state"] != "ready":
        expires = model["state"]
    elif model["expires_in"] is not None:
        expires = f"in {in_words(model['expires_in'])}"
    else:
        expires = f"{in_words(model['keep_alive'])} after its use" if model["keep_alive"] else "never"
    return {
        **model,
        "size": in_bytes(model["size"]),
        "memory": None if model["memory"] is None else in_bytes(model["memory"]),
        "slots": f"{model['slots_in_use']}/{model['slots']}{waiting}",
        "expires": expires,
    }

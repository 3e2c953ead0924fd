"""``leap load``, ``ps`` and ``unload``: models kept warm in a background process."""

from __future__ import annotations

from typing import Any

import click

from ...completion.value_types import ModelName, WarmModel
from ...framework.click_classes import format_choice, format_option, leap_command
from ...framework.environment import Environment
from ...framework.options import Duration, in_words
from ...framework.output import Format, Output
from ...options.first_use import have_here
from ...options.loading import HOST_LOADING, HostLoading, configured_keep_alive, model_reference, naming_the_default


@leap_command("load")
@click.argument("model", required=False, type=ModelName())
@click.option("--keep-alive", type=Duration(), help="Unload the model after this idle time; 0 is never.")
@HOST_LOADING
@format_choice("Output format of leap ps: text, one JSON document, JSON Lines, or quiet: the name only.")
def load_command(
    env: Environment, /, model: str | None, keep_alive: float | None, format: str, loading: HostLoading
) -> None:
    """Keep MODEL loaded in a background process, which generate, chat, search and jobs then use.

    It returns when the model is ready. Loading a loaded model restarts its keep-alive timer. Without MODEL, the default
    model is loaded. The model is unloaded after --keep-alive without use (10m by default, or keep_alive in config.toml)
    or by leap unload; the process exits with its last model.
    """
    from leap_core.protocols.host.lookup import keep_warm

    reference = model_reference(env, model or None)
    output = Output(env, format)
    with naming_the_default(env, model):
        have_here(env, reference)
        _host, held = keep_warm(
            reference,
            variables=env.variables,
            cwd=env.cwd,
            on_progress=lambda seconds: output.progress(f"loading {reference} … {seconds:.0f} s"),
            keep_alive=configured_keep_alive(env) if keep_alive is None else keep_alive,
            engine=loading.engine,
            **loading.request,
        )
    if output.format is not Format.TEXT:
        output.record({key: value for key, value in held.items() if key not in ("key", "wish")}, name="model")
        return
    output.text(f"{held['model']}\n")
    until = f"for {in_words(held['keep_alive'])} after its last use" if held["keep_alive"] else "until `leap unload`"
    output.note(f"{held['model']} stays loaded {until}")


COLUMNS = ["model", "size", "memory", "context_size", "slots", "tokens_per_second", "expires"]


@leap_command("ps")
@format_option("names")
def ps_command(env: Environment, /, format: str) -> None:
    """List loaded models: size on disk, memory, GPU layers and memory, slots in use, recent speed, and expiry.

    Models of `leap serve` are shown with the port of their server.
    """
    from leap_core.protocols.host.model_host import ModelHost
    from leap_core.protocols.host.served_models import served_models

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
    columns[3:3] = ["gpu"] if any(model.get("gpu_layers") for model in models) else []
    columns += ["reading"] if any(model.get("reading") for model in models) else []
    columns += ["engine"] if any("engine" in model for model in models) else []
    none = "no model is loaded; `leap load MODEL` loads one"
    output.records([_shown(model) for model in models], columns, name="model", none=none)
    if len(models) > len(warm):
        output.note("models with a port are those of leap serve, for other programs; leap's commands do not use them")


def _shown(model: dict[str, Any]) -> dict[str, Any]:
    from ...framework.options import in_bytes, in_words
    from ...setup.machine import layers_on_gpu

    levels = [f"{count} {level}" for level, count in model.get("waiting_by_level", {}).items() if count]
    waiting = f" (+{model['waiting']} waiting{': ' * bool(levels)}{', '.join(levels)})" if model["waiting"] else ""
    prompts = model.get("reading", ())
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
        "gpu": layers_on_gpu(model.get("gpu_layers"), model.get("gpu_memory")),
        "reading": f"{sum(each['processed'] for each in prompts)}/{sum(each['total'] for each in prompts)} tokens"
        if prompts
        else None,
        "slots": f"{model['slots_in_use']}/{model['slots']}{waiting}",
        "expires": expires,
    }


@leap_command("unload")
@click.argument("model", required=False, type=WarmModel())
@click.option("--all", "everything", is_flag=True, help="Unload all models and stop the background process.")
def unload_command(env: Environment, /, model: str | None, everything: bool) -> None:
    """Unload MODEL and wait until its memory is free. The background process exits with its last model.

    Answers in progress end with an error. Without MODEL, the only loaded one is unloaded.
    """
    from leap_core.errors import LeapModelNotFoundError
    from leap_core.protocols.host.model_host import ModelHost

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
        output.note("no model is loaded")


def _unload_all(env: Environment) -> None:
    from leap_core.protocols.host.lookup import end_host

    output = Output(env)
    ending = end_host(env.variables)
    for name in ending.models:
        output.text(f"{name}\n")
    if ending.forced_because is not None:
        output.note(f"the model host was ended by force: {ending.forced_because}")
    elif not ending.models:
        output.note("no model is loaded")


def _only(models: list[dict[str, object]]) -> str:
    names = [str(model["model"]) for model in models]
    if len(names) != 1:
        listed = f": {', '.join(names)}" if names else ""
        raise click.UsageError(f"{len(names)} models are warm{listed}; name one, or give --all")
    return names[0]

"""``leap models bench``: how fast models are on this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from ...completion.value_types import ModelName
from ...display.batches import svg_bars, text_bars
from ...framework.click_classes import format_option, leap_command
from ...framework.environment import Environment
from ...framework.options import in_bytes
from ...framework.output import Format, Output

FIGURES = {
    "prefill": "prompt tokens a second",
    "decode": "answer tokens a second",
    "batch": "tokens a second of eight answers at once",
    "first_token": "seconds to the first token",
    "memory": "bytes of memory",
}
COLUMNS = ("model", *FIGURES, "load")
SMALL = ("first_token", "memory")
"""Figures that are better the smaller they are; their bars would mislead."""


@leap_command("bench", short_help="Benchmark models.")
@click.argument("models", nargs=-1, metavar="[MODEL]...", type=ModelName())
@click.option(
    "--repeat", type=click.IntRange(1), default=3, show_default=True, help="Number of runs; the median is reported."
)
@click.option("--threads", type=click.IntRange(1, 512), help="Number of CPU threads, instead of all cores.")
@click.option("--engine", metavar="ENGINE", help="Use this engine (llama.cpp build) of `leap engine list`.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Draw the results to FILE.")
@click.option(
    "--baseline",
    "against",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Compare with earlier results in FILE (of --format json).",
)
@format_option("the names")
def bench(
    env: Environment,
    /,
    models: tuple[str, ...],
    repeat: int,
    threads: int | None,
    engine: str | None,
    svg: Path | None,
    against: Path | None,
    format: str,
) -> None:
    """Benchmark MODELs on this machine, each loaded in this process; by default the default model.

    It measures a prompt of 512 tokens, an answer of 64, eight parallel answers of 32, time to first token of a short
    prompt, and the memory added to the process. The first model's memory includes llama.cpp's libraries. Layers are
    offloaded as by `--gpu-layers auto`. LOAD is the load of the machine from other processes: on a busy machine, trust
    ratios only. Speeds are in tokens per second (t/s).
    """
    from ...options.loading import model_reference

    output = Output(env, format)
    before = {} if against is None else _read(env.cwd / against)
    records = []
    for name in models or (model_reference(env, None),):
        record = _measured(env, output, name, repeat, {"cpu_threads": threads, "engine": engine})
        if against is not None:
            old = before.get(record["model"], {})
            record["against"] = {key: record[key] / old[key] for key in FIGURES if record[key] and old.get(key)}
        records.append(record)
    if svg is not None:
        _draw(env.cwd / svg, records)
    if output.format is not Format.TEXT:
        output.records(records, COLUMNS, name="model")
        return
    output.records([_shown(record) for record in records], COLUMNS, name="model")
    if output.columns is not None and len(records) > 1:
        for key in FIGURES:
            if key not in SMALL:
                lines = text_bars([(each["model"], each[key]) for each in records], output.columns)
                output.text("\n".join(["", FIGURES[key], *lines, ""]))


def _measured(env: Environment, output: Output, name: str, repeat: int, loading: dict[str, Any]) -> dict[str, Any]:
    from leap_core import __version__
    from leap_core.conversation.options import ModelLoadingOptions
    from leap_core.conversation.speed import CONTEXT, TOGETHER, measure
    from leap_core.opening import HostUse, open_runner
    from leap_core.system.processes import resident_bytes

    held = resident_bytes()
    options = ModelLoadingOptions(context_size=CONTEXT, slots=TOGETHER, n_gpu_layers="auto", **loading)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    with open_runner(
        name,
        options,
        host=HostUse.NEVER,
        variables=env.variables,
        cwd=env.cwd,
        on_warning=output.warning,
        load=env.load_model,
    ) as runner:
        speed = measure(runner, repeat, output.progress)
        now = resident_bytes()
        memory = None if now is None or held is None else now - held
        record = {"model": runner.model_id, **speed.to_json(), "memory": memory, "load": load, "leap": __version__}
        on_gpu = runner.on_gpu
        return record | ({"gpu_layers": on_gpu.layers, "gpu_memory": on_gpu.memory} if on_gpu is not None else {})


def _shown(record: dict[str, Any]) -> dict[str, Any]:
    shown = {key: f"{record[key]:.1f} t/s" for key in ("prefill", "decode", "batch")}
    shown["first_token"] = f"{record['first_token'] * 1000:.0f} ms"
    shown["memory"] = "-" if record["memory"] is None else in_bytes(record["memory"])
    for key, ratio in record.get("against", {}).items():
        shown[key] += f" ({ratio:.2f}x)"
    return {"model": record["model"], **shown, "load": "-" if record["load"] is None else f"{record['load']:.1f}"}


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Figures by model. Raises UsageError for what ``leap models bench --format json`` did not print."""
    try:
        found = {each["model"]: each for each in json.loads(path.read_text("utf-8"))}
        for each in found.values():
            if not all(isinstance(each.get(key), (int, float, type(None))) for key in FIGURES):
                raise ValueError
    except OSError as error:
        raise click.UsageError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise click.UsageError(f"{path} has no figures of leap models bench --format json") from None
    return found


def _draw(path: Path, records: list[dict[str, Any]]) -> None:
    """Raises LeapError when it cannot be written."""
    from leap_core.system.files import cannot_write, replace_text

    groups = [(FIGURES[key], [(each["model"], each[key] or 0.0) for each in records]) for key in FIGURES]
    try:
        replace_text(path, svg_bars("leap models bench", groups))
    except OSError as error:
        raise cannot_write(path, error) from None

"""``leap models search``: models on the hub that run here, with sizes and whether they fit this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Format, Output
from ...framework.output_format import format_option
from ...framework.sizes import Size, in_bytes
from ...setup.machine import Machine, this_machine
from ...setup.offers import SLOTS
from .fit import LARGEST_DEFAULT_CONTEXT, Candidate, record_of

if TYPE_CHECKING:
    from leap_core.models.download.hub_query import FoundModel


@leap_command("search", short_help="Search the hub for models that run here.")
@click.argument("words", nargs=-1, required=True, metavar="WORD...")
@click.option(
    "--limit",
    type=click.IntRange(1, 50),
    default=10,
    show_default=True,
    metavar="N",
    help="Show at most this many models.",
)
@click.option(
    "--memory", type=Size(), metavar="SIZE", help="Count with this much memory, such as 8GB, not the machine's."
)
@format_option("the repositories' names")
@click.pass_obj
def search(env: Environment, /, words: tuple[str, ...], limit: int, memory: int | None, format: str) -> None:
    """Search the Hugging Face hub for GGUF models by WORDs of their names, the most downloaded first. Those of
    architectures that do not run here are left out.

    `leap download` and -m take the names as they are. SIZE is that of the model's file in the quantization that is
    fetched when none is named; MEMORY is about what it needs with a context of 8192 tokens for four requests, as
    `leap models fit` counts. JSON has all quantizations.
    """
    from leap_core.models.download.hub_query import search_hub
    from leap_core.models.references.catalogue import Catalogue

    output = Output(env, format)
    machine = this_machine(env)
    if memory is not None:
        machine = replace(machine, memory=memory)
    found = search_hub(" ".join(words), env.variables, Catalogue.load(env.directories.config), limit)
    records = [_record(model, machine) for model in found.models]
    if output.format is Format.TEXT:
        records = [_readable(each) for each in records]
    columns = ["name", "architecture", "quantization", "size", "memory", "fits", "downloads"]
    output.records(records, columns, name="name")
    if output.format is Format.TEXT:
        if not records:
            output.note(f"the hub has no GGUF model named {' '.join(words)!r} that runs here")
        if found.others:
            why = "of architectures that do not run here, or that the hub does not name"
            output.note(f"passed over: {found.others} {why}")


def _record(model: FoundModel, machine: Machine) -> dict[str, Any]:
    counted = {name: _counted(model, name, machine) for name in model.sizes}
    keys = ("size", "memory", "fits", "obstacle")
    default = {key: counted[model.default][key] for key in keys}
    quantizations = [{"quantization": name, **{key: each[key] for key in keys}} for name, each in counted.items()]
    return {
        "name": model.repo,
        "architecture": model.architecture,
        "parameters": model.parameters,
        "context": model.context,
        "downloads": model.downloads,
        "quantization": model.default,
        **default,
        "quantizations": quantizations,
    }


def _counted(model: FoundModel, quantization: str, machine: Machine) -> dict[str, Any]:
    from leap_core.models.gguf.memory import memory_about

    size = model.sizes[quantization]
    millions = (model.parameters or 2 * size) // 10**6  # four bits a parameter where the hub does not say
    trained = model.context or LARGEST_DEFAULT_CONTEXT
    candidate = Candidate(
        model.repo,
        quantization,
        size,
        False,
        trained,
        lambda context, slots: memory_about(size, quantization, millions, context_size=context, slots=slots),
    )
    return record_of(candidate, machine, None, SLOTS)


def _readable(record: dict[str, Any]) -> dict[str, Any]:
    smaller = [each["quantization"] for each in record["quantizations"] if each["fits"]]
    fits = "yes" if record["fits"] else f"no: {record['obstacle']}"
    if smaller and not record["fits"]:
        fits += f"; in {', '.join(smaller)} yes"
    return record | {"size": in_bytes(record["size"]), "memory": f"~{in_bytes(record['memory'])}", "fits": fits}

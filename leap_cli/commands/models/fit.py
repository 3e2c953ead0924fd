"""``leap models fit`` and ``search``: which models fit this machine, here and on the hub."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from leap_core.system.dataclass import dataclass
from leap_core.system.memory import MOST_OF_MEMORY

from ...completion.value_types import ModelName
from ...framework.click_classes import format_option, leap_command
from ...framework.environment import Environment
from ...framework.options import Size, in_bytes
from ...framework.output import Format, Output
from ...setup.machine import (
    SLOTS,
    Machine,
    free_on_gpus,
    layers_on_gpu,
    memory_of_entry,
    obstacle_to,
    this_machine,
)

if TYPE_CHECKING:
    from leap_core.inference.gguf.header import GGUFHeader
    from leap_core.inference.gguf.memory import Memory
    from leap_core.inference.gguf.offloading import Offload
    from leap_core.models.catalogue import CatalogueEntry
    from leap_core.models.download.hub_query import FoundModel
    from leap_core.models.resolving import LocalModel

LARGEST_DEFAULT_CONTEXT = 8192


@dataclass(frozen=True)
class FittingModel:
    """A model in one quantization. ``takes``: memory, and what is on GPUs, by context size and slots; ``trained``: its
    largest context."""

    name: str
    quantization: str
    size: int
    installed: bool
    trained: int
    takes: Callable[[int, int], tuple[Memory, Offload]]


@leap_command("fit", short_help="Show which models fit this machine.")
@click.argument("names", nargs=-1, metavar="[MODEL]...", type=ModelName())
@click.option(
    "--context-size", type=click.IntRange(8), help="Context window in tokens; by default the model's, up to 8192."
)
@click.option(
    "--slots",
    type=click.IntRange(1, 256),
    default=4,
    show_default=True,
    help="Number of parallel requests to plan for.",
)
@click.option("--memory", type=Size(), help="Memory to assume, such as 8GB, instead of the machine's.")
@format_option("the names of those that fit")
def fit(
    env: Environment, /, names: tuple[str, ...], context_size: int | None, slots: int, memory: int | None, format: str
) -> None:
    """Show which models fit this machine: MODELs, or the installed ones and the catalogue's, in each quantization.

    MEMORY is what a model needs with a full context: exact for an installed model, else approximate. Parts of the file
    that the system may drop from memory are not counted. LONGEST is the largest context that fits. A fifth of the
    machine's memory is reserved for other programs. Projectors of multimodal models are not counted. If there is a GPU,
    the column GPU has what `--gpu-layers auto` offloads, and MEMORY has the rest.
    """
    output = Output(env, format)
    machine = replace(this_machine(env), gpus=free_on_gpus())
    if memory is not None:
        machine = replace(machine, memory=memory)
    found = [record_of(each, machine, context_size, slots) for each in _candidates(env, names, machine.gpus)]
    if output.format is Format.QUIET:
        found = [each for each in found if each["fits"]]
    if output.format is not Format.TEXT:
        output.records(found, list(found[0]) if found else [], name="name")
        return
    rows = [
        {
            **each,
            "memory": in_bytes(each["memory"]),
            "gpu": layers_on_gpu(each["gpu_layers"], each["gpu_memory"]),
            "fits": "yes" if each["fits"] else f"no: {each['obstacle']}",
        }
        for each in found
    ]
    columns = ["name", "installed", "memory", *(["gpu"] if machine.gpus else []), "context", "slots", "longest", "fits"]
    output.records(rows, columns, name="name")
    if machine.memory is not None:
        usable = in_bytes(int(machine.memory * MOST_OF_MEMORY))
        gpus = f", {in_bytes(sum(machine.gpus))} free on the GPU" if machine.gpus else ""
        output.note(f"{usable} of {in_bytes(machine.memory)} of memory for a model{gpus}")


def record_of(candidate: FittingModel, machine: Machine, context_size: int | None, slots: int) -> dict[str, Any]:
    """What a model takes, and whether the machine has it, as JSON has it."""
    from leap_core.inference.gguf.memory import largest_context

    context = min(context_size or LARGEST_DEFAULT_CONTEXT, candidate.trained)
    takes, on_gpu = candidate.takes(context, slots)
    obstacle = obstacle_to(candidate.size, takes.needed, machine, installed=candidate.installed)
    room = None if machine.memory is None else machine.memory * MOST_OF_MEMORY
    longest = largest_context(
        lambda size: room is None or candidate.takes(size, slots)[0].needed <= room, candidate.trained
    )
    return {
        "name": f"{candidate.name}:{candidate.quantization}" if not candidate.installed else candidate.name,
        "quantization": candidate.quantization,
        "installed": candidate.installed,
        "size": candidate.size,
        "memory": takes.needed,
        "resident": takes.total,
        "gpu_layers": None if on_gpu.total and not on_gpu.layers else on_gpu.layers,
        "gpu_memory": on_gpu.total,
        "context": context,
        "slots": slots,
        "longest": longest,
        "fits": obstacle is None,
        "obstacle": obstacle,
    }


def _candidates(env: Environment, names: tuple[str, ...], gpus: Sequence[int]) -> Iterator[FittingModel]:
    """Raises LeapError for a name of which nothing is known."""
    from leap_core.errors import LeapModelNotFoundError
    from leap_core.models.catalogue import Catalogue
    from leap_core.models.resolving import Registry
    from leap_core.models.store import Store

    catalogue = Catalogue.load(env.directories.config)
    models = Registry(env.variables, env.cwd)
    if not names:
        here = [model.name for model in Store.of(env.directories).installed() if model.state == "ready"]
        for name in here:
            local = models.get(name)
            yield from [] if local is None else [_of_file(local, gpus)]
        for entry in catalogue:
            yield from [] if entry.replaced_by or not entry.runs else _of_entry(entry, gpus)
    for name in names:
        local = models.get(name)
        if local is not None:
            yield _of_file(local, gpus)
        else:
            base, _, quantization = name.partition(":")
            entry = catalogue.find(base)
            known = [*_of_entry(entry, gpus, quantization)]
            if not known:
                raise LeapModelNotFoundError(
                    f"{entry.name} is not known in {quantization or 'any quantization'}",
                    hint=f"there are {', '.join(entry.quantizations)}" if entry.quantizations else None,
                )
            yield from known


def _of_file(local: LocalModel, gpus: Sequence[int]) -> FittingModel:
    from leap_core.inference.gguf.header import read_gguf_header

    header = read_gguf_header(local.path)
    return FittingModel(
        local.model_id,
        header.quantization,
        header.size_bytes,
        True,
        header.context_length or LARGEST_DEFAULT_CONTEXT,
        lambda context, slots: needs_of(header, gpus, context, slots),
    )


def needs_of(header: GGUFHeader, gpus: Sequence[int], context: int, slots: int) -> tuple[Memory, Offload]:
    """What a model takes of the machine's memory and on GPUs with so many free bytes each."""
    from leap_core.conversation.options import ModelLoadingOptions
    from leap_core.inference.gguf.offloading import memory_beside, offload_that_fits

    options = ModelLoadingOptions(context_size=context, slots=slots)
    offload = offload_that_fits(header, options, gpus)
    return memory_beside(header, options, offload), offload


def _of_entry(entry: CatalogueEntry, gpus: Sequence[int], quantization: str = "") -> Iterator[FittingModel]:
    for each in entry.quantizations:
        size = entry.bytes_in(each)
        if size is not None and quantization.lower() in ("", each.lower()):
            yield FittingModel(
                entry.name,
                each,
                size,
                False,
                entry.context or LARGEST_DEFAULT_CONTEXT,
                partial(_needs_of_entry, entry, size, each, gpus),
            )


def _needs_of_entry(
    entry: CatalogueEntry, size: int, quantization: str, gpus: Sequence[int], context: int, slots: int
) -> tuple[Memory, Offload]:
    from leap_core.inference.gguf.offloading import split_about

    return split_about(memory_of_entry(entry, size, quantization, context, slots), gpus)


@leap_command("search", short_help="Search the hub for models that run here.")
@click.argument("words", nargs=-1, required=True, metavar="WORD...")
@click.option(
    "--limit", type=click.IntRange(1, 50), default=10, show_default=True, help="Show at most this many models."
)
@click.option("--memory", type=Size(), help="Memory to assume, such as 8GB, instead of the machine's.")
@format_option("the repositories' names")
def search(env: Environment, /, words: tuple[str, ...], limit: int, memory: int | None, format: str) -> None:
    """Search the Hugging Face hub for GGUF models by WORDs of their names, most downloaded first. Unsupported
    architectures are omitted.

    `leap download` and -m accept the names as shown. SIZE is the size of the model's file in the default quantization;
    MEMORY is the approximate need with a context of 8192 tokens for four requests, as `leap models fit` computes it.
    JSON has all quantizations.
    """
    from leap_core.models.catalogue import Catalogue
    from leap_core.models.download.hub_query import search_hub

    output = Output(env, format)
    machine = replace(this_machine(env), gpus=free_on_gpus())
    if memory is not None:
        machine = replace(machine, memory=memory)
    found = search_hub(" ".join(words), env.variables, Catalogue.load(env.directories.config), limit)
    records = [_record(model, machine) for model in found.models]
    if output.format is Format.TEXT:
        records = [_readable(each) for each in records]
    columns = ["name", "architecture", "quantization", "size", "memory", "fits", "downloads"]
    none = f"the hub has no GGUF model named {' '.join(words)!r} that runs here"
    output.records(records, columns, name="name", none=none)
    if output.format is Format.TEXT and found.others:
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
    from leap_core.inference.gguf.memory import memory_about
    from leap_core.inference.gguf.offloading import split_about

    size = model.sizes[quantization]
    millions = (model.parameters or 2 * size) // 10**6  # four bits a parameter where the hub does not say
    trained = model.context or LARGEST_DEFAULT_CONTEXT
    candidate = FittingModel(
        model.repo,
        quantization,
        size,
        False,
        trained,
        lambda context, slots: split_about(
            memory_about(size, quantization, millions, context_size=context, slots=slots), machine.gpus
        ),
    )
    return record_of(candidate, machine, None, SLOTS)


def _readable(record: dict[str, Any]) -> dict[str, Any]:
    smaller = [each["quantization"] for each in record["quantizations"] if each["fits"]]
    fits = "yes" if record["fits"] else f"no: {record['obstacle']}"
    if smaller and not record["fits"]:
        fits += f"; in {', '.join(smaller)} yes"
    return record | {"size": in_bytes(record["size"]), "memory": f"~{in_bytes(record['memory'])}", "fits": fits}

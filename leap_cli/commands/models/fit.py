"""``leap models fit``: which models fit this machine, with which context and how many requests at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ...completion.value_types import ModelName
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Format, Output
from ...framework.output_format import format_option
from ...framework.sizes import Size, in_bytes
from ...setup.machine import Machine, this_machine
from ...setup.offers import MOST_OF_MEMORY, memory_of_entry, obstacle_to

if TYPE_CHECKING:
    from leap_core.models.gguf.memory import Memory
    from leap_core.models.references.catalogue import CatalogueEntry
    from leap_core.models.references.resolving import LocalModel

LARGEST_DEFAULT_CONTEXT = 8192


@dataclass(frozen=True)
class Candidate:
    """A model in one quantization. ``takes``: memory by context size and slots; ``trained``: its largest
    context."""

    name: str
    quantization: str
    size: int
    installed: bool
    trained: int
    takes: Callable[[int, int], Memory]


@leap_command("fit", short_help="Tell which models fit this machine.")
@click.argument("names", nargs=-1, metavar="[MODEL]...", type=ModelName())
@click.option(
    "--context-size",
    type=click.IntRange(8),
    metavar="N",
    help="Tokens of a context, prompt and answer together; by default the model's, up to 8192.",
)
@click.option(
    "--slots", type=click.IntRange(1, 256), default=4, show_default=True, help="Count with this many answers at once."
)
@click.option(
    "--memory", type=Size(), metavar="SIZE", help="Count with this much memory, such as 8GB, not the machine's."
)
@format_option("the names of those that fit")
@click.pass_obj
def fit(
    env: Environment, /, names: tuple[str, ...], context_size: int | None, slots: int, memory: int | None, format: str
) -> None:
    """Tell which models fit this machine: MODELs, or those that are here and the catalogue's, in each quantization.

    MEMORY is what a model needs once its context is full: of a model that is here from its file, else about. Parts of
    the file that the system may drop again are not counted. LONGEST is the largest context that fits. A fifth of the
    machine's memory is left to other programs. Companions of models that see or hear are not counted.
    """
    output = Output(env, format)
    machine = this_machine(env)
    if memory is not None:
        machine = replace(machine, memory=memory)
    found = [record_of(each, machine, context_size, slots) for each in _candidates(env, names)]
    if output.format is Format.QUIET:
        found = [each for each in found if each["fits"]]
    if output.format is not Format.TEXT:
        output.records(found, list(found[0]) if found else [], name="name")
        return
    rows = [
        {**each, "memory": in_bytes(each["memory"]), "fits": "yes" if each["fits"] else f"no: {each['obstacle']}"}
        for each in found
    ]
    output.records(rows, ["name", "installed", "memory", "context", "slots", "longest", "fits"], name="name")
    if machine.memory is not None:
        usable = in_bytes(int(machine.memory * MOST_OF_MEMORY))
        output.note(f"{usable} of {in_bytes(machine.memory)} of memory for a model")


def record_of(candidate: Candidate, machine: Machine, context_size: int | None, slots: int) -> dict[str, Any]:
    """What a model takes, and whether the machine has it, as JSON has it."""
    from leap_core.models.gguf.memory import largest_context

    context = min(context_size or LARGEST_DEFAULT_CONTEXT, candidate.trained)
    takes = candidate.takes(context, slots)
    obstacle = obstacle_to(candidate.size, takes.needed, machine, installed=candidate.installed)
    room = None if machine.memory is None else machine.memory * MOST_OF_MEMORY
    longest = largest_context(
        lambda size: room is None or candidate.takes(size, slots).needed <= room, candidate.trained
    )
    return {
        "name": f"{candidate.name}:{candidate.quantization}" if not candidate.installed else candidate.name,
        "quantization": candidate.quantization,
        "installed": candidate.installed,
        "size": candidate.size,
        "memory": takes.needed,
        "resident": takes.total,
        "context": context,
        "slots": slots,
        "longest": longest,
        "fits": obstacle is None,
        "obstacle": obstacle,
    }


def _candidates(env: Environment, names: tuple[str, ...]) -> Iterator[Candidate]:
    """Raises LeapError for a name of which nothing is known."""
    from leap_core.errors import LeapModelNotFoundError
    from leap_core.models.installed.model_store import Store
    from leap_core.models.references.catalogue import Catalogue
    from leap_core.models.references.resolving import find_local

    catalogue = Catalogue.load(env.directories.config)
    if not names:
        here = [model.name for model in Store.of(env.directories).installed() if model.state == "ready"]
        for name in here:
            local = find_local(name, variables=env.variables, cwd=env.cwd)
            yield from [] if local is None else [_of_file(local)]
        for entry in catalogue:
            yield from [] if entry.replaced_by or not entry.runs else _of_entry(entry)
    for name in names:
        local = find_local(name, variables=env.variables, cwd=env.cwd)
        if local is not None:
            yield _of_file(local)
        else:
            base, _, quantization = name.partition(":")
            entry = catalogue.find(base)
            known = [*_of_entry(entry, quantization)]
            if not known:
                raise LeapModelNotFoundError(
                    f"{entry.name} is not known in {quantization or 'any quantization'}",
                    hint=f"there are {', '.join(entry.quantizations)}" if entry.quantizations else None,
                )
            yield from known


def _of_file(local: LocalModel) -> Candidate:
    from leap_core.models.gguf.header import read_gguf_header
    from leap_core.models.gguf.memory import memory_of

    header = read_gguf_header(local.path)
    return Candidate(
        local.model_id,
        header.quantization,
        header.size_bytes,
        True,
        header.context_length or LARGEST_DEFAULT_CONTEXT,
        lambda context, slots: memory_of(header, context_size=context, slots=slots),
    )


def _of_entry(entry: CatalogueEntry, quantization: str = "") -> Iterator[Candidate]:
    for each in entry.quantizations:
        size = entry.bytes_in(each)
        if size is not None and quantization.lower() in ("", each.lower()):
            yield Candidate(
                entry.name,
                each,
                size,
                False,
                entry.context or LARGEST_DEFAULT_CONTEXT,
                partial(memory_of_entry, entry, size, each),
            )

"""What this machine has for a model, and which models are offered for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from leap_core.errors import LeapError
from leap_core.system.dataclass import dataclass
from leap_core.system.memory import MOST_OF_MEMORY, machine_memory

from ..framework.environment import Environment
from ..framework.options import in_bytes

if TYPE_CHECKING:
    from leap_core.inference.gguf.memory import Memory
    from leap_core.models.catalogue import CatalogueEntry
    from leap_core.models.store import InstalledModel


@dataclass(frozen=True)
class Machine:
    """Bytes of memory that this process may use at most, and of disk that are free for models; None where that cannot
    be found out. ``cores`` is the count of those that may be used. ``gpus``: the free bytes of each that models use."""

    memory: int | None
    disk: int | None
    cores: int
    gpus: Sequence[int] = ()


def this_machine(env: Environment) -> Machine:
    """The machine that leap runs on, or the container with its limits."""
    from leap_core.inference.engine.threads import usable_cores
    from leap_core.models.store import free_space

    disk = None
    with suppress(OSError, LeapError):
        disk = free_space(env.directories.models)
    return Machine(machine_memory(), disk, usable_cores())


def free_on_gpus() -> list[int]:
    """The free bytes of each GPU that models use; none where the engine sees none, or where a GPU has no memory of its
    own but the machine's."""
    from leap_core.inference.llama.devices import measured, usable_gpus

    with suppress(LeapError):
        if sys.platform != "darwin":
            return [device.free for device in measured(usable_gpus()) if not device.is_integrated]
    return []


def layers_on_gpu(layers: int | None, size: int | None) -> str | None:
    """So many layers (-1 for all, None for some) and bytes on GPUs, for people; None for none."""
    counted = {-1: "all layers", None: "in part"}.get(layers, f"{layers} layers")
    return f"{counted}, {in_bytes(size)}" if size else None


OFFERED = ("LFM2.5-230M", "LFM2.5-350M", "LFM2.5-1.2B-Instruct", "LFM2.5-2.6B", "LFM2.5-8B-A1B", "LFM2.5-24B-A2B")
"""Names of the catalogue, small to large: models for chat and tools in any language that Liquid names."""
SUGGESTED = ("LFM2.5-1.2B-Instruct", "LFM2.5-350M", "LFM2.5-230M")
"""What is suggested, the first of these that fits: the usual choice, and what smaller machines hold."""
CONTEXT, SLOTS = 8192, 4
"""Tokens of a context, and requests at once, that a model is to have space for."""
SPARE_DISK = 1_000_000_000
"""Bytes that stay free on the disk after a download."""


@dataclass(frozen=True)
class ModelOffer:
    """A model. ``size`` of its file and ``memory`` that it takes, in bytes and about; ``obstacle``: why it does not fit
    here, or None; ``installed``: whether it is here already."""

    name: str
    size: int
    memory: int
    about: str
    installed: bool
    obstacle: str | None

    def record(self) -> dict[str, object]:
        """As JSON has it."""
        values = {"model": self.name, "size": self.size, "memory": self.memory, "installed": self.installed}
        return {**values, "fits": self.obstacle is None, "obstacle": self.obstacle, "about": self.about}


def offers(env: Environment, machine: Machine, installed: Sequence[str] = ()) -> list[ModelOffer]:
    """The models to choose from: those of the names ``installed``, then the catalogue's, small to large. Raises
    LeapSerializationError for the user's catalogue.json."""
    from leap_core.models.catalogue import Catalogue
    from leap_core.models.store import Store

    catalogue = Catalogue.load(env.directories.config)
    store, known = Store.of(env.directories), {name.lower() for name in OFFERED}
    here = {model.model.lower() for model in store.installed() if model.state == "ready"}
    models = [model for name in installed if (model := store.find(name)) is not None]
    own = [_installed(model, machine) for model in models if model.model.lower() not in known]
    entries = [entry for name in OFFERED if (entry := catalogue.exact(name)) is not None and entry.runs]
    return own + [
        ModelOffer(
            entry.name, size, memory, entry.about, is_here, obstacle_to(size, memory, machine, installed=is_here)
        )
        for entry in entries
        if (size := entry.bytes_in()) is not None
        for memory in [memory_of_entry(entry, size, entry.default or "", CONTEXT, SLOTS).needed]
        for is_here in [entry.name.lower() in here]
    ]


def _installed(model: InstalledModel, machine: Machine) -> ModelOffer:
    """A model of this machine that is not one of those that are offered to everybody."""
    size = model.size_bytes
    return ModelOffer(model.name, size, size, "installed", True, obstacle_to(size, size, machine, installed=True))


def memory_of_entry(entry: CatalogueEntry, size: int, quantization: str, context_size: int, slots: int) -> Memory:
    """About the memory that a model of the catalogue takes, whose file has ``size`` bytes in this quantization."""
    from leap_core.inference.gguf.memory import memory_about

    return memory_about(size, quantization, entry.parameters or 0, context_size=context_size, slots=slots)


def obstacle_to(size: int, memory: int, machine: Machine, *, installed: bool) -> str | None:
    """Why a model with a file of ``size`` bytes that takes ``memory`` does not fit; None where it does, or where nobody
    knows."""
    if machine.memory is not None and memory > machine.memory * MOST_OF_MEMORY:
        return f"takes {in_bytes(memory)} of memory"
    if machine.disk is not None and not installed and size + SPARE_DISK > machine.disk:
        return f"takes {in_bytes(size)} of disk"
    return None


def suggestion(models: list[ModelOffer]) -> ModelOffer | None:
    """An installed model, else the first of ``SUGGESTED`` that fits: what is here needs no download."""
    fitting = {model.name: model for model in models if model.obstacle is None}
    here = [name for name in (*SUGGESTED, *fitting) if name in fitting and fitting[name].installed]
    return next((fitting[name] for name in (*here, *SUGGESTED) if name in fitting), None)

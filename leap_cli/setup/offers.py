"""Which models are offered to begin with, and whether each fits this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..framework.environment import Environment
from ..framework.sizes import in_bytes
from .machine import Machine

if TYPE_CHECKING:
    from leap_core.models.gguf.memory import Memory
    from leap_core.models.references.catalogue import CatalogueEntry

OFFERED = (
    "LFM2.5-230M",
    "LFM2.5-350M",
    "LFM2.5-1.2B-Instruct",
    "LFM2.5-2.6B",
    "LFM2.5-8B-A1B",
    "LFM2.5-24B-A2B",
)
"""Names of the catalogue, small to large: models for chat and tools in any language that Liquid names."""
SUGGESTED = ("LFM2.5-1.2B-Instruct", "LFM2.5-350M", "LFM2.5-230M")
"""What is suggested, the first of these that fits: the usual choice, and what smaller machines hold."""
CONTEXT, SLOTS = 8192, 4
"""Tokens of a context, and requests at once, that a model is to have room for."""
MOST_OF_MEMORY = 0.8
SPARE_DISK = 1_000_000_000
"""Bytes that stay free on the disk after a download."""


@dataclass(frozen=True)
class Offer:
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


def offers(env: Environment, machine: Machine) -> list[Offer]:
    """The models to choose from, small to large. Raises LeapSerializationError for the user's catalogue.json."""
    from leap_core.models.installed.model_store import Store
    from leap_core.models.references.catalogue import Catalogue

    catalogue = Catalogue.load(env.directories.config)
    here = {model.model.lower() for model in Store.of(env.directories).installed() if model.state == "ready"}
    entries = [entry for name in OFFERED if (entry := catalogue.exact(name)) is not None and entry.runs]
    return [
        Offer(entry.name, size, memory, entry.about, installed, obstacle_to(size, memory, machine, installed=installed))
        for entry in entries
        if (size := entry.bytes_in()) is not None
        for memory in [memory_of_entry(entry, size, entry.default or "", CONTEXT, SLOTS).needed]
        for installed in [entry.name.lower() in here]
    ]


def memory_of_entry(entry: CatalogueEntry, size: int, quantization: str, context_size: int, slots: int) -> Memory:
    """About the memory that a model of the catalogue takes, whose file has ``size`` bytes in this quantization."""
    from leap_core.models.gguf.memory import memory_about

    return memory_about(size, quantization, entry.parameters or 0, context_size=context_size, slots=slots)


def obstacle_to(size: int, memory: int, machine: Machine, *, installed: bool) -> str | None:
    """Why a model with a file of ``size`` bytes that takes ``memory`` does not fit; None where it does, or where nobody
    knows."""
    if machine.memory is not None and memory > machine.memory * MOST_OF_MEMORY:
        return f"takes {in_bytes(memory)} of memory"
    if machine.disk is not None and not installed and size + SPARE_DISK > machine.disk:
        return f"takes {in_bytes(size)} of disk"
    return None


def suggestion(models: list[Offer]) -> Offer | None:
    """The first of ``SUGGESTED`` that fits; an installed one is no better than another."""
    fitting = {model.name: model for model in models if model.obstacle is None}
    return next((fitting[name] for name in SUGGESTED if name in fitting), None)

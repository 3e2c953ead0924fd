"""States of sequences kept where the model computes: as sequences of their own beside those of the slots.

llama.cpp copies the metadata of a sequence alone. Both then share the cells of the attention and the recurrent state,
which the next decode of either writes to a place of its own. So keeping a state and putting it back copies nothing and
does not wait for the device, as ``llama_state_seq_get_data_ext`` does. With its flag ON_DEVICE that function keeps one
state of a sequence, in memory that nobody counted, and ends the process where there is none left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..gguf.header import read_gguf_header
from ..gguf.memory import shape_of, states_kept

if TYPE_CHECKING:
    from .bindings import Bindings
    from .model import LlamaModel

MOST_SEQUENCES = 256
"""llama.cpp's bound of a context."""


def room_for_states(model: LlamaModel, slots: int) -> int:
    """How many states a context keeps on the device: none on a processor, where a copy costs as little."""
    if not (model.on_gpu and model.is_hybrid):
        return 0
    return min(MOST_SEQUENCES - slots, states_kept(shape_of(read_gguf_header(model.path)), slots))


class KeptStates:
    """The sequences from ``first`` on, ``count`` of them. What they hold must also be held by a slot: its cells are
    not counted."""

    def __init__(self, lib: Bindings, memory: Any, first: int, count: int) -> None:
        self._lib, self._memory = lib, memory
        self._free = list(range(first, first + count))

    def keep(self, sequence: int) -> int | None:
        """Keep what a sequence holds; the number of the sequence that has it, or None when all are taken."""
        if not self._free:
            return None
        kept = self._free.pop()
        self._lib.llama_memory_seq_cp(self._memory, sequence, kept, -1, -1)
        return kept

    def put_back(self, kept: int, sequence: int) -> None:
        """Make a sequence hold what was kept, and nothing else."""
        self._lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        self._lib.llama_memory_seq_cp(self._memory, kept, sequence, -1, -1)

    def drop(self, kept: int) -> None:
        """Keep it no longer."""
        self._lib.llama_memory_seq_rm(self._memory, kept, -1, -1)
        self._free.append(kept)

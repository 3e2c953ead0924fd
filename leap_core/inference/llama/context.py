"""One llama.cpp context: batches in, logits out, and the state of its sequences.

Attention adds up a sequence's positions in the order of their cells, and another order rounds differently. So a
sequence whose next cells would lie below those that it has is moved first; in rising cells it computes the same bits
wherever they are.

Layers with a sliding window have a cache of their own, in which llama.cpp gives away cells whose position lies outside
the window of their sequence, unless a second sequence holds them too. So each sequence has an *anchor*, a sequence that
is a copy of it: nothing is given away, and a prompt can return to any position. What was saved and put back holds the
last window alone.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import LeapGenerationError, LeapModelLoadingError
from ...system.dataclass import dataclass
from .bindings import AbortCallback
from .candidates import DeviceCandidates
from .cells import Cells, Run
from .device_states import MOST_SEQUENCES, KeptStates, room_for_states
from .library import forget_errors, last_errors, library
from .model import Adapters, LlamaModel, switch_adapters

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

NO_KV_SLOT, ABORTED = 1, 2
ARCHITECTURE = "general.architecture"
ROLLBACK_ARCHITECTURES = {"lfm2"}
"""Hybrid ones for which llama.cpp keeps the convolutions' last states; with lfm2moe it ends the process."""
MICRO_BATCH_ON_GPU = 512
"""Positions that a GPU computes at once; more take more of its memory and no less time."""
MOST_ROLLBACK = 8
"""States of each sequence; with 24 llama.cpp's graph has too few nodes and it ends the process."""
QUANTIZED = {"q4_0", "q8_0"}
TYPES_HINT = (
    "quantized values need flash attention, quantized keys a head whose width 32 divides; kv_type_k and kv_type_v f16 "
    "always work"
)
GGML_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}


@dataclass(frozen=True)
class AttentionSettings:
    """How a context attends. ``type_k``, ``type_v``: the types of its keys and values, one of GGML_TYPES."""

    flash: bool = True
    type_k: str = "f16"
    type_v: str = "f16"


DEFAULT_ATTENTION = AttentionSettings()


class ComputingContext:
    """What contexts that make tokens and contexts that make vectors have in common: adapters, and a way to end a step.
    ``pointer``: llama.cpp's context."""

    pointer: Any
    _adapters: Adapters = ()

    def _take_abort_flag(self, params: Any) -> None:
        """Let the context of these parameters ask whether to end."""
        self._abort = AbortFlag()
        params.abort_callback, params.abort_callback_data = self._abort.callback, self._abort.data

    def abort(self, abort: bool = True) -> None:
        """From any thread: make the running step end at once (on a CPU), until called with False."""
        self._abort.set(abort)

    def set_adapters(self, adapters: Adapters) -> None:
        """Adapters and their scales for the next steps; none clears them. Raises LeapGenerationError."""
        if adapters != self._adapters:
            switch_adapters(self.pointer, adapters)
            self._adapters = adapters


class LlamaContext(ComputingContext):
    """Memory for ``slots`` sequences that share ``cells`` positions. Not for use by several threads at once, except
    ``abort``.

    ``batch_size``: most positions of one decode; raised to what slots and ``rollback`` need. ``rollback``: how many of
    the last decode's positions ``take_back`` is to be able to forget, where the model's memory allows; the attribute
    says how many it is. ``exact``: llama.cpp computes each position of a decode, which then has one run, alone: with
    some types of weights its kernels for several round differently.
    """

    def __init__(
        self,
        model: LlamaModel,
        *,
        cells: int,
        slots: int,
        batch_size: int,
        threads: int,
        attention: AttentionSettings = DEFAULT_ATTENTION,
        rollback: int = 0,
        exact: bool = False,
    ) -> None:
        model.check_process()
        self._lib = lib = library()
        self.model, self.exact = model, exact
        self._window = window = int(lib.llama_model_n_swa(model.pointer))
        self.slots = slots = min(slots, MOST_SEQUENCES // 2) if window else slots
        self.rollback = rollback if not model.is_hybrid or model.metadata(ARCHITECTURE) in ROLLBACK_ARCHITECTURES else 0
        params = lib.llama_context_default_params()
        if model.is_hybrid and not hasattr(params, "n_rs_seq"):  # an older engine cannot take convolutions back
            self.rollback = 0
        params.n_rs_seq = min(self.rollback, MOST_ROLLBACK) if model.is_hybrid else 0
        kept = 0 if window or self.rollback else room_for_states(model, slots)
        params.n_seq_max = slots * 2 if window else slots + kept
        least = max(params.n_seq_max, self.rollback + 2)  # with fewer llama.cpp ends the process
        params.n_ctx = max(cells, least)
        if window and (
            model.is_hybrid or exact
        ):  # llama.cpp cuts a batch, and a later cut could take an earlier's cells
            batch_size = min(batch_size, max(1, window - 1))
        self.batch_size = params.n_batch = min(max(batch_size, least), params.n_ctx)
        params.n_ubatch = 1 if exact else min(params.n_batch, MICRO_BATCH_ON_GPU) if model.on_gpu else params.n_batch
        self._threads = params.n_threads = params.n_threads_batch = threads
        self._take_abort_flag(params)
        self.pointer = _new_context(model, params, attention)
        self.cells = int(lib.llama_n_ctx(self.pointer))
        self._memory = lib.llama_get_memory(self.pointer)
        self._kept = KeptStates(lib, self._memory, slots, kept)
        together = params.n_rs_seq + 1 if params.n_rs_seq else 0
        self._caches = [
            Cells(self.cells, hybrid=model.is_hybrid, kept_together=together, window=size)
            for size in ([0, window] if window else [0])
        ]
        self._anchored = [0] * slots
        """Up to which position the anchor of each sequence holds what it holds."""
        self._runs: list[Run] = []
        self._next: list[int] | None = None
        """The sequences of which the batch has one token each."""
        self._gives_hidden = False
        self._logits_address = lib.llama_get_logits_ith
        self._logits_views: dict[int | None, NDArray[float32]] = {}
        self._batch = _Batch(lib, self.batch_size, model.width)
        self.candidates = DeviceCandidates(lib, self.pointer, model)

    def close(self) -> None:
        """Free the memory; the model stays."""
        pointer, self.pointer = self.pointer, None
        if pointer and not self.model.is_foreign:
            self._lib.llama_free(pointer)
            self.candidates.close()

    def set_threads(self, threads: int) -> None:
        """Threads of the next decodes."""
        if threads != self._threads:
            self._threads = threads
            self._lib.llama_set_n_threads(self.pointer, threads, threads)

    # A decode is built with ``clear``, ``add`` and ``add_embeddings``, then run.

    def clear(self) -> None:
        """Start an empty batch."""
        self._batch.count = 0
        self._runs = []
        self._next = None

    def add(
        self, sequence: int, position: int, tokens: list[int], *, output: bool, outputs_of_all: bool = False
    ) -> int:
        """Append tokens of a sequence; with ``output``, ask for the logits after the last, with ``outputs_of_all`` for
        those after each. Returns the index of the last."""
        self._runs.append((sequence, len(tokens)))
        last = self._batch.add(sequence, position, tokens, output)
        if outputs_of_all:
            self._batch.want_all(len(tokens))
        return last

    def add_next(self, sequences: list[int], positions: list[int], tokens: list[int]) -> None:
        """Make a batch of one token of each of several sequences, and ask for the logits after each."""
        if self._next is not sequences:
            self._next = sequences
            self._runs = [(sequence, 1) for sequence in sequences]
            self._batch.begin(sequences)
        self._batch.fill(positions, tokens)

    def add_embeddings(self, sequence: int, position: int, rows: NDArray[float32], *, output: bool) -> int:
        """Append rows of embeddings; a batch holds either tokens or embeddings."""
        self._runs.append((sequence, len(rows)))
        return self._batch.add_embeddings(sequence, position, rows, output)

    def decode(self, *, hidden: bool = False) -> int:
        """Run the batch: 0, NO_KV_SLOT (nothing changed) or ABORTED (some of it ran). Raises on a real failure.

        Afterwards there are logits, or with ``hidden`` hidden states; llama.cpp never gives both.
        """
        if hidden is not self._gives_hidden:
            self._lib.llama_set_embeddings(self.pointer, hidden)
            self._gives_hidden = hidden
        is_next = self._batch.count == len(self._runs) and all(cells.are_packed for cells in self._caches)
        if self._window:
            self._anchor_all()
            if self.model.is_hybrid and len(self._runs) > 1:
                for sequence, _ in self._runs:
                    self._anchor(sequence)
        placed = [] if is_next else self._put_in_order(hidden)
        forget_errors()
        code: int = self._lib.llama_decode(self.pointer, self._batch.struct())
        if code == 0 and is_next:
            for cells in self._caches:
                cells.append(self._runs)
        elif code == 0:
            for cells, taken in zip(self._caches, placed, strict=True):
                cells.add(taken)
        if code < 0:
            raise LeapGenerationError(f"llama.cpp failed to decode (code {code}): {last_errors() or 'no reason given'}")
        return code

    def _put_in_order(self, hidden: bool) -> list[dict[int, list[int]]]:
        """Move sequences whose next cells would lie below those that they have; returns the batch's cells by cache.
        On a GPU nothing is moved: a move copies a sequence to the host and back, and a GPU rounds differently anyway.
        """
        while True:
            placed = [cells.place(self._runs, one_by_one=hidden) for cells in self._caches]
            if self.model.on_gpu:
                return placed
            disordered = (cells.out_of_order(taken) for cells, taken in zip(self._caches, placed, strict=True))
            sequence = next((each for each in disordered if each is not None), None)
            if sequence is None:
                return placed
            self._move(sequence)

    def _move(self, sequence: int) -> None:
        """Copy what a sequence holds into the lowest free cells, once its own are free too."""
        count = self._caches[0].end(sequence)
        size = self._lib.llama_state_seq_get_size_ext(self.pointer, sequence, 0)
        buffer = (ctypes.c_uint8 * size)()
        written = self._lib.llama_state_seq_get_data_ext(self.pointer, buffer, size, sequence, 0)
        self.forget(sequence)
        if not self._lib.llama_state_seq_set_data_ext(self.pointer, buffer, written, sequence, 0):
            raise LeapGenerationError("llama.cpp cannot move a sequence within its cache")
        for cells in self._caches:
            cells.restore(sequence, count)
        self._anchor(sequence)

    def _anchor_all(self) -> None:
        """Anchor each sequence that has positions which llama.cpp would give away."""
        for sequence, anchored in enumerate(self._anchored):
            if self._caches[0].end(sequence) - self._window >= anchored:
                self._anchor(sequence)

    def _anchor(self, sequence: int) -> None:
        if self._window:
            self._drop_anchor(sequence)
            self._lib.llama_memory_seq_cp(self._memory, sequence, self.slots + sequence, -1, -1)
            self._anchored[sequence] = self._caches[0].end(sequence)

    def _drop_anchor(self, sequence: int) -> None:
        if self._window and self._anchored[sequence]:
            self._lib.llama_memory_seq_rm(self._memory, self.slots + sequence, -1, -1)
            self._anchored[sequence] = 0

    def in_order(self, sequence: int) -> int:
        """Up to which position the cells of a sequence rise; beyond, what it holds is rounded differently. On a GPU all
        of it, for the order of cells is not kept there."""
        if self.model.on_gpu:
            return self._caches[0].end(sequence)
        return min(cells.sound(sequence) for cells in self._caches)

    @property
    def room(self) -> int:
        """How many cells are free."""
        return min(cells.room for cells in self._caches)

    def sees(self, sequence: int, position: int) -> bool:
        """Whether all is there that a token at ``position`` sees: in layers with a window the positions of the
        window before it."""
        if not self._window:
            return True
        first = self._caches[-1].first(sequence)
        if not self.model.is_hybrid and position:  # beside a recurrent state llama.cpp says only where that is
            first = max(first, int(self._lib.llama_memory_seq_pos_min(self._memory, sequence)))
        return first <= max(0, position - self._window + 1)

    def logits(self, index: int) -> NDArray[float32]:
        """A view of the logits after batch position ``index``, shape [vocabulary]; valid until the next decode."""
        address = self._logits_address(self.pointer, index)
        view = self._logits_views.get(address)
        if view is None:  # the addresses are few and repeat, and making a view costs as much as sampling from it
            import numpy as np

            if not address:
                raise LeapGenerationError("llama.cpp returned no logits")
            pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
            view = self._logits_views[address] = np.ctypeslib.as_array(pointer, (self.model.n_tokens,))
        return view

    def logits_of(self, indices: Sequence[int]) -> NDArray[float32] | None:
        """A view of the logits after these batch positions, which rise: shape [positions, vocabulary]. None unless the
        batch asked for no others between them."""
        first, last = (self._logits_address(self.pointer, index) for index in (indices[0], indices[-1]))
        size = self.model.n_tokens
        if not first or last != first + (len(indices) - 1) * size * ctypes.sizeof(ctypes.c_float):
            return None
        import numpy as np

        return np.ctypeslib.as_array(ctypes.cast(first, ctypes.POINTER(ctypes.c_float)), (len(indices), size))

    def hidden_state(self, index: int) -> NDArray[float32]:
        """A copy of the last layer's normalised output at batch position ``index``, shape [width]."""
        import numpy as np

        pointer = self._lib.llama_get_embeddings_ith(self.pointer, index)
        if not pointer:
            raise LeapGenerationError("llama.cpp returned no hidden state")
        return np.array(np.ctypeslib.as_array(pointer, (self.model.width,)))

    @property
    def is_aborting(self) -> bool:
        """Whether decodes are ended. From any thread."""
        return self._abort.is_set

    # The state of sequences.

    def truncate(self, sequence: int, position: int) -> bool:
        """Forget a sequence from ``position`` on; False when its state cannot be cut there."""
        self._drop_anchor(sequence)
        cut = bool(self._lib.llama_memory_seq_rm(self._memory, sequence, position, -1))
        if cut:
            for cells in self._caches:
                cells.cut(sequence, position)
        self._anchor(sequence)
        return cut

    def take_back(self, sequence: int, position: int) -> bool:
        """Forget from ``position`` on what the last decode added to a sequence, all but its first position at most;
        False when that cannot be. llama.cpp says yes to more than it can, so nothing else may be asked of it."""
        return self.rollback > 0 and self.truncate(sequence, position)

    def forget(self, sequence: int) -> None:
        """Forget a whole sequence."""
        self._drop_anchor(sequence)
        self._lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        for cells in self._caches:
            cells.cut(sequence, 0)

    def copy(self, source: int, target: int) -> None:
        """Make ``target`` share everything ``source`` holds."""
        self.forget(target)
        self._lib.llama_memory_seq_cp(self._memory, source, target, -1, -1)
        for cells in self._caches:
            cells.copy(source, target)
        self._anchor(target)

    def keep_state(self, sequence: int) -> int | None:
        """Keep the state of a sequence on the device, as long as a slot holds its positions; None where there is no
        space for it, as on a processor."""
        return self._kept.keep(sequence)

    def put_back(self, sequence: int, kept: int, position: int) -> None:
        """Bring a sequence back to ``position``, at which its state was kept."""
        self._kept.put_back(kept, sequence)
        for cells in self._caches:
            cells.cut(sequence, position)

    def drop_state(self, kept: int) -> None:
        """Keep a state no longer."""
        self._kept.drop(kept)

    def save(self, sequence: int, *, partial: bool) -> bytes:
        """The state of a sequence: all of it, or with ``partial`` only what cannot be cut (LFM2's convolutions, and the
        last window of layers that have one)."""
        flags = self._lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY if partial else 0
        size = self._lib.llama_state_seq_get_size_ext(self.pointer, sequence, flags)
        buffer = (ctypes.c_uint8 * size)()
        written = self._lib.llama_state_seq_get_data_ext(self.pointer, buffer, size, sequence, flags)
        return ctypes.string_at(buffer, written)

    def restore(self, sequence: int, state: bytes, *, positions: int, partial: bool) -> bool:
        """Put a saved state of so many positions back, or with ``partial`` only what cannot be cut; False when
        llama.cpp does not accept it."""
        flags = self._lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY if partial else 0
        buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
        if self._window:  # what is put back takes cells too
            self._anchor_all()
        self._drop_anchor(sequence)
        sound = bool(self._lib.llama_state_seq_set_data_ext(self.pointer, buffer, len(state), sequence, flags))
        if sound:
            for cells in self._caches[1:] if partial else self._caches:
                cells.restore(sequence, positions)
            self._anchor(sequence)
        return sound


def _new_context(model: LlamaModel, params: Any, attention: AttentionSettings) -> Any:
    """llama.cpp's pointer. Raises LeapModelLoadingError."""
    lib, types = library(), (attention.type_k, attention.type_v)
    params.swa_full = True
    params.flash_attn_type = int(attention.flash)
    params.type_k, params.type_v = (GGML_TYPES[name] for name in types)
    params.pooling_type = lib.LLAMA_POOLING_TYPE_NONE  # a hidden state is that of a position, not of a sequence
    params.kv_unified = True  # sequences share cells: a common prefix is held once, and copying it costs nothing
    params.offload_kqv = params.op_offload = model.on_gpu
    forget_errors()
    pointer = lib.llama_init_from_model(model.pointer, params)
    if not pointer:
        raise LeapModelLoadingError(
            f"llama.cpp cannot make a context of {params.n_ctx} tokens for {model.path.name}: "
            f"{last_errors() or 'no reason given'}",
            hint=TYPES_HINT if QUANTIZED.intersection(types) else "try a smaller context size or fewer slots",
        )
    return pointer


class _Batch:
    """llama.cpp's batch over numpy arrays, so that a chunk of a prompt is a few slice assignments."""

    def __init__(self, lib: Any, size: int, width: int) -> None:
        import numpy as np

        self._width = width
        self.count = 0
        self._is_embeddings = False
        self._tokens = np.zeros(size, np.int32)
        self._positions = np.zeros(size, np.int32)
        self._sequence_counts = np.ones(size, np.int32)
        self._sequences = np.zeros(size, np.int32)
        self._outputs = np.zeros(size, np.int8)
        self._embeddings: NDArray[float32] | None = None
        stride, base = self._sequences.itemsize, self._sequences.ctypes.data
        self._sequence_pointers = np.arange(size, dtype=np.uintp) * stride + base
        self._struct = lib.LlamaBatch()
        self._struct.pos = _pointer(self._positions, ctypes.c_int32)
        self._struct.n_seq_id = _pointer(self._sequence_counts, ctypes.c_int32)
        self._struct.seq_id = _pointer(self._sequence_pointers, ctypes.POINTER(ctypes.c_int32))
        self._struct.logits = _pointer(self._outputs, ctypes.c_int8)
        self._struct.token = self._token_pointer = _pointer(self._tokens, ctypes.c_int32)
        self._embedding_pointer: Any = None

    def add(self, sequence: int, position: int, tokens: list[int], output: bool) -> int:
        start, end = self._place(sequence, position, len(tokens), output)
        if len(tokens) == 1:
            self._tokens[start] = tokens[0]
        else:
            self._tokens[start:end] = tokens
        self._use_tokens()
        return end - 1

    def begin(self, sequences: list[int]) -> None:
        """Make space for one token of each sequence, with an output, in the place of what the batch holds."""
        self.count = count = len(sequences)
        self._sequences[:count], self._outputs[:count] = sequences, 1
        self._use_tokens()

    def fill(self, positions: list[int], tokens: list[int]) -> None:
        """The tokens that there is space for."""
        count = self.count
        if count == 1:
            self._tokens[0], self._positions[0] = tokens[0], positions[0]
        else:
            self._tokens[:count], self._positions[:count] = tokens, positions

    def _use_tokens(self) -> None:
        if self._is_embeddings:
            self._is_embeddings = False
            self._struct.token, self._struct.embd = self._token_pointer, None

    def want_all(self, count: int) -> None:
        """Ask for the output of each of the ``count`` positions that were added last."""
        self._outputs[self.count - count : self.count] = 1

    def add_embeddings(self, sequence: int, position: int, rows: NDArray[float32], output: bool) -> int:
        import numpy as np

        start, end = self._place(sequence, position, len(rows), output)
        if self._embeddings is None:
            self._embeddings = np.zeros((len(self._tokens), self._width), np.float32)
            self._embedding_pointer = _pointer(self._embeddings, ctypes.c_float)
        self._embeddings[start:end] = rows
        if not self._is_embeddings:
            self._is_embeddings = True
            self._struct.token, self._struct.embd = None, self._embedding_pointer
        return end - 1

    def _place(self, sequence: int, position: int, count: int, output: bool) -> tuple[int, int]:
        start, end = self.count, self.count + count
        if count == 1:  # as at every token of an answer: ten times as fast as slices of one
            self._positions[start], self._sequences[start] = position, sequence
        else:
            self._positions[start:end] = range(position, position + count)
            self._sequences[start:end] = sequence
            self._outputs[start:end] = 0
        self._outputs[end - 1] = output
        self.count = end
        return start, end

    def struct(self) -> Any:
        self._struct.n_tokens = self.count
        return self._struct


def _pointer(array: Any, kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))


class AbortFlag:
    """What llama.cpp asks before every node of its graph: ``bool callback(void *data)``.

    A Python callback would take the GIL hundreds of times a token; C's ``strlen`` answers the same question about a
    flag in memory: 0 while its first byte is 0, and 1 (true) once it is set.
    """

    def __init__(self) -> None:
        libc = ctypes.CDLL("msvcrt") if sys.platform == "win32" else ctypes.CDLL(None)
        self._flag = ctypes.create_string_buffer(b"\0\0", 2)
        self.is_set = False
        self.callback = ctypes.cast(libc.strlen, AbortCallback)
        self.data = ctypes.cast(self._flag, ctypes.c_void_p)

    def set(self, abort: bool) -> None:
        """From any thread."""
        self.is_set = abort
        self._flag[0] = b"\1" if abort else b"\0"

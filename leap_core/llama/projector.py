"""The projector of a model that sees or hears: pixels and samples to rows of embeddings, by llama.cpp's mtmd."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import LeapGenerationError, LeapModelLoadingError
from .library import forget_errors, last_errors, multimodal_library
from .model import LlamaModel

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

LEAST_SAMPLES = 320
"""Fewer end the process (20 ms at 16 kHz)."""
UNBOUNDED_TOKENS = 4096
"""Of one picture: sizes are decided by media.image_plan, and mtmd must neither resize nor cut."""
IMAGE, AUDIO = 1, 2


class Projector:
    """An mmproj file loaded beside its model. Check the file with ``models.projector_checks`` first: on a damaged one
    llama.cpp ends the process, at loading or at the first picture.

    One encoding runs at a time; others wait. ``threads`` compute it.
    """

    def __init__(self, path: Path, model: LlamaModel, *, threads: int, use_gpu: bool = False) -> None:
        self._lib = multimodal_library()
        self._guard = threading.Lock()
        self.path = path
        self.width = model.width
        params = self._lib.mtmd_context_params_default()
        params.use_gpu = use_gpu
        params.print_timings = False
        params.n_threads = threads
        params.warmup = False  # it encodes one picture of the largest size
        params.image_min_tokens = 1
        params.image_max_tokens = UNBOUNDED_TOKENS
        forget_errors()
        self.pointer: Any = self._lib.mtmd_init_from_file(os.fsencode(path), model.pointer, params)
        if not self.pointer:
            raise LeapModelLoadingError(
                f"llama.cpp cannot use {path} with {model.path.name}: {last_errors() or 'no reason given'}",
                hint="the projector must be the one of this model",
            )
        self.sees = bool(self._lib.mtmd_support_vision(self.pointer))
        self.hears = bool(self._lib.mtmd_support_audio(self.pointer))
        if self._lib.mtmd_decode_use_mrope(self.pointer):
            self.close()
            raise LeapModelLoadingError(f"{path} is of a kind whose positions leap cannot place")

    def close(self) -> None:
        """Free the memory; an encoding that runs ends first."""
        with self._guard:
            pointer, self.pointer = self.pointer, None
            if pointer:
                self._lib.mtmd_free(pointer)

    def encode_image(self, width: int, height: int, rgb: bytes) -> NDArray[float32]:
        """Rows of embeddings, shape [tokens, width of the model]. ``rgb``: 3 bytes a pixel, row by row; the sides are
        multiples of 32 pixels."""
        if len(rgb) != width * height * 3:
            raise ValueError(f"{len(rgb)} bytes for {width} x {height} pixels")
        pixels = (ctypes.c_uint8 * len(rgb)).from_buffer_copy(rgb)
        with self._guard:
            self._check_open()
            return self._encode(self._lib.mtmd_bitmap_init(width, height, pixels), IMAGE)

    def encode_audio(self, samples: NDArray[float32]) -> NDArray[float32]:
        """Rows of embeddings of mono samples at 16 kHz, at least LEAST_SAMPLES of them, finite."""
        import numpy as np

        samples = np.ascontiguousarray(samples, np.float32)
        if samples.ndim != 1 or len(samples) < LEAST_SAMPLES:
            raise ValueError(f"{samples.shape} samples; one dimension and at least {LEAST_SAMPLES} are needed")
        with self._guard:
            self._check_open()
            data = samples.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            return self._encode(self._lib.mtmd_bitmap_init_from_audio(len(samples), data), AUDIO)

    def _check_open(self) -> None:
        if self.pointer is None:
            raise LeapGenerationError("the model is unloaded", hint="load it again")

    def _encode(self, bitmap: Any, kind: int) -> NDArray[float32]:
        import numpy as np

        try:
            with self._tokenized(bitmap) as chunks:
                lib = self._lib
                of_kind = [chunk for chunk in chunks if lib.mtmd_input_chunk_get_type(chunk) == kind]
                if len(of_kind) != 1:
                    raise LeapGenerationError(f"llama.cpp made {len(of_kind)} pieces of one picture or sound")
                chunk = of_kind[0]
                if lib.mtmd_decode_use_non_causal(self.pointer, chunk):
                    raise LeapGenerationError(f"{self.path.name} needs attention to later positions, which leap lacks")
                forget_errors()
                if lib.mtmd_encode_chunk(self.pointer, chunk) != 0:
                    raise LeapGenerationError(f"llama.cpp cannot encode this: {last_errors() or 'no reason given'}")
                shape = (int(lib.mtmd_input_chunk_get_n_tokens(chunk)), self.width)
                # The buffer is overwritten by the next encoding.
                return np.ctypeslib.as_array(lib.mtmd_get_output_embd(self.pointer), shape).astype(np.float32)
        finally:
            self._lib.mtmd_bitmap_free(bitmap)

    @contextmanager
    def _tokenized(self, bitmap: Any) -> Iterator[list[Any]]:
        """mtmd's chunks of one medium: the medium itself, and tokens around it, which are not used."""
        lib = self._lib
        part = lib.mtmd_input_part()
        part.bitmap = bitmap
        parts = (ctypes.POINTER(lib.mtmd_input_part) * 1)(ctypes.pointer(part))
        chunks = lib.mtmd_input_chunks_init()
        try:
            forget_errors()
            code = lib.mtmd_tokenize_from_parts(self.pointer, chunks, parts, 1, False)
            if code != 0:
                raise LeapGenerationError(f"llama.cpp cannot read this: {last_errors() or f'code {code}'}")
            yield [lib.mtmd_input_chunks_get(chunks, n) for n in range(lib.mtmd_input_chunks_size(chunks))]
        finally:
            lib.mtmd_input_chunks_free(chunks)

"""The projector of a multimodal model: pixels and samples to rows of embeddings, by llama.cpp's mtmd."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import LeapGenerationError, LeapModelLoadingError
from .devices import all_gpus
from .library import forget_errors, last_errors, multimodal_library
from .model import LlamaModel, file_fingerprint

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

LEAST_SAMPLES = 320
"""Fewer end the process (20 ms at 16 kHz)."""
UNBOUNDED_TOKENS = 4096
"""One picture may have these: media.image_plan decides sizes, and mtmd must neither resize nor cut."""
IMAGE, AUDIO = 1, 2


class Projector:
    """An mmproj file beside its model, which must stay loaded as long. It is loaded when it is first needed: many
    prompts are text alone. Check the file with ``gguf.checks.check_projector`` first: on a damaged one llama.cpp ends
    the process, at loading or at the first picture.

    One encoding runs at a time; others wait. ``threads``: how many compute it when an encoding does not say.
    """

    def __init__(self, path: Path, model: LlamaModel, *, threads: int, use_gpu: bool = False) -> None:
        self._guard = threading.Lock()
        self._model = model
        self._use_gpu = use_gpu
        self._threads = threads
        self._pointer: Any = None
        self._closed = False
        self.path = path
        self.width = model.width

    @cached_property
    def _lib(self) -> Any:
        """Raises LeapModelLoadingError where the engine has no mtmd."""
        return multimodal_library()

    def _open(self, threads: int) -> Any:
        self._model.check_process()
        params = self._lib.mtmd_context_params_default()
        devices = self._model.placement.devices if self._use_gpu else ()
        if devices and hasattr(params, "device"):
            params.device = devices[0].pointer
        # a build that takes no device uses the first, which may be full or not wanted
        params.use_gpu = bool(devices) and (hasattr(params, "device") or devices[0].name == all_gpus()[0].name)
        params.print_timings = False
        params.n_threads = threads
        params.warmup = False  # it encodes one picture of the largest size
        params.image_min_tokens = 1
        params.image_max_tokens = UNBOUNDED_TOKENS
        forget_errors()
        pointer = self._lib.mtmd_init_from_file(os.fsencode(self.path), self._model.pointer, params)
        if not pointer:
            raise LeapModelLoadingError(
                f"llama.cpp cannot use {self.path} with {self._model.path.name}: {last_errors() or 'no reason given'}",
                hint="the projector must be the one of this model",
            )
        return pointer

    @cached_property
    def fingerprint(self) -> bytes:
        """Distinguishes projector files by content (16 bytes)."""
        return file_fingerprint(self.path)

    def close(self) -> None:
        """Free the memory; an encoding that runs ends first."""
        with self._guard:
            pointer, self._pointer, self._closed = self._pointer, None, True
            if pointer and not self._model.is_foreign:
                self._lib.mtmd_free(pointer)

    def encode_image(self, width: int, height: int, rgb: bytes, *, threads: int | None = None) -> NDArray[float32]:
        """Rows of embeddings, shape [tokens, width of the model]. ``rgb``: 3 bytes a pixel, row by row; the sides are
        multiples of 32 pixels."""
        if len(rgb) != width * height * 3:
            raise ValueError(f"{len(rgb)} bytes for {width} x {height} pixels")
        pixels = (ctypes.c_uint8 * len(rgb)).from_buffer_copy(rgb)
        with self._guard:
            self._prepare(threads)
            return self._encode(self._lib.mtmd_bitmap_init(width, height, pixels), IMAGE)

    def encode_audio(self, samples: NDArray[float32], *, threads: int | None = None) -> NDArray[float32]:
        """Rows of embeddings of mono samples at 16 kHz, at least LEAST_SAMPLES of them, finite."""
        import numpy as np

        samples = np.ascontiguousarray(samples, np.float32)
        if samples.ndim != 1 or len(samples) < LEAST_SAMPLES:
            raise ValueError(f"{samples.shape} samples; one dimension and at least {LEAST_SAMPLES} are needed")
        with self._guard:
            self._prepare(threads)
            data = samples.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            return self._encode(self._lib.mtmd_bitmap_init_from_audio(len(samples), data), AUDIO)

    def _prepare(self, threads: int | None) -> None:
        """Load the file, or load it again for another number of threads, which mtmd takes only then. A second thread
        on a core that another process uses makes an encoding twice as long as it is with one."""
        if self._closed:
            raise LeapGenerationError("the model is unloaded", hint="load it again")
        threads = threads or self._threads
        if self._pointer is not None and threads == self._threads:
            return
        pointer = self._open(threads)
        if self._pointer is not None:
            self._lib.mtmd_free(self._pointer)
        self._pointer, self._threads = pointer, threads
        if self._lib.mtmd_decode_use_mrope(pointer):
            raise LeapModelLoadingError(f"{self.path} is of a kind whose positions leap cannot place")

    def _encode(self, bitmap: Any, kind: int) -> NDArray[float32]:
        import numpy as np

        try:
            with self._tokenized(bitmap) as chunks:
                lib = self._lib
                of_kind = [chunk for chunk in chunks if lib.mtmd_input_chunk_get_type(chunk) == kind]
                if len(of_kind) != 1:
                    raise LeapGenerationError(f"llama.cpp made {len(of_kind)} pieces of one picture or sound")
                chunk = of_kind[0]
                if lib.mtmd_decode_use_non_causal(self._pointer, chunk):
                    raise LeapGenerationError(f"{self.path.name} needs attention to later positions, which leap lacks")
                forget_errors()
                if lib.mtmd_encode_chunk(self._pointer, chunk) != 0:
                    raise LeapGenerationError(f"llama.cpp cannot encode this: {last_errors() or 'no reason given'}")
                shape = (int(lib.mtmd_input_chunk_get_n_tokens(chunk)), self.width)
                # The buffer is overwritten by the next encoding.
                return np.ctypeslib.as_array(lib.mtmd_get_output_embd(self._pointer), shape).astype(np.float32)
        finally:
            self._lib.mtmd_bitmap_free(bitmap)

    @contextmanager
    def _tokenized(self, bitmap: Any) -> Iterator[list[Any]]:
        """mtmd's chunks of one medium: the medium itself, and tokens around it, which are not used."""
        lib = self._lib
        part = lib.InputPart()
        part.bitmap = bitmap
        parts = (ctypes.POINTER(lib.InputPart) * 1)(ctypes.pointer(part))
        chunks = lib.mtmd_input_chunks_init()
        try:
            forget_errors()
            code = lib.mtmd_tokenize_from_parts(self._pointer, chunks, parts, 1, False)
            if code != 0:
                raise LeapGenerationError(f"llama.cpp cannot read this: {last_errors() or f'code {code}'}")
            yield [lib.mtmd_input_chunks_get(chunks, n) for n in range(lib.mtmd_input_chunks_size(chunks))]
        finally:
            lib.mtmd_input_chunks_free(chunks)

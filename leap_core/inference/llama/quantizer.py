"""llama.cpp's quantizer: one file in, one file (or as many parts) out. It runs for minutes and may end the process, so
leap calls it in a child process only."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import LeapModelLoadingError
from ...system.dataclass import dataclass
from ..gguf.quantize_request import MIXTURES, TYPES, QuantizeRequest
from .bindings import LogCallback
from .library import library

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

STEP = re.compile(r"\[\s*(\d+)/\s*(\d+)\]\s+(\S+)")
SIZE = re.compile(r"quant size\s+=\s+([\d.]+) MiB")
CONVERTED = re.compile(r"size\s+=\s+[\d.]+ MiB\s+->")
FALLBACK = re.compile(r"-> falling back to\s+(\w+)")
NEEDS_IMATRIX = "will require an imatrix"
FAILURE = re.compile(r"failed to quantize: (.*)")
LARGEST_BUFFER = 512 * 1024**2
"""Rows that are quantized together take at most this; the result does not depend on it."""


@dataclass
class QuantizeLog:
    """What llama.cpp said: tensors ``converted``, how many of them to another type than meant (``fallbacks``), the
    size of all tensors in bytes."""

    converted: int = 0
    fallbacks: list[str] = field(default_factory=list)
    bytes: int = 0
    needs_imatrix: bool = False
    failure: str = ""


def quantize(
    source: Path,
    target: Path,
    asked: QuantizeRequest,
    *,
    imatrix: Mapping[str, NDArray[float32]] | None = None,
    dry: bool = False,
    on_tensor: Callable[[int, int, str], object] = lambda done, total, name: None,
) -> QuantizeLog:
    """Write ``source`` quantized to ``target``; with ``dry`` only find out what that gives. ``imatrix``: the importance
    matrix, by tensor. ``on_tensor`` is called with each tensor's number, their count and its name before it is made.
    Raises LeapModelLoadingError."""
    lib = library()
    log = QuantizeLog()

    def listen(level: int, text: bytes, _data: object) -> None:
        _read(text.decode("utf-8", "replace"), log, on_tensor)

    callback = LogCallback(listen)
    params, alive = _parameters(lib, asked, imatrix, dry)
    lib.llama_log_set(callback, None)
    code = lib.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(params))
    lib.llama_log_set(LogCallback(), None)  # a null pointer
    del alive
    if code != 0:
        raise LeapModelLoadingError(f"llama.cpp cannot quantize {source.name}: {log.failure or f'code {code}'}")
    return log


def _read(text: str, log: QuantizeLog, on_tensor: Callable[[int, int, str], object]) -> None:
    if step := STEP.search(text):
        on_tensor(int(step[1]), int(step[2]), step[3])
    if CONVERTED.search(text):
        log.converted += 1
    if fallback := FALLBACK.search(text):
        log.fallbacks.append(fallback[1])
    if size := SIZE.search(text):
        log.bytes = int(float(size[1]) * 1024**2)
    if failure := FAILURE.search(text):
        log.failure = failure[1].strip()
    log.needs_imatrix = log.needs_imatrix or NEEDS_IMATRIX in text


def _parameters(
    lib: Any, asked: QuantizeRequest, imatrix: Mapping[str, NDArray[float32]] | None, dry: bool
) -> tuple[Any, list[Any]]:
    """llama.cpp's structure, and what it points to."""
    params = lib.llama_model_quantize_default_params()
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    params.nthread, params.ftype, params.max_buf_size = asked.threads or processors, MIXTURES[asked.to], LARGEST_BUFFER
    params.allow_requantize, params.pure = asked.requantize, asked.pure
    params.keep_split, params.dry_run = asked.keep_split, dry
    if asked.output_type:
        params.output_tensor_type = TYPES[asked.output_type.upper()]
    if asked.embedding_type:
        params.token_embedding_type = TYPES[asked.embedding_type.upper()]
    alive: list[Any] = []
    if asked.tensor_types:
        kind = lib.TensorOverride
        overrides = dict(asked.tensor_types)
        array = (kind * (len(overrides) + 1))()
        for place, (pattern, name) in enumerate(overrides.items()):
            array[place].pattern, array[place].type = pattern.encode(), TYPES[name.upper()]
        alive.append(array)
        params.tt_overrides = ctypes.cast(array, ctypes.c_void_p)
    if imatrix:
        kind = lib.TensorImportance
        array = (kind * (len(imatrix) + 1))()
        for place, (name, values) in enumerate(imatrix.items()):
            data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            array[place].name, array[place].data, array[place].size = name.encode(), data, values.size
            alive.append(values)
        alive.append(array)
        params.imatrix = ctypes.cast(array, ctypes.c_void_p)
    return params, alive

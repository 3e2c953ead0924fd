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


@dataclass(frozen=True)
class QuantizeSettings:
    """``file_type``: of ``enum llama_ftype``. The types of single tensors are numbers of ``enum ggml_type``, None as
    the mixture has it. ``overrides``: an expression over names of tensors -> type. ``imatrix``: by tensor."""

    file_type: int
    threads: int
    output_type: int | None = None
    embedding_type: int | None = None
    overrides: Mapping[str, int] = field(default_factory=dict)
    imatrix: Mapping[str, NDArray[float32]] | None = None
    requantize: bool = False
    pure: bool = False
    keep_split: bool = False


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
    settings: QuantizeSettings,
    *,
    dry: bool = False,
    on_tensor: Callable[[int, int, str], object] = lambda done, total, name: None,
) -> QuantizeLog:
    """Write ``source`` quantized to ``target``; with ``dry`` only find out what that gives. ``on_tensor`` is called
    with each tensor's number, their count and its name before it is made. Raises LeapModelLoadingError."""
    lib = library()
    log = QuantizeLog()

    def listen(level: int, text: bytes, _data: object) -> None:
        _read(text.decode("utf-8", "replace"), log, on_tensor)

    callback = LogCallback(listen)
    params, alive = _parameters(lib, settings, dry)
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


def _parameters(lib: Any, settings: QuantizeSettings, dry: bool) -> tuple[Any, list[Any]]:
    """llama.cpp's structure, and what it points to."""
    params = lib.llama_model_quantize_default_params()
    params.nthread, params.ftype, params.max_buf_size = settings.threads, settings.file_type, LARGEST_BUFFER
    params.allow_requantize, params.pure = settings.requantize, settings.pure
    params.keep_split, params.dry_run = settings.keep_split, dry
    if settings.output_type is not None:
        params.output_tensor_type = settings.output_type
    if settings.embedding_type is not None:
        params.token_embedding_type = settings.embedding_type
    alive: list[Any] = []
    if settings.overrides:
        kind = lib.TensorOverride
        array = (kind * (len(settings.overrides) + 1))()
        for place, (pattern, number) in enumerate(settings.overrides.items()):
            array[place].pattern, array[place].type = pattern.encode(), number
        alive.append(array)
        params.tt_overrides = ctypes.cast(array, ctypes.c_void_p)
    if settings.imatrix:
        kind = lib.TensorImportance
        array = (kind * (len(settings.imatrix) + 1))()
        for place, (name, values) in enumerate(settings.imatrix.items()):
            data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            array[place].name, array[place].data, array[place].size = name.encode(), data, values.size
            alive.append(values)
        alive.append(array)
        params.imatrix = ctypes.cast(array, ctypes.c_void_p)
    return params, alive

"""llama.cpp's library, loaded once a process: what its build can do, its log kept off the terminal.

Compiled by GCC 12 (Debian 12's compiler), ``ggml_backend_amx_mul_mat`` loads a tile configuration of which the compiler
removed all stores but the first eight bytes, because that GCC's ``_tile_loadconfig`` names no more as its input. The
processor answers with a general protection fault at the first matrix product of every model. Nothing in llama.cpp
switches AMX off alone, so its request for the unit is made to fail: Linux grants it only when every signal stack of the
process is large enough for the tiles (arch/x86/kernel/fpu/xstate.c), and a small one is in place while ggml asks.
ggml then computes with its AVX-512 kernels.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import re
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import LeapModelLoadingError
from .bindings import Bindings, LogCallback
from .engines import Engine, chosen_engine, find_engine, require_unchanged

SMALL_STACK = 8192
"""Bytes: more than a signal frame with AVX-512's registers (about 3.5 kB), less than one with AMX's tiles (11 kB)."""
EXTRA_BUFFER_TYPES = b"ggml_backend_dev_get_extra_bufts"
"""ggml's name for the function whose first call asks for AMX."""


class _SignalStack(ctypes.Structure):
    """``stack_t`` of ``sigaltstack(2)``."""

    _fields_ = [("ss_sp", ctypes.c_void_p), ("ss_flags", ctypes.c_int), ("ss_size", ctypes.c_size_t)]


def decline_amx(llama: Bindings) -> None:
    """Let ggml find out now that it does not get AMX. Without effect on other systems, and once ggml has asked."""
    if not _has_amx():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    memory = ctypes.create_string_buffer(SMALL_STACK)
    small, before = _SignalStack(ctypes.addressof(memory), 0, SMALL_STACK), _SignalStack()
    if libc.sigaltstack(ctypes.byref(small), ctypes.byref(before)) != 0:
        return
    try:
        with _silent_stderr():
            _ask_for_buffer_types(llama)
    finally:
        libc.sigaltstack(ctypes.byref(before), None)


def _has_amx() -> bool:
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    try:
        with open("/proc/cpuinfo", "rb") as processors:
            return b" amx_tile" in processors.read(8192)  # the first processor's flags
    except OSError:
        return False


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """ggml writes its complaint straight to the descriptor, past the log callback."""
    try:
        kept = os.dup(2)
    except OSError:  # closed: nothing can be written
        yield
        return
    try:
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _ask_for_buffer_types(llama: Bindings) -> None:
    for index in range(llama.ggml_backend_reg_count()):
        registry = llama.ggml_backend_reg_get(index)
        if llama.ggml_backend_reg_name(registry) != b"CPU":
            continue
        address = llama.ggml_backend_reg_get_proc_address(registry, EXTRA_BUFFER_TYPES)
        if address:
            ask = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)
            ask(llama.ggml_backend_reg_dev_get(registry, 0))


CPU, GPU, INTEGRATED = 0, 1, 2
"""ggml_backend_dev_type; ggml-backend.h is the source."""
GPU_BACKEND = re.compile(r"(?:lib)?ggml-(cuda|vulkan|hip|metal|sycl|opencl|musa)\.(?:so|dll|dylib)")
GPU_BACKENDS = frozenset(("CUDA", "ROCM", "HIP", "VULKAN", "METAL", "MTL", "SYCL", "OPENCL", "MUSA"))
"""What a backend's library is called, and what it calls itself."""
HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES")
LAST_LINES = 40
LONGEST_REASON = 500
REPEATS_THE_FAILURE = "failed to load model"
"""What llama.cpp says after the reason."""
FUNCTION = re.compile(r"^[a-z_0-9]+: (error loading model: )?(error loading model [a-z]+: )?")
GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR, GGML_LOG_LEVEL_CONT = 3, 4, 5

_guard = threading.Lock()
_lines: deque[tuple[int, str]] = deque(maxlen=LAST_LINES)
_verbose = False
_library: Bindings | None = None
_engine: Engine | None = None
_last_level = 0


def set_verbose(verbose: bool) -> None:
    """Let llama.cpp's log through to stderr, or keep it back (the default)."""
    global _verbose
    _verbose = verbose


def last_errors() -> str:
    """Why llama.cpp's last operation failed, for a message: its latest errors without the names of its functions, or
    where it logged none, its latest warning; empty when it said nothing."""
    lines = [(level, _without_function(line)) for level, line in list(_lines)]
    errors = [line for level, line in lines if level == GGML_LOG_LEVEL_ERROR and REPEATS_THE_FAILURE not in line]
    reasons = errors[-2:] or [line for _, line in lines[-1:]]
    return "; ".join(reason for reason in reasons if reason)[:LONGEST_REASON]


def _without_function(line: str) -> str:
    """``llama_model_load: error loading model: x`` is reported as ``x``."""
    return FUNCTION.sub("", line.strip())


def forget_errors() -> None:
    """Forget what was logged so far, before an operation whose errors are wanted."""
    _lines.clear()


def set_variables() -> None:
    """Without the first an abort inside ggml tries to start a debugger; without the second, which numpy reads when it
    is imported, numpy's threads and llama.cpp's spin against each other on small machines."""
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def current_engine() -> Engine:
    """The engine that this process runs, or will run when something is loaded. Raises LeapModelLoadingError."""
    return _engine or chosen_engine()


def other_engine() -> str | None:
    """The name of the engine that runs, where that is not the default one."""
    return _engine.name if _engine is not None and _engine.record else None


def use_engine(name: str | None) -> None:
    """Run the engine of this name in this process, and in those that it starts; None leaves it to the environment.
    Raises LeapModelLoadingError where it is not here, or another one runs already: a process has one."""
    global _engine
    if name is None:
        return
    engine = find_engine(name)
    with _guard:
        if _library is not None and _engine is not None and engine.id != _engine.id:
            raise LeapModelLoadingError(
                f"this process runs the engine {_engine.name} already, and {engine.name} needs one of its own"
            )
        _engine = engine
        os.environ["LEAP_ENGINE"] = engine.name


def run_folder(folder: Path) -> None:
    """Run the build in this folder, which is no engine yet, in this process."""
    global _engine
    _engine = Engine(folder.name, folder, "", f"trial of {folder}")
    os.environ["LEAP_ENGINE"] = str(folder)  # of its children


def library() -> Any:
    """The bindings of this process's engine, with the backends loaded. Raises LeapModelLoadingError."""
    global _library, _engine
    with _guard:
        if _library is None:
            set_variables()
            engine = _engine or chosen_engine()
            require_unchanged(engine)
            llama = Bindings(engine.libraries(), engine.name)
            set_log(llama)
            if not llama.ggml_backend_reg_count():  # a build whose backends are files beside it
                llama.ggml_backend_load_all_from_path(os.fsencode(engine.folder))
            if not llama.ggml_backend_dev_count():
                raise LeapModelLoadingError(f"the engine {engine.name} has no backend for this processor")
            atexit.register(_keep_log_out_of_python)
            decline_amx(llama)
            llama.llama_backend_init()
            _library, _engine = llama, engine
        return _library


def multimodal_library() -> Any:
    """``library``, where it has mtmd. Raises LeapModelLoadingError where it has not."""
    llama = library()
    _ = llama.mtmd_tokenize_from_parts  # which an older build lacks
    for name in ("mtmd_log_set", "mtmd_helper_log_set"):
        getattr(llama, name)(LOG, None)
    return llama


def set_log(llama: Any = None) -> None:
    """Have llama.cpp log to here: another program's module may have taken its log."""
    (llama or library()).llama_log_set(LOG, None)


def _receive_log(level: int, text: bytes, _user_data: object) -> None:
    global _last_level
    if level != GGML_LOG_LEVEL_CONT:
        _last_level = level
    line = text.decode("utf-8", "replace")
    if _verbose:
        sys.stderr.write(line)
        sys.stderr.flush()
    if _last_level in (GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR):
        _lines.append((_last_level, line))


LOG = LogCallback(_receive_log)
"""llama.cpp keeps the bare pointer, so it must live as long as the process."""


def _keep_log_out_of_python() -> None:
    """While the interpreter ends, a thread that calls into Python ends there and then, and the process with it when
    that happens inside C++. C's ``labs`` takes the log's arguments and does nothing."""
    libc = ctypes.CDLL("msvcrt") if sys.platform == "win32" else ctypes.CDLL(None)
    if _library is not None:
        _library.llama_log_set(ctypes.cast(libc.labs, LogCallback), None)


def state_version() -> str:
    """What a saved state depends on besides the model: the engine and the width of a pointer."""
    return f"{current_engine().id} {sys.byteorder} {ctypes.sizeof(ctypes.c_void_p) * 8}"


def names_of(llama: Any, device: Any) -> tuple[str, str]:
    """A device's name, and what it is."""
    texts = (llama.ggml_backend_dev_name(device), llama.ggml_backend_dev_description(device))
    name, description = (text.decode("utf-8", "replace").strip() for text in texts)
    return name, description


def memory_of(llama: Any, device: Any) -> tuple[int, int]:
    """Free bytes of a device, and all."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    llama.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def has_gpu_support() -> bool:
    """Whether the engine sees a GPU. ``llama_supports_gpu_offload`` also says yes to a build that knows RPC."""
    llama = library()
    kinds = (llama.ggml_backend_dev_type(llama.ggml_backend_dev_get(n)) for n in range(llama.ggml_backend_dev_count()))
    return any(kind in (GPU, INTEGRATED) for kind in kinds)


def gpu_backends() -> list[str]:
    """The backends for GPUs that the engine has, whether they see one or not, such as CUDA."""
    llama = library()
    names = (llama.ggml_backend_reg_name(llama.ggml_backend_reg_get(n)) for n in range(llama.ggml_backend_reg_count()))
    loaded = {name.decode("utf-8", "replace").upper() for name in names}
    files = {match[1].upper() for name in os.listdir(current_engine().folder) if (match := GPU_BACKEND.match(name))}
    return sorted((loaded & GPU_BACKENDS) | files)


def unseen_gpu() -> str:
    """Why the engine, which sees no GPU, sees none."""
    name, backends = current_engine().name, gpu_backends()
    if not backends:
        return f"the engine {name} is built without a GPU"
    hidden = next((each for each in HIDING if os.environ.get(each) in ("", "-1")), None)
    why = f", for {hidden} hides all" if hidden else ""
    return f"the engine {name} has {', '.join(backends)} and sees no GPU{why}"

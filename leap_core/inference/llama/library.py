"""llama.cpp's library, loaded once: its version, what its build can do, its log kept off the terminal.

Those take four times as long to import as the bindings, and a model's weights cannot be read before. The package is
there all the same: a request for more than the bindings gets all of it.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "llama_cpp"
_settings: list[Callable[[], object]] = []


def keep(setting: Callable[[], object]) -> None:
    """Make a setting of llama.cpp's again whenever the package is imported whole: it makes its own, as of the log."""
    _settings.append(setting)


def bindings(name: str) -> Any:
    """The module ``llama_cpp.NAME``."""
    if PACKAGE not in sys.modules:
        spec = find_spec(PACKAGE)
        if spec is not None and spec.loader is not None and spec.submodule_search_locations:
            sys.modules[PACKAGE] = _Package(spec)
    return import_module(f"{PACKAGE}.{name}")


class _Package(ModuleType):
    """The package, executed when something of it is missing."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(spec.name)
        self.__spec__, self.__loader__, self.__package__ = spec, spec.loader, spec.name
        self.__file__ = spec.origin
        self.__path__ = spec.submodule_search_locations or []
        self._guard = threading.RLock()
        self._begun = False

    def __getattr__(self, name: str) -> Any:
        with self._guard:
            if not self._begun:
                self._begun = True
                assert self.__spec__ is not None and self.__spec__.loader is not None
                try:
                    self.__spec__.loader.exec_module(self)
                    for setting in _settings:
                        setting()
                except BaseException:
                    self._begun = False
                    raise
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"module {PACKAGE!r} has no attribute {name!r}") from None


SMALL_STACK = 8192
"""Bytes: more than a signal frame with AVX-512's registers (about 3.5 kB), less than one with AMX's tiles (11 kB)."""
EXTRA_BUFFER_TYPES = b"ggml_backend_dev_get_extra_bufts"
"""ggml's name for the function whose first call asks for AMX."""


class _SignalStack(ctypes.Structure):
    """``stack_t`` of ``sigaltstack(2)``."""

    _fields_ = [("ss_sp", ctypes.c_void_p), ("ss_flags", ctypes.c_int), ("ss_size", ctypes.c_size_t)]


def decline_amx(llama: ctypes.CDLL) -> None:
    """Let ggml find out now that it does not get AMX. ``llama``: the loaded library, through which ggml's functions are
    found. Without effect on other systems, and once ggml has asked."""
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


def _ask_for_buffer_types(llama: ctypes.CDLL) -> None:
    try:
        registry_of_cpu = llama.ggml_backend_cpu_reg
        address_of = llama.ggml_backend_reg_get_proc_address
        device_of = llama.ggml_backend_reg_dev_get
    except AttributeError:  # linked in another way: nothing is known about it
        return
    registry_of_cpu.restype = ctypes.c_void_p
    address_of.restype, address_of.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
    device_of.restype, device_of.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t)
    registry = registry_of_cpu()
    address = address_of(registry, EXTRA_BUFFER_TYPES)
    if address:
        ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)(device_of(registry, 0))


VERSION = re.compile(r"""(?m)^__version__ = ["'](.+?)["']""")


@cache
def engine_version() -> str:
    """The version of llama-cpp-python: verdicts and saved states belong to one."""
    from importlib.util import find_spec

    # The package's file says it in a tenth of a millisecond; importlib.metadata takes thirty to be imported.
    spec = find_spec("llama_cpp")
    try:
        text = Path(spec.origin or "").read_text("utf-8") if spec is not None else ""
    except OSError:
        text = ""
    version = VERSION.search(text)
    return "unknown" if version is None else version[1]


LAST_LINES = 40
LONGEST_REASON = 500
REPEATS_THE_FAILURE = "failed to load model"
"""What llama.cpp says after the reason."""
FUNCTION = re.compile(r"^[a-z_0-9]+: (error loading model: )?(error loading model [a-z]+: )?")
GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR, GGML_LOG_LEVEL_CONT = 3, 4, 5

_guard = threading.Lock()
_lines: deque[tuple[int, str]] = deque(maxlen=LAST_LINES)
_verbose = False
_library: Any = None
_multimodal: Any = None
_log_callback: Any = None  # llama.cpp keeps the bare pointer, so the callback must live as long as the process
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


def library() -> Any:
    """The ``llama_cpp.llama_cpp`` module, with the backend initialised."""
    global _library, _log_callback
    with _guard:
        if _library is None:
            set_variables()
            llama_cpp = bindings("llama_cpp")
            _log_callback = llama_cpp.llama_log_callback(_receive_log)
            set_log = partial(llama_cpp.llama_log_set, _log_callback, ctypes.c_void_p(0))
            set_log()
            keep(set_log)
            atexit.register(_keep_log_out_of_python)
            decline_amx(llama_cpp._lib)
            llama_cpp.llama_backend_init()
            _library = llama_cpp
        return _library


def multimodal_library() -> Any:
    """The ``llama_cpp.mtmd_cpp`` module, its log in the same place."""
    global _multimodal
    library()
    with _guard:
        if _multimodal is None:
            mtmd_cpp = bindings("mtmd_cpp")
            mtmd_cpp.mtmd_log_set(_log_callback, ctypes.c_void_p(0))
            mtmd_cpp.mtmd_helper_log_set(_log_callback, ctypes.c_void_p(0))
            _multimodal = mtmd_cpp
        return _multimodal


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


def _keep_log_out_of_python() -> None:
    """While the interpreter ends, a thread that calls into Python ends there and then, and the process with it when
    that happens inside C++. C's ``labs`` takes the log's arguments and does nothing."""
    libc = ctypes.CDLL("msvcrt") if sys.platform == "win32" else ctypes.CDLL(None)
    _library.llama_log_set(ctypes.cast(libc.labs, _library.llama_log_callback), ctypes.c_void_p(0))


def state_version() -> str:
    """What a saved state depends on besides the model: the llama.cpp build and the width of a pointer."""
    return f"llama-cpp-python {engine_version()} {sys.byteorder} {ctypes.sizeof(ctypes.c_void_p) * 8}"


def describe() -> dict[str, Any]:
    """``version`` of llama-cpp-python, the CPU ``features`` that are in use, the ``devices`` it computes on, and
    whether layers can be offloaded to a GPU."""
    import llama_cpp

    llama = library()
    words = llama.llama_print_system_info().decode("utf-8", "replace")
    switches = [word.split("=") for word in words.partition(":")[2].split("|") if "=" in word]
    return {
        "version": llama_cpp.__version__,
        "features": [name.strip() for name, value in switches if value.strip() not in ("", "0")],
        "devices": _devices(llama),
        "gpu_offload": bool(llama.llama_supports_gpu_offload()),
    }


def _devices(llama: Any) -> list[dict[str, Any]]:
    """ggml's devices; ggml-backend.h is the source of these signatures."""
    ggml = llama._lib
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
    ggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    for function in (ggml.ggml_backend_dev_name, ggml.ggml_backend_dev_description):
        function.restype, function.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    ggml.ggml_backend_dev_memory.restype = None
    ggml.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, *[ctypes.POINTER(ctypes.c_size_t)] * 2]
    devices = []
    for index in range(ggml.ggml_backend_dev_count()):
        device = ggml.ggml_backend_dev_get(index)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        ggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
        devices.append(
            {
                "name": ggml.ggml_backend_dev_name(device).decode("utf-8", "replace"),
                "description": ggml.ggml_backend_dev_description(device).decode("utf-8", "replace").strip(),
                "memory": total.value,
            }
        )
    return devices


GPU_KINDS = (1, 2)
"""ggml_backend_dev_type of a GPU, and of one that shares the processor's memory; ggml-backend.h is the source."""


def has_gpu_support() -> bool:
    """Whether layers can be offloaded to a GPU at all."""
    return bool(library().llama_supports_gpu_offload())


def free_gpu_memory() -> list[int]:
    """The free bytes of each GPU."""
    if not has_gpu_support():
        return []
    ggml = library()._lib
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
    ggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    ggml.ggml_backend_dev_type.restype = ctypes.c_int
    ggml.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
    ggml.ggml_backend_dev_memory.restype = None
    ggml.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, *[ctypes.POINTER(ctypes.c_size_t)] * 2]
    sizes = []
    for index in range(ggml.ggml_backend_dev_count()):
        device = ggml.ggml_backend_dev_get(index)
        if ggml.ggml_backend_dev_type(device) in GPU_KINDS:
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            ggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
            sizes.append(free.value)
    return sizes

"""llama.cpp's library, loaded once: its log kept off the terminal, its last words kept for error messages."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import sys
import threading
from collections import deque
from functools import partial
from typing import Any

from .amx import decline_amx
from .bindings import bindings, keep
from .engine_version import engine_version

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

"""All of llama.cpp's functions, as llama-cpp-python declares them: what tests compare leap's own bindings with."""

from __future__ import annotations

from typing import Any

import pytest

from leap_core.inference.llama import library
from leap_core.inference.llama.engines import default_engine


def whole_library() -> Any:
    """The module ``llama_cpp.llama_cpp``, over the same library that leap runs, its log with leap's."""
    library.library()
    if library.current_engine() != default_engine():
        pytest.skip("llama-cpp-python declares the functions of its own engine alone")
    from llama_cpp import llama_cpp

    library.set_log()
    return llama_cpp


def whole_multimodal_library() -> Any:
    """The module ``llama_cpp.mtmd_cpp``."""
    whole_library()
    library.multimodal_library()
    from llama_cpp import mtmd_cpp

    library.set_log()
    return mtmd_cpp

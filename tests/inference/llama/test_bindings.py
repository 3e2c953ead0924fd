"""The bindings without the package around them, and the package for whoever wants it."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = """
import sys
from leap_core.inference.llama.library import bindings
from leap_core.inference.llama.library import library, state_version
assert library() is bindings("llama_cpp")
assert "llama_cpp.llama" not in sys.modules and "jinja2" not in sys.modules
import llama_cpp
assert llama_cpp.llama_cpp is library() and "llama_cpp.llama" not in sys.modules
assert llama_cpp.Llama.__name__ == "Llama" and "llama_cpp.llama" in sys.modules
assert llama_cpp.llama_backend_init is library().llama_backend_init
assert llama_cpp.__version__ in state_version()
try:
    llama_cpp.nothing_of_this_name
except AttributeError:
    pass
else:
    raise AssertionError
from llama_cpp import mtmd_cpp, Llama
from llama_cpp import *
assert bindings("mtmd_cpp") is mtmd_cpp
"""


def test_the_package_is_whole_when_it_is_asked() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_package_that_is_there_already_stays() -> None:
    code = (
        "import llama_cpp; from leap_core.inference.llama.library import library; import sys; "
        "assert sys.modules['llama_cpp'] is llama_cpp and library() is llama_cpp.llama_cpp; llama_cpp.Llama"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_log_stays_silent_when_the_package_comes_later() -> None:
    code = (
        "from leap_core import Leap; from leap_core.models.builtin import model_path; "
        "from leap_core.inference.llama.library import library; library(); "
        "import llama_cpp; llama_cpp.Llama; r = Leap.load(str(model_path()), host='never'); "
        "list(r.create_conversation().generate_response('hi')); r.unload()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

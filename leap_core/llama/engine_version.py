"""The build of llama.cpp that is installed, without importing it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

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

"""What a job takes along from the environment of who submits it: the worker has an environment of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

DIRECTORIES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE", "XDG_CACHE_HOME")
MODEL_VARIABLES = (*DIRECTORIES, "HF_ENDPOINT")
"""Where models of other programs lie, and whose names they have."""
DOWNLOAD_VARIABLES = (*MODEL_VARIABLES, "HF_HUB_OFFLINE")
"""A token is never written down."""


def carried(variables: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Those that are set, with paths that mean the same in any directory."""
    found = {name: variables[name] for name in names if variables.get(name)}
    return {name: _absolute(value) if name in DIRECTORIES else value for name, value in found.items()}


def variables_of(parameters: Mapping[str, Any]) -> dict[str, str]:
    """This process's environment, but for what the job with these parameters has carried here."""
    given = parameters.get("variables")
    if given is None:  # submitted by an older leap
        return dict(os.environ)
    return {**{name: value for name, value in os.environ.items() if name not in DOWNLOAD_VARIABLES}, **given}


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))

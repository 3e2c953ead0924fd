"""The environment variables that a job takes along from its submitter: the worker's environment is another one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

DIRECTORIES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE", "XDG_CACHE_HOME")
MODEL_VARIABLES = (*DIRECTORIES, "HF_ENDPOINT", "RAY_ADDRESS")
"""They say where models of other programs lie, whose names they have, and which cluster is the usual one."""
DOWNLOAD_VARIABLES = (*MODEL_VARIABLES, "HF_HUB_OFFLINE")
"""A token is never written down, nor a password in an address."""


def submitted_variables(variables: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Those of ``names`` that are set, with absolute paths."""
    values = {name: variables[name] for name in names if variables.get(name)}
    return {name: _absolute(value) if name in DIRECTORIES else _open(value) for name, value in values.items()}


def variables_of(parameters: Mapping[str, Any]) -> dict[str, str]:
    """This process's environment, overridden by what the job with these parameters took along: of its variables only
    those that jobs take."""
    values = parameters.get("variables")
    if not isinstance(values, dict):  # submitted by an older leap
        return dict(os.environ)
    own = {name: value for name, value in os.environ.items() if name not in DOWNLOAD_VARIABLES}
    return {**own, **{name: str(value) for name, value in values.items() if name in DOWNLOAD_VARIABLES}}


def _open(address: str) -> str:
    """An address without its user and password; a worker that needs them has them in its own environment."""
    scheme, slashes, rest = address.partition("//")
    server, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{server.rpartition('@')[2]}{slash}{path}"


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))

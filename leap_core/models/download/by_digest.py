"""Fetching a model by its SHA-256, from where another machine got it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from ...errors import LeapModelDownloadError
from ...storage.directories import Directories
from ..installed.model_store import Store
from ..references.digest_names import ModelDigests
from ..references.origins import read_origin
from .downloading import Download
from .plan import DownloadPlan


def fetch_by_digest(
    digest: str,
    origin: str,
    variables: Mapping[str, str],
    *,
    stop: threading.Event | None = None,
    on_begin: Callable[[str], object] = lambda _name: None,
) -> None:
    """Install the model with this SHA-256. ``origin``: see ``references.origins``; ``on_begin`` hears the model's name
    before it comes. Raises LeapModelDownloadError for what is not that model, or would replace another one, and
    ValueError for what is no origin."""
    reference, quantization, revision = read_origin(origin)
    directories = Directories.from_environment(variables)
    download = Download(stop=stop, variables=variables, cwd=directories.data)
    plan = download.plan(reference, quantization, revision)
    if plan is None:
        raise LeapModelDownloadError(f"{reference} is a file of another machine")
    _check(plan, digest, directories)
    on_begin(plan.name)
    model = download.run(reference, quantization, revision)
    if (found := ModelDigests(directories).of(model.path)) != digest:
        raise LeapModelDownloadError(f"{plan.name} has the SHA-256 {found} there")


def _check(plan: DownloadPlan, digest: str, directories: Directories) -> None:
    offered = plan.files[0].remote.sha256
    if offered not in (None, digest):
        raise LeapModelDownloadError(f"{plan.name} has the SHA-256 {offered} there")
    if any(model.name == plan.name and model.state == "ready" for model in Store.of(directories).installed()):
        raise LeapModelDownloadError(f"another file is here as {plan.name}")

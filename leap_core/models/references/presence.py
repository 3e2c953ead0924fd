"""Whether a model is on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...errors import LeapModelNotDownloadedError
from .endpoints import find_endpoint
from .resolving import resolve_local


def is_here(reference: str, *, variables: Mapping[str, str], cwd: Path) -> bool:
    """Whether the model can answer: it is on this machine, or elsewhere; False for one that can be fetched. Raises
    LeapModelNotFoundError for a name of nothing, and LeapModelLoadingError for what cannot be run."""
    try:
        check_reference(reference, variables=variables, cwd=cwd)
    except LeapModelNotDownloadedError:
        return False
    return True


def check_reference(reference: str, *, variables: Mapping[str, str], cwd: Path) -> None:
    """Raises what ``resolve_local`` raises for a reference that no model answers to. An endpoint is not asked."""
    if find_endpoint(reference, variables) is None:
        resolve_local(reference, variables=variables, cwd=cwd)

"""Whether a model is on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...errors import LeapModelNotDownloadedError
from .resolving import resolve_local


def is_here(reference: str, *, variables: Mapping[str, str], cwd: Path) -> bool:
    """Whether the model is on this machine; False for one that can be fetched. Raises LeapModelNotFoundError for a name
    of nothing, and LeapModelLoadingError for what cannot be run."""
    try:
        resolve_local(reference, variables=variables, cwd=cwd)
    except LeapModelNotDownloadedError:
        return False
    return True

"""Whether a model is on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...errors import LeapModelNotDownloadedError
from ...storage.directories import Directories
from .endpoints import find_endpoint
from .resolving import Resolver


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
    directories = Directories.from_environment(variables)
    if find_endpoint(reference, directories) is None:
        Resolver(directories, variables, cwd).resolve(reference)

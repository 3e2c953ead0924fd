"""A checked batch -> what answers its lines on a cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from ...errors import LeapOptionsError
from ...models.digests import ModelDigests
from ...models.resolving import resolve_local
from ...system.directories import Directories
from ..checking import CheckedBatch
from ..settings import BatchCluster, fingerprint_of
from .line_answerer import ModelOfCluster
from .ray_workers import RayWorkers

RAY, ADDRESS_VARIABLE = "ray", "RAY_ADDRESS"
WORKERS = re.compile(r"(?:(\d{1,5})\.\.)?(\d{1,5})")


def numbers_of_workers(text: str | None) -> tuple[int, int | None]:
    """Least and most of ``8`` or ``2..8``; no most for None. Raises LeapOptionsError."""
    if text is None:
        return 1, None
    match = WORKERS.fullmatch(text)
    least, most = (1, 0) if match is None else (int(match[1] or 1), int(match[2]))
    if not 1 <= least <= most:
        raise LeapOptionsError("workers", f"{text!r} is neither a number from 1 nor a range such as 2..8")
    return least, most


def address_of(on: str, variables: Mapping[str, str]) -> str | None:
    """What ``ray.init`` takes for ``ray`` (RAY_ADDRESS, else None) or ``ray://HOST:PORT``. Raises LeapOptionsError for
    anything else."""
    if on != RAY and not on.startswith("ray://"):
        raise LeapOptionsError("on", f"{on!r} is neither ray nor ray://HOST:10001")
    return variables.get(ADDRESS_VARIABLE) or None if on == RAY else on


def open_on_cluster(
    checked: CheckedBatch,
    cluster: BatchCluster,
    *,
    variables: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    on_note: Callable[[str], object] = lambda _text: None,
) -> RayWorkers:
    """The runner, not yet entered; ``on_note`` is called with what takes long before the first answer. Raises
    LeapModelNotFoundError where this machine lacks the model."""
    variables, cwd = os.environ if variables is None else variables, cwd or Path.cwd()
    loading = checked.settings.loading_options()
    model = resolve_local(checked.model, variables=variables, cwd=cwd)
    least, most = numbers_of_workers(cluster.workers)
    digests = ModelDigests(Directories.from_environment(variables))
    digest = digests.of(model.path)
    assert cluster.on is not None
    return RayWorkers(
        ModelOfCluster(
            reference=checked.model,
            path=str(model.path.resolve()),
            digest=digest,
            fingerprint=fingerprint_of(checked.model, loading, variables=variables, cwd=cwd),
            loading=loading,
            embeds=checked.embeds,
            origin=digests.origins().get(digest),
        ),
        checked.reader,
        checked.settings.limits.concurrency,
        address=address_of(cluster.on, variables),
        least=least,
        most=most,
        lines=len(checked.lines),
        on_note=on_note,
    )

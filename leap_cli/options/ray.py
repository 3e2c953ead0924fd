"""The options of Ray clusters."""

from __future__ import annotations

import click

from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option


def _build(arguments: Arguments) -> tuple[str | None, str | None]:
    """The cluster and the number of workers. Raises UsageError, LeapOptionsError."""
    from leap_core.batch.clusters.opening import address_of, numbers_of_workers

    on, workers = arguments["on"], arguments.get("workers")
    if workers is not None and on is None:
        raise click.UsageError("--workers needs --on, the cluster that they are of")
    if on is not None:
        address_of(on, arguments.env.variables)
        numbers_of_workers(workers)
    return on, workers


CLUSTER = OptionGroup(
    "cluster",
    "Cluster",
    (
        option(
            "--on",
            metavar="CLUSTER",
            help="Run on a Ray cluster: ray or ray://HOST:10001; ray means RAY_ADDRESS, this machine's cluster, or a "
            "new one.",
        ),
        option(
            "--workers", metavar="N|MIN..MAX", help="Number of model copies on the cluster; by default as many as fit."
        ),
    ),
    _build,
)
CHECKED_CLUSTER = OptionGroup(
    "cluster",
    "",
    (option("--on", metavar="CLUSTER", help="Also check this Ray cluster: ray or ray://HOST:10001."),),
    _build,
)
"""Of ``leap doctor``."""

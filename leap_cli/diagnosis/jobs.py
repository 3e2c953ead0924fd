"""What ``leap doctor`` looks at about jobs: the databases, the worker, and the server that several machines share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from leap_core.errors import LeapError

from ..framework.environment import Environment
from .check import OK, PROBLEM, WARNING, Check

MOST_CLOCK_SECONDS = 5.0
"""How far the clocks of this machine and of the server may be apart without a word."""


def databases(env: Environment) -> Iterator[Check]:
    """The files of sessions and jobs. Damage is a problem: what they hold cannot be used."""
    for name, path in (("jobs", env.directories.jobs_file), ("sessions", env.directories.sessions_file)):
        if path.is_file():
            yield _sound(name, path)


def _sound(name: str, path: Path) -> Check:
    from leap_core.storage.sqlite import damage

    try:
        report = damage(path)
    except LeapError as error:
        return Check(f"{name}.db", WARNING, error.message)
    if report is not None:
        return Check(f"{name}.db", PROBLEM, f"{path} is damaged: {report}", "move it away to begin with an empty one")
    return Check(f"{name}.db", OK, f"{path} is sound")


def worker(env: Environment) -> Check:
    """The process that works on jobs, and what waits for it."""
    from jobs.table.recent import counts

    table = env.directories.jobs_file
    try:
        from jobs.configuration import JobsConfiguration
        from jobs.keeper.starting import is_running

        settings = JobsConfiguration.from_environment(env.variables)
        if settings.is_shared:
            running = is_running(settings)
            detail = "runs here" if running else "none runs here; leap jobs worker starts one"
            return Check("worker", OK, detail, None, {"running": running})
        if not table.is_file():
            return Check("worker", OK, "not needed: there are no jobs", None, {"running": False, "jobs": {}})
        running = is_running(settings)
        by_state = counts(table)
    except (LeapError, OSError) as error:
        return Check("worker", WARNING, str(error))
    facts = {"running": running, "jobs": by_state}
    waiting = by_state.get("queued", 0) + by_state.get("running", 0)
    summary = ", ".join(f"{count} {state}" for state, count in by_state.items()) or "no jobs"
    if waiting and not running:
        return Check("worker", WARNING, f"not running, and {waiting} jobs wait", "leap jobs status JOB", facts)
    return Check("worker", OK, f"{'running' if running else 'not running'}; {summary}", None, facts)


def server(env: Environment) -> Iterator[Check]:
    """The server of ``jobs_url``: whether it answers, its version and clock, and the workers that are alive."""
    from jobs.configuration import JobsConfiguration
    from leap_core.models.references.digest_names import ModelDigests

    try:
        settings = JobsConfiguration.from_environment(env.variables)
        if settings.jobs_url is None:
            return
        from jobs.client.waiting_reasons import NO_WORKER, waiting_reason
        from jobs.table.postgres import PostgresDatabase
        from jobs.table.reading import TableReader
        from jobs.table.worker_rows import WorkerRows
        from leap_core.addresses import masked

        with closing(PostgresDatabase.at(settings.jobs_url)) as database:
            facts = database.server_facts()
            workers = WorkerRows(database).all()
            waiting = TableReader(database).models_waited_for()
    except LeapError as error:
        yield Check("jobs' server", PROBLEM, error.message, error.hint)
        return
    lead = float(str(facts["clock_lead_seconds"]))
    detail = f"PostgreSQL {facts['version']} at {masked(settings.jobs_url)}, schema {facts['schema']}"
    if abs(lead) > MOST_CLOCK_SECONDS:
        detail += f"; its clock differs from this machine's by {lead:+.0f} s"
        yield Check("jobs' server", WARNING, detail, "leap uses the server's time; set this machine's clock", facts)
    elif facts["deaf"] is not None:
        hint = "jobs_url says with listen_host and listen_port where the server itself is"
        yield Check("jobs' server", WARNING, f"{detail}; {facts['deaf']}", hint, facts)
    else:
        yield Check("jobs' server", OK, detail, None, facts)
    alive = [f"{each.name} on {each.machine}" for each in workers if each.is_alive]
    facts = {"workers": [each.to_json() for each in workers]}
    here = ModelDigests(env.directories).installed() if waiting else {}
    reasons = {job.id: waiting_reason(job, workers, here.__contains__) for job in waiting}
    waits = [f"{id} waits: {reason}" for id, reason in reasons.items() if reason not in (None, NO_WORKER)]
    if not alive:
        yield Check("workers", WARNING, "none is alive", "leap jobs worker starts one", facts)
    elif waits:
        yield Check("workers", WARNING, "; ".join(waits[:5]), "leap jobs workers lists the models of each", facts)
    else:
        yield Check("workers", OK, f"{len(alive)} alive: {', '.join(alive[:10])}", None, facts)

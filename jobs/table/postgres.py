"""The store on a PostgreSQL server, which workers of many machines share. Needs psycopg and its pool.

All tables lie in the schema ``leap``. Addresses are libpq's: what a URL leaves out comes from ``PGHOST``,
``PGPASSWORD``, ``PGSERVICE``, ``PGPASSFILE``, ``PGSSLMODE`` and so on. A connection that is lost is made again, and the
statement is repeated: each says which state it starts from, so a second time does no harm.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from leap_core.addresses import masked, without_secrets_of
from leap_core.errors import LeapError, LeapUnavailableError

from .contract import NO_VALUES, Changes, Conflict, Row, Values
from .postgres_schema import MIGRATIONS, PREPARE

T = TypeVar("T")

NAMED = re.compile(r"(?<!:):([a-z_][a-z_0-9]*)")
MOST_CONNECTIONS = 4
CONNECT_SECONDS, LEAST_CONNECT_SECONDS = 10, 2
RETRY_SECONDS = 30.0
"""How long a statement is repeated while the server cannot be reached, such as during its restart."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0
FIRST_RETRY_SECONDS = 5.0
"""The same for the first statement of all: the address may be wrong."""
STUCK_SECONDS = 15
"""How long the server waits for the next statement of a transaction, whose rows are locked meanwhile: the machine may
have stopped."""
MIGRATION_LOCK = 0x6C656170
"""The number of the advisory lock under which the schema is changed: "leap"."""
KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""With these libpq notices a connection whose server vanished without a word."""


class PostgresDatabase:
    """The store at a URL. ``durable``: a transaction that has returned survives the loss of power."""

    is_shared = True
    sequence = "sequence"
    skip_locked = "FOR UPDATE SKIP LOCKED"
    hold_seconds = 0.2

    def __init__(self, url: str, *, durable: bool = True, patience: float = RETRY_SECONDS) -> None:
        psycopg, pools = _packages()
        self._psycopg, self._url, self._patience = psycopg, url, patience
        self.address = masked(url).partition("?")[0]
        self._lost = (psycopg.OperationalError, psycopg.InterfaceError, pools.PoolTimeout)
        self._local = threading.local()
        self._id: str | None = None

        def configure(connection: Any) -> None:
            connection.execute("SET search_path TO leap")
            connection.execute(f"SET idle_in_transaction_session_timeout TO '{STUCK_SECONDS}s'")
            if not durable:
                connection.execute("SET synchronous_commit TO off")

        try:
            self._pool = pools.ConnectionPool(
                url,
                min_size=0,
                max_size=MOST_CONNECTIONS,
                timeout=CONNECT_SECONDS,
                max_idle=300,
                configure=configure,
                kwargs={
                    "autocommit": True,
                    "row_factory": psycopg.rows.dict_row,
                    "connect_timeout": CONNECT_SECONDS,
                    "application_name": "leap",
                    **KEEPALIVES,
                },
                open=True,
            )
        except psycopg.ProgrammingError as error:
            raise self._unusable(error) from None

    @staticmethod
    def at(url: str, *, durable: bool = True) -> PostgresDatabase:
        """The store at this URL, made or brought up to date where necessary. Raises LeapUnavailableError."""
        database = PostgresDatabase(url, durable=durable, patience=FIRST_RETRY_SECONDS)
        try:
            database.migrate()
            database._patience = RETRY_SECONDS
        except BaseException:
            database.close()
            raise
        return database

    @property
    def id(self) -> str:
        if self._id is None:
            self._id = str(self.rows("SELECT id FROM table_id")[0]["id"])
        return self._id

    def migrate(self) -> None:
        """Make or update the tables. Processes that do so at once wait for each other."""
        if self._version() == len(MIGRATIONS):
            return

        def migrate() -> None:
            self.rows("SELECT pg_advisory_xact_lock(:lock)", {"lock": MIGRATION_LOCK})
            self._execute(PREPARE, {})
            version = self._version()
            if version > len(MIGRATIONS):
                raise LeapError(f"{self.address} was made by a newer leap", hint="use that version")
            for step in MIGRATIONS[version:]:
                self._execute(step, {})
            self.change("UPDATE schema_version SET version=:version", {"version": len(MIGRATIONS)})

        self.transaction(migrate)

    def _version(self) -> int:
        rows = self.rows("SELECT to_regclass('leap.schema_version') IS NOT NULL AS there")
        if not rows[0]["there"]:
            return 0
        return int(self.rows("SELECT version FROM schema_version")[0]["version"])

    def rows(self, sql: str, values: Values = NO_VALUES) -> Sequence[Row]:
        return self._repeated(lambda: self._execute(sql, values).fetchall())

    def change(self, sql: str, values: Values = NO_VALUES) -> int:
        return self._repeated(lambda: int(self._execute(sql, values).rowcount))

    def insert_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        values = list(rows)

        def copy() -> None:
            statement = f"COPY leap.{table} ({', '.join(columns)}) FROM STDIN"
            with self._connection() as connection, connection.cursor() as cursor, cursor.copy(statement) as target:
                for row in values:
                    target.write_row(row)

        self._repeated(copy)

    def transaction(self, action: Callable[[], T]) -> T:
        def run() -> T:
            with self._connection() as connection, connection.transaction():
                return action()

        return self._repeated(run)

    def announce(self, message: str, job: str = "") -> None:
        self._execute("SELECT pg_notify(:channel, :message)", {"channel": self._channel(job), "message": message})

    def listen(self, job: str = "", worker: str = "") -> Changes:
        channels = [self._channel(job)]
        if worker:
            channels.append(f"leap_{self.id}_w{hashlib.md5(worker.encode(), usedforsecurity=False).hexdigest()[:16]}")
        return Notifications(self._connect_alone, channels)

    def version(self) -> int | None:
        return None

    def is_of_newer_leap(self) -> bool:
        return self._version() > len(MIGRATIONS)

    def compact(self) -> None:
        """The server's autovacuum does it."""

    def server_facts(self) -> dict[str, object]:
        """The server's version, its clock's lead over this machine's in seconds, and the version of the tables."""
        before = time.time()
        row = self.rows("SELECT current_setting('server_version') AS version, leap_now() AS now")[0]
        lead = float(row["now"]) - (before + time.time()) / 2
        return {"version": row["version"], "clock_lead_seconds": round(lead, 3), "schema": self._version()}

    def close(self) -> None:
        self._pool.close(timeout=1.0)

    def _channel(self, job: str) -> str:
        return f"leap_{self.id}_{job}"

    def _connect_alone(self) -> Any:
        return self._psycopg.connect(
            self._url, autocommit=True, connect_timeout=CONNECT_SECONDS, application_name="leap listens", **KEEPALIVES
        )

    def _execute(self, sql: str, values: Values) -> Any:
        with self._connection() as connection:
            return connection.execute(_percent_style(sql), values) if values else connection.execute(sql)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """This thread's connection: the one of its running transaction, or one from the pool."""
        current = getattr(self._local, "connection", None)
        if current is not None:
            yield current
            return
        with self._pool.connection(timeout=min(CONNECT_SECONDS, self._patience)) as connection:
            self._local.connection = connection
            try:
                yield connection
            finally:
                self._local.connection = None

    def _repeated(self, action: Callable[[], T]) -> T:
        if getattr(self._local, "connection", None) is not None:  # the whole transaction is repeated
            return action()
        deadline = time.monotonic() + self._patience
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return action()
            except self._psycopg.errors.UndefinedTable as error:
                raise self._unusable(error) from None
            except self._lost as error:
                if time.monotonic() + pause > deadline or _is_refusal(error):
                    raise self._unusable(self._reason(error)) from None
                time.sleep(pause)
                pause = min(LONGEST_PAUSE_SECONDS, pause * 2)
            except self._psycopg.errors.DeadlockDetected:
                continue
            except self._psycopg.errors.UniqueViolation as error:
                raise Conflict(str(error)) from None
            except self._psycopg.Error as error:
                if isinstance(error, (self._psycopg.errors.InsufficientPrivilege, self._psycopg.DataError)):
                    raise self._unusable(error) from None
                raise

    def _reason(self, error: Exception) -> Exception:
        """Why there is no connection: a pool only says that it has waited."""
        reason = error
        if isinstance(error, self._lost[-1]):
            try:
                self._psycopg.connect(self._url, connect_timeout=LEAST_CONNECT_SECONDS).close()
            except self._psycopg.Error as found:
                reason = LeapError(str(found))
        return reason

    def _unusable(self, error: Exception) -> LeapUnavailableError:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        hint = "see jobs_url in config.toml, or LEAP_JOBS_URL; leap doctor looks at the server"
        reason = without_secrets_of(self._url, reason)
        return LeapUnavailableError(f"the jobs at {self.address} cannot be reached: {reason}", hint=hint)


class Notifications:
    """Changes as the server sends them over a connection of its own."""

    def __init__(self, connect: Callable[[], Any], channels: Sequence[str]) -> None:
        self._connect, self._channels = connect, channels
        self._connection: Any = None

    def wait(self, seconds: float) -> Sequence[str]:
        """As ``Changes.wait``. A lost connection reports nothing: callers look into the table now and then."""
        try:
            if self._connection is None:
                self._connection = self._connect()
                for channel in self._channels:
                    self._connection.execute(f'LISTEN "{channel}"')
                return []  # what happened before is not announced: look
            first = [notice.payload for notice in self._connection.notifies(timeout=seconds, stop_after=1)]
            more = self._connection.notifies(timeout=0) if first else ()
            return list(dict.fromkeys([*first, *(notice.payload for notice in more)]))
        except Exception:  # whatever psycopg says about a server that went away
            self.close()
            time.sleep(min(seconds, 0.2))
            return []

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


def without_secrets(url: str) -> str:
    """The URL with its parameters, and without passwords: what may be written down."""
    parameters = [each for each in url.partition("?")[2].split("&") if each]
    open_ones = [each for each in parameters if each.partition("=")[0] not in ("password", "sslpassword")]
    address = masked(url.partition("?")[0]).replace(":***@", "@")
    return address + ("?" + "&".join(open_ones) if open_ones else "")


def _percent_style(sql: str) -> str:
    """A statement with named values as psycopg writes them."""
    return NAMED.sub(r"%(\1)s", sql.replace("%", "%%"))


def _is_refusal(error: Exception) -> bool:
    """Whether the server answered, and waiting will not change its mind."""
    # libpq gives no SQLSTATE for a connection that failed, so its words decide.
    refusals = r"password|authentication|does not exist|no pg_hba|does not support SSL|permission"
    return bool(re.search(refusals, str(error)))


def _packages() -> tuple[Any, Any]:
    try:
        import psycopg
        import psycopg.errors
        import psycopg.rows
        import psycopg_pool
    except ImportError as error:
        raise LeapUnavailableError(
            f"jobs on PostgreSQL need psycopg: {error}", hint="pip install 'leap-edge[postgres]'"
        ) from None
    logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())  # else it writes to standard error
    return psycopg, psycopg_pool

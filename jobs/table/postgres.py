"""The store on a PostgreSQL server, which workers of many machines share. Needs psycopg.

All tables lie in the schema ``leap``, which each statement names: nothing is kept in a session (see ``postgres_link``).
Addresses are libpq's: what a URL leaves out comes from ``PGHOST``, ``PGPASSWORD``, ``PGSERVICE``, ``PGPASSFILE``,
``PGSSLMODE`` and so on. A connection that is lost is made again, and the statement is repeated: each says which state
it starts from, so a second time does no harm.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from functools import lru_cache
from typing import Any, TypeVar

from leap_core.errors import LeapError, LeapUnavailableError
from leap_core.system.addresses import masked, without_secrets_of

from .postgres_link import CONNECT_SECONDS, Link, Notifications, addresses
from .postgres_schema import PREPARE, SCRIPT, VERSION
from .store_protocol import NO_VALUES, Changes, Conflict, Row, Values

T = TypeVar("T")

NAMED = re.compile(r"(?<!:):([a-z_][a-z_0-9]*)")
TABLES = "jobs|events|workers|batch_lines|batch_results|table_id|schema_version"
UNQUALIFIED = re.compile(rf"\b((?:FROM|JOIN|INTO|UPDATE|USING|TABLE)\s+)(?=(?:{TABLES})\b)|(?<![.\w])(?=leap_now\(\))")
RETRY_SECONDS = 30.0
"""How long a statement is repeated while the server cannot be reached, such as during its restart."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0
FIRST_RETRY_SECONDS = 5.0
"""The same for the first statement of all: the address may be wrong."""
STUCK_SECONDS = 15
"""How long the server waits for the next statement of a transaction, whose rows are locked meanwhile: the machine may
have stopped."""
MAKING_LOCK = 0x6C656170
"""The number of the advisory lock under which the schema is changed: "leap"."""


class PostgresDatabase:
    """The store at a URL. ``durable``: a transaction that has returned survives the loss of power."""

    is_shared = True
    sequence = "sequence"
    skip_locked = "FOR UPDATE SKIP LOCKED"
    hold_seconds = 0.2

    def __init__(self, url: str, *, durable: bool = True, patience: float = RETRY_SECONDS) -> None:
        self._psycopg = psycopg = _package()
        self._url, self._patience = url, patience
        self.address = masked(url).partition("?")[0]
        errors = psycopg.errors
        self._passing = (psycopg.OperationalError, psycopg.InterfaceError)
        self._hopeless = (errors.UndefinedTable, errors.InsufficientPrivilege, psycopg.DataError)
        self._id: str | None = None
        self._begin = _begin(durable)
        try:
            address, direct = addresses(url)
            self._link = Link(address)
            self._ear = self._link if direct is None else Link(direct)
        except psycopg.ProgrammingError as error:
            raise self._unusable(error) from None
        self._link.connect_seconds = min(CONNECT_SECONDS, int(patience))

    @staticmethod
    def at(url: str, *, durable: bool = True) -> PostgresDatabase:
        """The store at this URL, made where necessary. Raises LeapUnavailableError."""
        database = PostgresDatabase(url, durable=durable, patience=FIRST_RETRY_SECONDS)
        try:
            database.make_tables()
            database._patience, database._link.connect_seconds = RETRY_SECONDS, CONNECT_SECONDS
        except BaseException:
            database.close()
            raise
        return database

    def undurable(self) -> PostgresDatabase:
        """The same over the same connection, where transactions that have returned may be lost with the power."""
        other = copy(self)
        other._begin = _begin(durable=False)
        return other

    @property
    def id(self) -> str:
        if self._id is None:
            self._id = str(self.rows("SELECT id FROM table_id")[0]["id"])
        return self._id

    def make_tables(self) -> None:
        """Make the tables where there are none. Processes that do so at once wait for each other. Raises LeapError for
        tables of another version, which stay as they are."""
        if self._version() == VERSION:
            return

        def make() -> None:
            self.rows("SELECT pg_advisory_xact_lock(:lock)", {"lock": MAKING_LOCK})
            self._execute(PREPARE, {})
            version = self._version()
            if version == VERSION:
                return
            if version:
                raise LeapError(
                    f"{self.address} is of version {version}, and this leap keeps version {VERSION}",
                    hint="use the leap that made it, or another database; it stays as it is",
                )
            self._execute(SCRIPT, {})
            self.change("UPDATE schema_version SET version=:version", {"version": VERSION})

        self.transaction(make)

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

        def insert() -> None:
            statement = f"COPY leap.{table} ({', '.join(columns)}) FROM STDIN"
            with self._link.borrowed() as connection, connection.cursor() as cursor, cursor.copy(statement) as target:
                for row in values:
                    target.write_row(row)

        self._repeated(insert)

    def transaction(self, action: Callable[[], T]) -> T:
        def run() -> T:
            with self._link.borrowed() as connection:
                connection.execute(self._begin)
                try:
                    result = action()
                    connection.execute("COMMIT")
                    return result
                except BaseException:
                    with suppress(self._psycopg.Error):
                        connection.execute("ROLLBACK")
                    raise

        return self._repeated(run)

    def announce(self, message: str, job: str = "") -> None:
        self.rows("SELECT pg_notify(:channel, :message)", {"channel": self._channel(job), "message": message})

    def listen(self, job: str = "", worker: str = "") -> Changes:
        channels = [self._channel(job)]
        if worker:
            channels.append(f"leap_{self.id}_w{hashlib.md5(worker.encode(), usedforsecurity=False).hexdigest()[:16]}")
        return Notifications(self._ear, channels)

    def version(self) -> int | None:
        return None

    def compact(self) -> None:
        """The server's autovacuum does it."""

    def server_facts(self) -> dict[str, object]:
        """The server's version, its clock's lead over this machine's in seconds, the version of the tables, and
        ``deaf``: why its announcements may not arrive."""
        before = time.time()
        row = self.rows("SELECT current_setting('server_version') AS version, leap_now() AS now")[0]
        lead = float(row["now"]) - (before + time.time()) / 2
        facts: dict[str, object] = {"version": row["version"], "clock_lead_seconds": round(lead, 3)}
        return {**facts, "schema": self._version(), "deaf": self._deafness()}

    def _deafness(self) -> str | None:
        try:
            with self._ear.borrowed():
                through_pooler = self._ear.is_pooled
        except self._psycopg.Error as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            return f"listening at listen_host fails: {without_secrets_of(self._url, reason)}"
        return "a pooler in front of it passes no announcements on in transaction mode" if through_pooler else None

    def close(self) -> None:
        self._link.close()
        self._ear.close()

    def _channel(self, job: str) -> str:
        return f"leap_{self.id}_{job}"

    def _execute(self, sql: str, values: Values) -> Any:
        with self._link.borrowed() as connection:
            return connection.execute(_percent_style(sql), values) if values else connection.execute(_qualified(sql))

    def _repeated(self, action: Callable[[], T]) -> T:
        if self._link.is_held:  # the whole transaction is repeated
            return action()
        deadline = time.monotonic() + self._patience
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return action()
            except self._psycopg.errors.UniqueViolation as error:
                raise Conflict(str(error)) from None
            except self._psycopg.Error as error:
                if isinstance(error, self._hopeless):
                    raise self._unusable(error) from None
                if not (isinstance(error, self._passing) or self._link.is_lost):
                    raise
                if time.monotonic() + pause > deadline or _is_refusal(error):
                    raise self._unusable(error) from None
                time.sleep(pause)
                pause = min(LONGEST_PAUSE_SECONDS, pause * 2)

    def _unusable(self, error: Exception) -> LeapUnavailableError:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        hint = "see jobs_url in config.toml, or LEAP_JOBS_URL; leap doctor looks at the server"
        reason = without_secrets_of(self._url, reason)
        return LeapUnavailableError(f"the jobs at {self.address} cannot be reached: {reason}", hint=hint)


def without_secrets(url: str) -> str:
    """The URL with its parameters, and without passwords: what may be written down."""
    parameters = [each for each in url.partition("?")[2].split("&") if each]
    open_ones = [each for each in parameters if each.partition("=")[0] not in ("password", "sslpassword")]
    address = masked(url.partition("?")[0]).replace(":***@", "@")
    return address + ("?" + "&".join(open_ones) if open_ones else "")


@lru_cache(maxsize=500)
def _qualified(sql: str) -> str:
    """A statement that names the schema, which no session knows."""
    return UNQUALIFIED.sub(r"\1leap.", sql)


@lru_cache(maxsize=500)
def _percent_style(sql: str) -> str:
    """A statement with named values as psycopg writes them."""
    return NAMED.sub(r"%(\1)s", _qualified(sql).replace("%", "%%"))


def _begin(durable: bool) -> str:
    stuck = f"BEGIN; SET LOCAL idle_in_transaction_session_timeout TO '{STUCK_SECONDS}s'"
    return stuck if durable else f"{stuck}; SET LOCAL synchronous_commit TO off"


def _is_refusal(error: Exception) -> bool:
    """Whether the server answered, and waiting will not change its mind."""
    # libpq gives no SQLSTATE for a connection that failed, so its words decide.
    refusals = r"password|authentication|does not exist|no pg_hba|does not support SSL|permission"
    return bool(re.search(refusals, str(error)))


def _package() -> Any:
    try:
        import psycopg
        import psycopg.errors
    except ImportError as error:
        raise LeapUnavailableError(
            f"jobs on PostgreSQL need psycopg: {error}", hint="pip install 'leap-edge[postgres]'"
        ) from None
    return psycopg

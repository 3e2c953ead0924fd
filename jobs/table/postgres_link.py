"""One connection to a PostgreSQL server that all threads of a process share, and what the server announces over it.

A server has a hundred places by default, so a process takes one: statements of several threads wait for each other,
and LISTEN is said on the same connection. Nothing is kept in its session, so a pooler that lends its connections a
transaction long, such as PgBouncer's, may be between; LISTEN needs the server itself then, over a second connection
whose address ``listen_host`` and ``listen_port`` in the URL complete.
"""

from __future__ import annotations

import selectors
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import unquote

from leap_core.errors import LeapUnavailableError

from .store_protocol import MISSED


class Inbox:
    """Messages from one thread for another; a ``Changes`` that somebody else fills."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heard: dict[str, None] = {}

    def hear(self, message: str) -> None:
        with self._changed:
            self._heard[message] = None
            self._changed.notify_all()

    def wait(self, seconds: float) -> Sequence[str]:
        with self._changed:
            self._changed.wait_for(lambda: self._heard, seconds)
            heard, self._heard = list(self._heard), {}
        return heard

    def close(self) -> None:
        pass


CONNECT_SECONDS = 10
KEEPALIVES: dict[str, Any] = {
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""With these libpq notices within half a minute that a server vanished without a word."""
STILL_SECONDS = 1.0
"""How long one look at a quiet connection lasts, which another thread may have replaced meanwhile."""
AGAIN_SECONDS = 1.0
CLOSE_SECONDS = 1.0
LISTEN_PARAMETERS = ("listen_host", "listen_port")


def addresses(url: str) -> tuple[str, str | None]:
    """The address for statements as libpq takes it, and where to listen; None where that is the same."""
    from psycopg.conninfo import make_conninfo

    address, _, query = url.partition("?")
    parameters = [each.partition("=") for each in query.split("&") if each]
    own = {name: unquote(value) for name, _, value in parameters if name in LISTEN_PARAMETERS}
    rest = "&".join("".join(each) for each in parameters if each[0] not in LISTEN_PARAMETERS)
    plain = f"{address}?{rest}" if rest else address
    if not own:
        return plain, None
    return plain, make_conninfo(plain, **{name.removeprefix("listen_"): value for name, value in own.items()})


class Link:
    """The connection to ``address``; it is made when it is needed, and again once it is lost."""

    def __init__(self, address: str) -> None:
        import psycopg
        from psycopg.rows import dict_row

        psycopg.conninfo.conninfo_to_dict(address)  # raises ProgrammingError
        self._connect_to: Callable[..., Any] = partial(
            psycopg.connect, address, autocommit=True, row_factory=dict_row, application_name="leap", **KEEPALIVES
        )
        self._guard = threading.RLock()
        self._connection: Any = None
        self._holder: int | None = None
        self._closed = False
        self.is_pooled = False
        """Whether a pooler answered, which gives its clients process numbers that are none."""
        self.connect_seconds = CONNECT_SECONDS
        self._subscribers: list[Notifications] = []
        self._receiver: threading.Thread | None = None

    @property
    def is_held(self) -> bool:
        """Whether this thread has the connection."""
        return self._holder == threading.get_ident()

    @property
    def is_lost(self) -> bool:
        return self._connection is None or self._connection.closed

    @contextmanager
    def borrowed(self) -> Iterator[Any]:
        """The connection, which no other thread uses meanwhile. Raises psycopg.OperationalError."""
        with self._guard:
            if self.is_held:
                yield self._connection
                return
            self._holder = threading.get_ident()
            try:
                if self._closed:
                    raise LeapUnavailableError("the connection to the jobs' server was closed")
                if self.is_lost:
                    self._connect()
                yield self._connection
                self._take_notices(self._connection)  # some came together with an answer
            finally:
                self._holder = None
                if self._closed:
                    self._disconnect()

    def subscribe(self, listener: Notifications) -> None:
        """Have what the server announces on the listener's channels. Raises psycopg.OperationalError."""
        with self._guard, self.borrowed() as connection:
            self._listen(connection, listener.channels)
            self._subscribers.append(listener)
            if self._receiver is None:
                self._receiver = threading.Thread(target=self._receive, name="leap-jobs-notices", daemon=True)
                self._receiver.start()

    def unsubscribe(self, listener: Notifications) -> None:
        with self._guard:
            if listener in self._subscribers:
                self._subscribers.remove(listener)
            others = {channel for each in self._subscribers for channel in each.channels}
            if self._closed or self.is_lost:
                return
            with suppress(Exception), self.borrowed() as connection:
                for channel in set(listener.channels) - others:
                    connection.execute(f'UNLISTEN "{channel}"')

    def close(self) -> None:
        self._closed = True
        if self._guard.acquire(timeout=CLOSE_SECONDS):  # else who has the connection closes it
            try:
                self._disconnect()
            finally:
                self._guard.release()

    def _connect(self) -> None:
        again = self._connection is not None
        self._disconnect()
        connection = self._connect_to(connect_timeout=self.connect_seconds)
        try:
            (row,) = connection.execute("SELECT pg_backend_pid() AS pid").fetchall()
            self.is_pooled = row["pid"] != connection.info.backend_pid
            if self.is_pooled:
                connection.prepare_threshold = None  # the next statement may go to another server process
            connection.add_notify_handler(self._hear)
            self._listen(connection, list(dict.fromkeys(name for each in self._subscribers for name in each.channels)))
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        if again:
            for each in self._subscribers:
                each.hear(MISSED)

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()

    def _listen(self, connection: Any, channels: Sequence[str]) -> None:
        if channels:
            connection.execute("; ".join(f'LISTEN "{channel}"' for channel in channels))

    def _receive(self) -> None:
        """Wait for what comes between two statements, as long as the connection is wanted."""
        while not self._closed:
            try:
                with self.borrowed() as connection:
                    descriptor = connection.fileno()
                with selectors.DefaultSelector() as selector:
                    selector.register(descriptor, selectors.EVENT_READ)
                    came = selector.select(STILL_SECONDS)
                if came:
                    with self.borrowed() as connection:
                        connection.pgconn.consume_input()
            except Exception:  # whatever psycopg says about a server that went away
                time.sleep(AGAIN_SECONDS)

    def _take_notices(self, connection: Any) -> None:
        if self._subscribers and not connection.closed:
            while (notice := connection.pgconn.notifies()) is not None:
                self._dispatch(notice.relname.decode(), notice.extra.decode())

    def _hear(self, notice: Any) -> None:
        self._dispatch(notice.channel, notice.payload)

    def _dispatch(self, channel: str, payload: str) -> None:
        for each in list(self._subscribers):
            if channel in each.channels:
                each.hear(payload)


class Notifications(Inbox):
    """Changes as the server sends them."""

    def __init__(self, link: Link, channels: Sequence[str]) -> None:
        super().__init__()
        self._link, self.channels = link, channels
        self._subscribed = False

    def wait(self, seconds: float) -> Sequence[str]:
        """As ``Changes.wait``. A server that is away reports nothing: callers look into the table now and then."""
        if not self._subscribed:
            try:
                self._link.subscribe(self)
                self._subscribed = True
            except Exception:  # whatever psycopg says about a server that is away
                time.sleep(min(seconds, AGAIN_SECONDS))
            return []  # what happened before is not announced: look
        return super().wait(seconds)

    def close(self) -> None:
        self._link.unsubscribe(self)

"""The table as a process that runs a model sees it, where its worker has the connection to the server.

Connections to a server are scarce, so such a process has none: its worker calls for it the methods that are marked
``remote`` here. Arguments and results go as JSON lines.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import wraps
from itertools import count
from typing import Any, TypeVar, cast

from leap_core.errors import LeapError, LeapUnavailableError

from ..table.batch_rows import BatchLine, BatchRows, StoredResult
from ..table.job import Claim, ClaimLostError, Ending, Job, State
from ..table.postgres_link import Inbox
from ..table.store_protocol import Changes, Database
from ..table.table import Table

Message = Mapping[str, Any]
KINDS = {kind.__name__: kind for kind in (BatchLine, StoredResult, Claim, Ending, Job)}
"""The dataclasses that are arguments and results."""


class WorkerCalls:
    """``send`` writes one message. ``on_notice`` gets what the worker says without having been asked."""

    def __init__(self, send: Callable[[Message], object]) -> None:
        self._send = send
        self._numbers = count()
        self._waiting: dict[int, threading.Event] = {}
        self._replies: dict[int, Message] = {}
        self.on_notice: Callable[[str], object] = lambda _message: None

    def call(self, name: str, arguments: Message) -> Message:
        """Have the worker do it; its reply. The process ends with the worker, so each call is answered."""
        number, done = next(self._numbers), threading.Event()
        self._waiting[number] = done
        self._send({"call": number, "name": name, "arguments": arguments})
        done.wait()
        return self._replies.pop(number)

    def take(self, message: Message) -> bool:
        """Whether the message was one for this object."""
        if "notice" in message:
            self.on_notice(message["notice"])
        elif "reply" in message:
            self._replies[message["reply"]] = message
            self._waiting.pop(message["reply"]).set()
        else:
            return False
        return True


Method = TypeVar("Method", bound=Callable[..., Any])


def remote(method: Method) -> Method:
    """The method as a call to the worker. It raises ClaimLostError, and LeapUnavailableError where the server is
    away."""

    @wraps(method)
    def call(self: RemoteTable | RemoteRows, *arguments: Any, **options: Any) -> Any:
        given = {"arguments": to_json(arguments), "options": {name: to_json(each) for name, each in options.items()}}
        reply = self.calls.call(f"{self.name}.{method.__name__}", given)
        if "lost" in reply:
            raise ClaimLostError
        if "error" in reply:
            raise LeapUnavailableError(reply["error"], hint=reply["hint"])
        if "unexpected" in reply:
            raise RuntimeError(reply["unexpected"])
        return from_json(reply["value"])

    return cast(Method, call)


class RemoteTable(Table):
    """The worker's table; ``name`` is that of one of the worker's objects, see ``TableServer``."""

    def __init__(self, calls: WorkerCalls, name: str, database: RemoteDatabase) -> None:
        self.calls, self.name, self.database = calls, name, cast(Database, database)

    get = remote(Table.get)
    finish = remote(Table.finish)
    requeue = remote(Table.requeue)
    write = remote(Table.write)
    wanted_to_stop = remote(Table.wanted_to_stop)


class RemoteRows(BatchRows):
    """The lines and results of batches in the worker's table."""

    name = "rows"

    def __init__(self, calls: WorkerCalls) -> None:
        self.calls = calls

    missing = remote(BatchRows.missing)
    raw = remote(BatchRows.raw)
    write = remote(BatchRows.write)


class RemoteDatabase:
    """What a process may know of the worker's database."""

    is_shared = True
    hold_seconds = 0.2

    def __init__(self, calls: WorkerCalls) -> None:
        self._inbox = Inbox()
        calls.on_notice = self._inbox.hear

    def listen(self) -> Changes:
        return self._inbox


def remote_tables(calls: WorkerCalls) -> tuple[Table, Table, BatchRows]:
    """The table for what must last, the one for the rest, and the rows of batches: those of the worker."""
    database = RemoteDatabase(calls)
    return RemoteTable(calls, "table", database), RemoteTable(calls, "output", database), RemoteRows(calls)


class TableServer:
    """The worker's side: does what its processes ask for. ``table`` for what must last, ``output`` for the rest."""

    def __init__(self, table: Table, output: Table) -> None:
        rows = BatchRows(output.database)
        self._objects = {"table": (table, RemoteTable), "output": (output, RemoteTable), "rows": (rows, RemoteRows)}

    def reply(self, message: Message) -> Message:
        """Do what the message asks for. Raises nothing: what went wrong is the reply."""
        number, given = message["call"], message["arguments"]
        name, _, method = message["name"].partition(".")
        try:
            target, remote_type = self._objects[name]
            if method.startswith("_") or method not in vars(remote_type):
                raise AttributeError(method)
            options = {option: from_json(each) for option, each in given["options"].items()}
            value = getattr(target, method)(*from_json(given["arguments"]), **options)
            return {"reply": number, "value": to_json(value)}
        except ClaimLostError:
            return {"reply": number, "lost": True}
        except LeapError as error:
            return {"reply": number, "error": error.message, "hint": error.hint}
        except Exception as error:
            return {"reply": number, "unexpected": f"{type(error).__name__}: {error}"}


def to_json(value: Any) -> Any:
    """A value as JSON that says what it is. Mappings hold JSON already."""
    if isinstance(value, Mapping):
        return {"mapping": dict(value)}
    if isinstance(value, bytes):
        return {"bytes": value.decode("utf-8", "surrogateescape")}
    if isinstance(value, State):
        return {"state": value.value}
    if isinstance(value, (set, frozenset)):
        return {"set": to_json(sorted(value))}
    if isinstance(value, (list, tuple)):
        return [to_json(each) for each in value]
    if is_dataclass(value):
        return {"kind": type(value).__name__, "fields": {name: to_json(each) for name, each in vars(value).items()}}
    return value


def from_json(value: Any) -> Any:
    """What ``to_json`` was given; a list for a tuple, but tuples in a set."""
    if isinstance(value, list):
        return [from_json(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    if "kind" in value:
        return KINDS[value["kind"]](**{name: from_json(each) for name, each in value["fields"].items()})
    if "mapping" in value:
        return value["mapping"]
    if "bytes" in value:
        return value["bytes"].encode("utf-8", "surrogateescape")
    return State(value["state"]) if "state" in value else set(map(tuple, from_json(value["set"])))

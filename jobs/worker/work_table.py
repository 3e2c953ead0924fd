"""What an attempt needs of the table; and that table as a process that runs a model sees it, on a server.

Connections to a server are scarce, so such a process has none: its worker carries what it says over its own. What is
carried is plain data, and only what is named here.

Imports next to nothing: the process's first thread reads with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import count
from typing import Any, Protocol

from leap_core.errors import LeapError, LeapUnavailableError
from leap_core.schemas.json_values import JsonObject

from ..table.batch_rows import BatchLine, BatchRows, StoredResult
from ..table.contract import Changes
from ..table.job import Claim, Ending, Fenced, Job, State
from ..table.postgres_link import Inbox
from ..table.table import Table

Message = Mapping[str, Any]


class Calls:
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


class WorkDatabase(Protocol):
    """As in ``contract.Database``."""

    is_shared: bool
    hold_seconds: float

    def listen(self) -> Changes: ...


class WorkTable(Protocol):
    """As in ``Table``."""

    @property
    def database(self) -> WorkDatabase: ...

    def get(self, id: str) -> Job | None: ...

    def write(
        self,
        claim: Claim,
        first: int,
        events: Sequence[Mapping[str, Any]],
        progress: Mapping[str, Any] | None = None,
        *,
        lease_seconds: float = 60.0,
    ) -> bool: ...

    def finish(self, claim: Claim, ending: Ending) -> None: ...

    def requeue(
        self,
        claim: Claim,
        *,
        delay: float = 0.0,
        error: Mapping[str, Any] | None = None,
        failed: bool = False,
        interrupted: bool = False,
        died: bool = False,
        progressed: bool = False,
    ) -> None: ...

    def wanted_to_stop(self, owner: str) -> set[tuple[str, int]]: ...


class WorkRows(Protocol):
    """As in ``BatchRows``."""

    def missing(self, job: str, first: int, last: int) -> list[BatchLine]: ...

    def raw(self, job: str, number: int) -> bytes: ...

    def write(self, claim: Claim, job: str, results: Sequence[StoredResult], progress: JsonObject) -> bool: ...


class CarriedDatabase:
    is_shared = True
    hold_seconds = 0.2

    def __init__(self, calls: Calls) -> None:
        self._inbox = Inbox()
        calls.on_notice = self._inbox.hear

    def listen(self) -> Changes:
        return self._inbox


class CarriedTable:
    """``WorkTable`` over calls to the worker."""

    def __init__(self, calls: Calls) -> None:
        self.database: WorkDatabase = CarriedDatabase(calls)
        self._calls = calls

    def get(self, id: str) -> Job | None:
        value = _asked(self._calls, "get", id=id)
        return None if value is None else Job(**{**value, "state": State(value["state"])})

    def write(
        self,
        claim: Claim,
        first: int,
        events: Sequence[Mapping[str, Any]],
        progress: Mapping[str, Any] | None = None,
        *,
        lease_seconds: float = 60.0,
    ) -> bool:
        more = {"events": list(events), "progress": progress, "lease_seconds": lease_seconds}
        return bool(_asked(self._calls, "write", claim=claim.values, first=first, **more))

    def finish(self, claim: Claim, ending: Ending) -> None:
        value = {**vars(ending), "state": ending.state.value}
        _asked(self._calls, "finish", claim=claim.values, ending=value)

    def requeue(self, claim: Claim, **how: Any) -> None:
        _asked(self._calls, "requeue", claim=claim.values, how=how)

    def wanted_to_stop(self, owner: str) -> set[tuple[str, int]]:
        return {(id, attempt) for id, attempt in _asked(self._calls, "wanted_to_stop", owner=owner)}


class CarriedRows:
    """``WorkRows`` over calls to the worker."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def missing(self, job: str, first: int, last: int) -> list[BatchLine]:
        lines = _asked(self._calls, "missing", job=job, first=first, last=last)
        return [
            BatchLine(number, key, digest, None if text is None else _bytes_of(text))
            for number, key, digest, text in lines
        ]

    def raw(self, job: str, number: int) -> bytes:
        return _bytes_of(_asked(self._calls, "raw", job=job, number=number))

    def write(self, claim: Claim, job: str, results: Sequence[StoredResult], progress: JsonObject) -> bool:
        values = [asdict(result) for result in results]
        return bool(_asked(self._calls, "store", claim=claim.values, job=job, results=values, progress=progress))


class Carrier:
    """The worker's side: does what its processes ask for. ``table`` for what must last, ``output`` for the rest."""

    def __init__(self, table: Table, output: Table) -> None:
        rows = BatchRows(output.database)
        self._known: dict[str, Callable[..., Any]] = {
            "get": lambda id: _as_json(table.get(id)),
            "finish": lambda claim, ending: table.finish(
                Claim(**claim), Ending(**{**ending, "state": State(ending["state"])})
            ),
            "requeue": lambda claim, how: table.requeue(Claim(**claim), **how),
            "write": lambda claim, **what: output.write(Claim(**claim), **what),
            "wanted_to_stop": lambda owner: sorted(output.wanted_to_stop(owner)),
            "missing": lambda **which: [_as_list(line) for line in rows.missing(**which)],
            "raw": lambda **which: _text_of(rows.raw(**which)),
            "store": lambda claim, results, **what: rows.write(
                Claim(**claim), results=[StoredResult(**each) for each in results], **what
            ),
        }

    def reply(self, message: Message) -> Message:
        """Do what the message asks for. Raises nothing: what went wrong is the reply."""
        number = message["call"]
        try:
            return {"reply": number, "value": self._known[message["name"]](**message["arguments"])}
        except Fenced:
            return {"reply": number, "fenced": True}
        except LeapError as error:
            return {"reply": number, "error": error.message, "hint": error.hint}
        except Exception as error:
            return {"reply": number, "unexpected": f"{type(error).__name__}: {error}"}


def _asked(calls: Calls, name: str, **arguments: Any) -> Any:
    """The value of a reply. Raises Fenced, and LeapUnavailableError where the server is away."""
    reply = calls.call(name, arguments)
    if "fenced" in reply:
        raise Fenced
    if "error" in reply:
        raise LeapUnavailableError(reply["error"], hint=reply["hint"])
    if "unexpected" in reply:
        raise RuntimeError(reply["unexpected"])
    return reply["value"]


def _as_json(job: Job | None) -> JsonObject | None:
    return None if job is None else {**vars(job), "state": job.state.value}


def _as_list(line: BatchLine) -> list[object]:
    return [line.number, line.key, line.digest, None if line.raw is None else _text_of(line.raw)]


def _text_of(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")

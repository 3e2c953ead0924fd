"""Messages about jobs that ended, to receivers that answer as they like."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest

from jobs.configuration import JobsConfiguration
from jobs.table.job import WEBHOOK, Ending, NewJob, State, WorkerIdentity
from jobs.table.table import Table
from jobs.worker import webhooks
from jobs.worker.attempt import Attempt
from jobs.worker.outcomes import MOST_INTERRUPTIONS, run_attempt

from .waiting import until

ME = WorkerIdentity("me", "run-1", "here")


@pytest.fixture
def table(leap_home) -> Iterator[Table]:
    with Table(JobsConfiguration.from_environment().table_place) as table:
        yield table


class Receiver:
    """Answers each connection with the next of these pieces, one after the other with a pause between."""

    def __init__(self, *answers: bytes, pause: float = 0.0) -> None:
        self._answers, self._pause = list(answers), pause
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/hook"
        self.requests = self.left = 0
        """Connections that came, and those of them that the sender closed before the answer was whole."""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.requests += 1
            threading.Thread(target=self._answer, args=(connection, self._answers.pop(0)), daemon=True).start()

    def _answer(self, connection: socket.socket, answer: bytes) -> None:
        with connection, suppress(OSError):
            connection.recv(65536)
            if not self._pause:
                connection.sendall(answer)
                return
            connection.settimeout(self._pause)
            for byte in answer:
                connection.sendall(bytes([byte]))
                with suppress(TimeoutError):
                    if not connection.recv(65536):
                        break
        self.left += 1

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the wait for a connection
        self._socket.close()


@pytest.fixture
def receiver() -> Iterator[Callable[..., Receiver]]:
    made: list[Receiver] = []

    def make(*answers: bytes, **how: float) -> Receiver:
        made.append(Receiver(*answers, **how))
        return made[-1]

    yield make
    for each in made:
        each.close()


def answer(code: int, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {code} Whatever", *headers, "Content-Length: 0", "", ""]).encode()


def message(table: Table, url: str, retries: int = 9) -> str:
    about = table.add([NewJob("generate", {"label": "x"})])[0]
    table.finish(_begin(table, "generate").claim, Ending(State.SUCCEEDED))
    return table.add([NewJob(WEBHOOK, {"about": about, "url": url, "with_data": False}, retries=retries)])[0]


def _begin(table: Table, kind: str = WEBHOOK) -> Attempt:
    job = table.claim_next(kind, ME)
    assert job is not None
    return Attempt(job, ME.owner, table)


def try_once(table: Table, during: Callable[[Attempt], object] = lambda _attempt: None) -> None:
    """Send the message that is due, as a worker does."""
    configuration, attempt = JobsConfiguration.from_environment(), _begin(table)
    threading.Thread(target=during, args=(attempt,), daemon=True).start()
    run_attempt(attempt, table, lambda attempt: webhooks.deliver(attempt, table, configuration))


def let_it_be_due(table: Table) -> None:
    table.database.change(f"UPDATE jobs SET run_after=0 WHERE kind='{WEBHOOK}'")


def test_a_webhook_has_ten_attempts_over_three_days(table, receiver):
    hook = receiver(*[answer(500)] * 10)
    id = message(table, hook.url)
    for pause in (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400):
        begun = time.time()
        try_once(table)
        job = table.get(id)
        assert job.state is State.QUEUED and begun + pause <= job.run_after <= time.time() + pause
        if pause > 5:
            assert table.claim_next(WEBHOOK, ME) is None, "it waits, also beyond a back-off"
        let_it_be_due(table)
    try_once(table)
    job = table.get(id)
    assert job.state is State.FAILED and "answered 500, not 2xx; that was try 10" in job.error["message"]
    assert hook.requests == 10


@pytest.mark.parametrize("code", [301, 408, 409, 425, 429, 500, 502, 503, 504])
def test_temporary_refusals_are_retried(code, table, receiver):
    id = message(table, receiver(answer(code, "Location: http://127.0.0.1:1/")).url)
    try_once(table)
    assert table.get(id).state is State.QUEUED


@pytest.mark.parametrize("code", [400, 401, 403, 404, 405, 410, 413, 422])
def test_permanent_refusals_are_not_retried(code, table, receiver):
    id = message(table, receiver(answer(code)).url)
    try_once(table)
    job = table.get(id)
    assert job.state is State.FAILED and f"answered {code}" in job.error["message"]


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("Retry-After: 120", 120, 120),
        ("Retry-After: 2", 5, 5),
        ("Retry-After: 999999999", 86_400, 86_400),
        ("Retry-After: soon", 5, 5),
        ("Retry-After: -5", 5, 5),
        ("Retry-After: IN AN HOUR", 3000, 3600),  # from before the message was stored
    ],
)
def test_retry_after_of_a_receiver_is_used(header, least, most, table, receiver):
    in_an_hour = format_datetime(datetime.now(timezone.utc) + timedelta(hours=1), usegmt=True)
    id = message(table, receiver(answer(503, header.replace("IN AN HOUR", in_an_hour))).url)
    begun = time.time()
    try_once(table)
    assert begun + least <= table.get(id).run_after <= time.time() + most


@pytest.mark.parametrize("said", [answer(204), b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"a" * 500])
def test_a_receiver_that_answers_slowly_has_a_time_limit(said, table, receiver, monkeypatch):
    monkeypatch.setattr(webhooks, "ANSWER_SECONDS", 0.6)
    hook = receiver(said, pause=0.25)
    id = message(table, hook.url)
    try_once(table)
    job = table.get(id)
    assert job.state is State.QUEUED and "within 1 seconds" in job.error["message"]
    until(lambda: hook.left)


def test_a_message_that_is_being_sent_is_cancelled_at_once(table, receiver):
    hook = receiver(b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 1000, pause=0.5)  # the end would come in minutes
    id = message(table, hook.url)

    def cancel(attempt: Attempt) -> None:
        until(lambda: hook.requests)
        table.request_cancel(id)
        attempt.end(cancelled=True)

    try_once(table, cancel)
    assert table.get(id).state is State.CANCELLED
    until(lambda: hook.left)


def test_a_kill_and_a_restart_lose_no_message(table, receiver):
    hook = receiver(answer(500), answer(204))
    id = message(table, hook.url)
    assert table.claim_next(WEBHOOK, ME) is not None
    assert table.recover(MOST_INTERRUPTIONS) == [id]  # its worker was killed while it sent the message
    try_once(table)
    assert 3 < table.get(id).run_after - time.time() <= 5 and table.claim_next(WEBHOOK, ME) is None
    let_it_be_due(table)
    try_once(table)
    assert table.get(id).state is State.SUCCEEDED and table.get(id).result == {"status": 204}


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://no-such-name.invalid/", "http://a b/"])
def test_an_address_that_cannot_be_reached_is_a_line_in_the_log(url, table):
    id = message(table, url, retries=0)
    try_once(table)
    job = table.get(id)
    assert job.state is State.FAILED and "\n" not in job.error["message"]
    assert "cannot be reached" in job.error["message"] or "not" in job.error["message"]

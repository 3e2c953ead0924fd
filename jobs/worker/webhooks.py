"""Messages about jobs that have ended, signed and repeated as Standard Webhooks asks.

What was not taken waits in the table until its next try is due, so neither a kill nor a restart of the machine loses
it. A receiver has a fixed time in all, however slowly it answers.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from contextlib import suppress
from datetime import datetime, timezone

import httpx

from leap_core.errors import LeapJobError
from leap_core.schemas.json_values import JsonObject
from leap_core.system.http import PASSING, Loop, client, ended, failure, host_of, retry_after

from ..configuration import JobsConfiguration
from ..submission.new_jobs import MESSAGE_PAUSES
from ..table.job import Ending, Job, State
from ..table.table import Table
from .attempt import Attempt

ANSWER_SECONDS = 15.0
"""What the receiver of a message may take, from the look-up of its name to its answer."""


def deliver(attempt: Attempt, table: Table, configuration: JobsConfiguration) -> Ending:
    """Send the message once. Raises LeapJobError where no other try can help."""
    job, message = attempt.job, attempt.asked
    about = table.get(message.about)
    if about is None:
        raise LeapJobError(f"the job {message.about} was removed before the message about it was sent")
    url, moment = message.url, str(int(time.time()))
    body = json.dumps(_message(about, with_data=message.with_data), ensure_ascii=False).encode()
    headers = {"content-type": "application/json", "webhook-id": job.id, "webhook-timestamp": moment}
    if configuration.webhook_secret is not None:
        signed = f"{job.id}.{moment}.".encode() + body
        digest = hmac.new(key_of(configuration.webhook_secret), signed, hashlib.sha256).digest()
        headers["webhook-signature"] = "v1," + base64.b64encode(digest).decode("ascii")
    place, pause = host_of(url), 0.0
    try:
        answer = _post(url, headers, body, attempt.stop)
    except TimeoutError:
        problem = f"{place} did not answer within {ANSWER_SECONDS:.0f} seconds"
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        problem = str(failure(error, place))
    else:
        if answer is None:
            return Ending(State.CANCELLED)
        if answer.is_success:
            return Ending(State.SUCCEEDED, {"status": answer.status_code})
        problem = f"{place} answered {answer.status_code}, not 2xx"
        pause = min(retry_after(answer.headers) or 0.0, MESSAGE_PAUSES[-1])
        if answer.is_client_error and answer.status_code not in PASSING:
            raise LeapJobError(problem)
    if job.failures >= min(job.retries, len(MESSAGE_PAUSES)):
        raise LeapJobError(f"{problem}; that was try {job.failures + 1}, the last one")
    attempt.note(f"try {job.failures + 1}: {problem}")
    error_value = {"type": "LeapUnavailableError", "message": problem}
    return Ending(State.QUEUED, error=error_value, delay=max(MESSAGE_PAUSES[job.failures], pause))


def _post(url: str, headers: dict[str, str], body: bytes, stop: threading.Event) -> httpx.Response | None:
    """The answer, of which only the head is read; None where the job is to end. No redirect is followed. Raises
    TimeoutError after ANSWER_SECONDS, and what httpx raises."""

    async def exchange() -> httpx.Response:
        async with (
            client(httpx.AsyncClient, timeout=ANSWER_SECONDS) as asking,
            asking.stream("POST", url, content=body, headers=headers) as answer,
        ):
            return answer

    with Loop() as loop:
        post = loop.submit(exchange())
        if ended(post, stop, ANSWER_SECONDS):
            return post.result()
    if stop.is_set():
        return None
    raise TimeoutError


def key_of(secret: str) -> bytes:
    """The bytes of a secret: base64 behind ``whsec_``, else the text itself."""
    if secret.startswith("whsec_"):
        with suppress(ValueError):
            return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    return secret.encode()


def _message(job: Job, *, with_data: bool) -> JsonObject:
    ended = datetime.fromtimestamp(job.finished or 0.0, timezone.utc)
    names = ("id", "kind", "state", "created", "started", "finished", "progress")
    data: JsonObject = {name: value for name, value in job.to_json().items() if name in names}
    data["error"] = (job.error or {}).get("message")
    if with_data:
        data |= {"label": job.label, "result": job.result}
    return {"type": f"job.{job.state.value}", "timestamp": ended.isoformat(), "data": data}

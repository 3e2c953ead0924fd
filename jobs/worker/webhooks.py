"""Messages about jobs that have ended, signed and repeated as Standard Webhooks asks.

What was not taken waits in the table until its next try is due, so neither a kill nor a restart of the machine loses
it. A receiver has a fixed time in all, however slowly it answers.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import time
from contextlib import suppress
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpx

from leap_core.errors import LeapJobError
from leap_core.schemas.json_values import JsonObject
from leap_core.system.certificates import named_certificates, trusted

from ..configuration import JobsConfiguration
from ..submission.new_jobs import MESSAGE_PAUSES, MessageRequest
from ..table.job import Ending, Job, State
from ..table.table import Table
from .attempt import Attempt

ANSWER_SECONDS = 15.0
"""What the receiver of a message may take, from the look-up of its name to its answer."""
LOOK_SECONDS = 0.1
"""Between two looks whether the job was cancelled."""
WORTH_ANOTHER_TRY = (408, 409, 425, 429)
"""Refusals of a receiver that may take the message later; so may one that redirects (3xx) or has failed (5xx)."""


def deliver(attempt: Attempt, table: Table, configuration: JobsConfiguration) -> Ending:
    """Send the message once. Raises LeapJobError where no other try can help."""
    job, message = attempt.job, MessageRequest.of(attempt.job.parameters)
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
    place, pause = urlsplit(url).netloc.rpartition("@")[2], 0.0
    try:
        answer = _post(attempt, url, headers, body)
    except asyncio.TimeoutError:  # since Python 3.11 it is an OSError, too
        problem = f"{place} did not answer within {ANSWER_SECONDS:.0f} seconds"
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        problem = f"{place} cannot be reached: {error or type(error).__name__}"
    else:
        if answer is None:
            return Ending(State.CANCELLED)
        if answer.is_success:
            return Ending(State.SUCCEEDED, {"status": answer.status_code})
        problem, pause = f"{place} answered {answer.status_code}, not 2xx", _asked_pause(answer)
        if answer.is_client_error and answer.status_code not in WORTH_ANOTHER_TRY:
            raise LeapJobError(problem)
    if job.failures >= min(job.retries, len(MESSAGE_PAUSES)):
        raise LeapJobError(f"{problem}; that was try {job.failures + 1}, the last one")
    attempt.note(f"try {job.failures + 1}: {problem}")
    error_value = {"type": "LeapUnavailableError", "message": problem}
    return Ending(State.QUEUED, error=error_value, delay=max(MESSAGE_PAUSES[job.failures], pause))


def _post(attempt: Attempt, url: str, headers: dict[str, str], body: bytes) -> httpx.Response | None:
    """The answer, of which only the head is read; None where the job is to end. No redirect is followed. Raises
    asyncio.TimeoutError after ANSWER_SECONDS, and what httpx raises."""

    async def exchange() -> httpx.Response:
        certificates = trusted(named_certificates(os.environ))
        async with (
            httpx.AsyncClient(timeout=ANSWER_SECONDS, verify=certificates) as client,
            client.stream("POST", url, content=body, headers=headers) as answer,
        ):
            return answer

    async def watched() -> httpx.Response | None:
        post, deadline = asyncio.ensure_future(exchange()), time.monotonic() + ANSWER_SECONDS
        try:
            while not attempt.stop.is_set() and not (await asyncio.wait([post], timeout=LOOK_SECONDS))[0]:
                if time.monotonic() > deadline:
                    raise asyncio.TimeoutError
            return post.result() if post.done() else None
        finally:
            post.cancel()
            await asyncio.wait([post])  # its connection is closed

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(watched())
    finally:
        loop.close()  # unlike asyncio.run it does not wait for a name that is still looked up


def _asked_pause(answer: httpx.Response) -> float:
    """The seconds that Retry-After asks for, a day at most; 0 without it."""
    text, seconds = answer.headers.get("retry-after", ""), 0.0
    if text.isascii() and text.isdecimal():
        seconds = float(text)
    else:
        with suppress(ValueError, TypeError, OverflowError):
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
    return min(max(seconds, 0.0), MESSAGE_PAUSES[-1])


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

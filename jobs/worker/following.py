"""Commands as jobs: what is done when another job has ended (a command, a note on the desktop, a message), and with a
file of a folder. So it survives the worker, and says in its log what went wrong."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from urllib.parse import urlsplit

from leap_core.errors import LeapJobError, LeapUnavailableError
from leap_core.schemas.json_values import JsonObject
from leap_core.system.processes import CREATION_FLAGS, OF_A_SESSION, child_environment, module_command

from ..configuration import JobsConfiguration
from ..table.job import Ending, Job, State
from ..table.table import Table
from .attempt import Attempt

COMMAND_SECONDS = 600.0
"""What a command may take."""
ANSWER_SECONDS = 10.0
"""What the receiver of a message may take."""
GRACE_SECONDS = 2.0


def follow(attempt: Attempt, table: Table, configuration: JobsConfiguration) -> Ending:
    """Do what the job asks for about the one that it comes after. Raises LeapJobError, or LeapUnavailableError where
    another try may help."""
    parameters = attempt.job.parameters
    if parameters["do"] == "leap":  # for a file of a folder, or by itself
        variables = {**os.environ, **parameters["variables"]}
        return _run(attempt, module_command("leap_cli", *parameters["arguments"]), child_environment(variables), None)
    about = table.get(parameters["about"])
    if about is None:
        raise LeapJobError(f"the job {parameters['about']} was removed before this could tell of it")
    if parameters["do"] == "webhook":
        return _post(attempt.job, about, configuration.webhook_secret)
    variables = {**os.environ, **parameters["variables"], **_variables(about)}
    is_note = parameters["do"] == "notify"
    command = _notification(about, variables.get("PATH")) if is_note else parameters["command"]
    return _run(attempt, command, variables)


def _run(
    attempt: Attempt,
    command: str | Sequence[str],
    variables: Mapping[str, str],
    seconds: float | None = COMMAND_SECONDS,
) -> Ending:
    """Run a command, for this time at most; its output goes into the job's log."""
    try:
        process = subprocess.Popen(
            command,
            shell=isinstance(command, str),
            cwd=attempt.job.parameters["cwd"],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=OF_A_SESSION,
            creationflags=CREATION_FLAGS,
        )
    except OSError as error:
        raise LeapJobError(f"the command cannot be started: {error}") from None
    begun = time.monotonic()
    timer = threading.Timer(seconds or 0.0, _end, [process])
    if seconds is not None:
        timer.start()
    attempt.when_stopped(lambda: _end(process))
    last = ""
    try:
        assert process.stdout is not None
        for line in process.stdout:
            last = line.rstrip() or last
            attempt.note(line.rstrip("\n"))
        code = process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        timer.cancel()
    if attempt.stop.is_set():
        return Ending(State.CANCELLED)
    if seconds is not None and time.monotonic() - begun >= seconds:
        raise LeapJobError(f"the command took longer than {seconds:.0f} seconds and was ended")
    if code:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        raise LeapJobError(f"the command {how}" + (f": {last}" if last else ""))
    return Ending(State.SUCCEEDED, {"code": code})


def _end(process: subprocess.Popen[str]) -> None:
    """End the command and what it has started, which may hold its output open after its own end."""
    if sys.platform == "win32":
        process.kill()
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)


def _variables(job: Job) -> dict[str, str]:
    """What a command learns about the job that has ended."""
    output = (job.parameters.get("batch") or {}).get("output") or (job.result or {}).get("path") or ""
    known = {"ID": job.id, "KIND": job.kind, "STATE": job.state.value, "OUTPUT": output}
    known["ERROR"] = str((job.error or {}).get("message", ""))
    return {f"LEAP_JOB_{name}": value.replace("\0", "") for name, value in known.items()}


BALLOON = (
    "Add-Type -AssemblyName System.Windows.Forms; $note = New-Object System.Windows.Forms.NotifyIcon; "
    "$note.Icon = [System.Drawing.SystemIcons]::Information; $note.Visible = $true; "
    "$note.ShowBalloonTip(10000, $args[0], $args[1], 'Info'); Start-Sleep 10"
)


def _notification(job: Job, path: str | None) -> list[str]:
    """The command that shows a note on this desktop, looked for in ``path``. Raises LeapJobError where there is none.
    Those of macOS and Windows could not be tried."""
    title, text = f"leap: {job.kind} {job.state.value}", job.label
    if sys.platform == "darwin":
        script = "on run {title, words}\ndisplay notification words with title title\nend run"
        return ["osascript", "-e", script, title, text]
    if sys.platform == "win32":
        return ["powershell", "-NoProfile", "-Command", f"& {{ {BALLOON} }}", title, text]
    if shutil.which("notify-send", path=path) is None:
        raise LeapJobError("there is no notify-send on this machine", hint="--then takes any other command")
    return ["notify-send", "--app-name=leap", "--", title, text]


def _post(job: Job, about: Job, secret: str | None) -> Ending:
    """Send a message, signed as the Standard Webhooks specification says where there is a secret. The message's id is
    the job's, so it is the same in each try. No redirect is followed."""
    import httpx

    url, moment = job.parameters["url"], time.time()
    body = json.dumps(_message(about, with_data=job.parameters["with_data"]), ensure_ascii=False).encode()
    headers = {"content-type": "application/json", "webhook-id": job.id, "webhook-timestamp": str(int(moment))}
    if secret is not None:
        signed = f"{job.id}.{int(moment)}.".encode() + body
        headers["webhook-signature"] = "v1," + base64.b64encode(
            hmac.new(key_of(secret), signed, hashlib.sha256).digest()
        ).decode("ascii")
    place = urlsplit(url).netloc.rpartition("@")[2]
    try:
        answer = httpx.post(url, content=body, headers=headers, timeout=ANSWER_SECONDS, follow_redirects=False)
    except httpx.HTTPError as error:
        raise LeapUnavailableError(f"{place} cannot be reached: {error or type(error).__name__}") from None
    if not answer.is_success:
        raise LeapUnavailableError(f"{place} answered {answer.status_code}, not 2xx")
    return Ending(State.SUCCEEDED, {"status": answer.status_code})


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

"""Commands as jobs: leap's own, as they were typed or for a file of a folder, and what is done when another job has
ended (a command, a note on the desktop). So they survive the worker, and say in their logs what went wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from leap_core.conversation.priority import VARIABLE_OF_JOBS, of_job
from leap_core.errors import LeapJobError, LeapUnavailableError
from leap_core.system.files import replace_text
from leap_core.system.processes import (
    CREATION_FLAGS,
    OF_A_SESSION,
    child_environment,
    kill_group,
    module_command,
    start_time,
)

from ..configuration import JobsConfiguration
from ..submission.new_jobs import SECRETS
from ..table.job import ClaimLostError, Ending, Job, State
from ..table.requests import CommandRequest
from ..table.table import Table
from .attempt import Attempt

COMMAND_SECONDS = 600.0
"""What the command of a user may take when a job has ended."""
GRACE_SECONDS = 2.0
PREFIX = "leap: "
"""How leap begins a line on standard error, which a log need not repeat."""
UNAVAILABLE = 10
"""The exit code of leap that says that another try may help."""


def follow(attempt: Attempt, table: Table, configuration: JobsConfiguration) -> Ending:
    """Do what the job asks for, by itself or about the one that it comes after. Raises LeapJobError, or
    LeapUnavailableError where another try may help."""
    asked: CommandRequest = attempt.asked
    if asked.do == "leap":
        return _run_leap(attempt, asked, configuration)
    about = table.get(str(asked.about))
    if about is None:
        raise LeapJobError(f"the job {asked.about} was removed before this began")
    variables = {**os.environ, **asked.variables, **_variables(about)}
    command = _notification(about, variables.get("PATH")) if asked.do == "notify" else asked.command
    run = _Run(attempt, asked, configuration, command or "", variables)
    timer = threading.Timer(COMMAND_SECONDS, run.end)
    timer.start()
    try:
        code = run.wait()
    finally:
        timer.cancel()
    if attempt.stop.is_set():
        return Ending(State.CANCELLED)
    if run.is_ended:
        raise LeapJobError(f"the command took longer than {COMMAND_SECONDS:.0f} seconds and was ended")
    if code:
        raise LeapJobError(f"the command {_how(code)}" + (f": {run.last}" if run.last else ""))
    return Ending(State.SUCCEEDED, {"code": code})


def _run_leap(attempt: Attempt, asked: CommandRequest, configuration: JobsConfiguration) -> Ending:
    """Run leap. What it prints is the job's output, and what it says on standard error a line of its log."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("LEAP_") or name.endswith(SECRETS)}
    priority = {VARIABLE_OF_JOBS: str(of_job(attempt.job.priority))}
    variables = child_environment({**own, **asked.variables, **priority})
    run = _Run(attempt, asked, configuration, module_command("leap_cli", *asked.arguments), variables)
    code = run.wait()
    if attempt.stop.is_set():
        return Ending(State.CANCELLED)
    problem = run.last.removeprefix("error: ") or f"the command {_how(code)}"
    if code == UNAVAILABLE:
        raise LeapUnavailableError(problem)
    if code:
        return Ending(State.FAILED, error={"type": "LeapJobError", "message": problem, "code": code})
    return Ending(State.SUCCEEDED, {"code": code})


def _how(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"


class _Run:
    """A command as a process of its own group, which ends with the attempt. A text is one for the shell; of a list,
    which is leap's, standard output and standard error are kept apart."""

    def __init__(
        self,
        attempt: Attempt,
        asked: CommandRequest,
        configuration: JobsConfiguration,
        command: str | Sequence[str],
        variables: Mapping[str, str],
    ) -> None:
        self._attempt = attempt
        self.is_ended = False
        self.last = ""
        """The last line of its log that is not blank."""
        self._apart = asked.do == "leap"
        with ExitStack() as opened:
            kept = asked.kept
            try:
                self._process = subprocess.Popen(
                    command,
                    shell=isinstance(command, str),
                    cwd=asked.cwd,
                    env=variables,
                    stdin=subprocess.DEVNULL if kept is None else opened.enter_context(open(kept, "rb")),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE if self._apart else subprocess.STDOUT,
                    start_new_session=OF_A_SESSION,
                    creationflags=CREATION_FLAGS,
                )
            except OSError as error:
                raise LeapJobError(f"the command cannot be started: {error}") from None
        pid = self._process.pid
        self._trace = configuration.directories.run / f"{TRACE}{attempt.job.id}.json"
        replace_text(self._trace, json.dumps({"pid": pid, "started": start_time(pid)}))
        attempt.when_stopped(lambda: threading.Thread(target=self.end, daemon=True).start())

    def wait(self) -> int:
        """Put out what it prints, until it ends; its exit code."""
        process, attempt = self._process, self._attempt
        assert process.stdout is not None
        notes = threading.Thread(target=self._take_notes, daemon=True)
        try:
            if self._apart:
                notes.start()
                for line in process.stdout:
                    attempt.emit({"type": "chunk", "text": line.decode("utf-8", "replace")})
            else:
                for line in process.stdout:
                    self._note(line)
            return process.wait()
        except BaseException:
            self.end()
            raise
        finally:
            self._trace.unlink(missing_ok=True)
            process.stdout.close()
            if process.stderr is not None:
                notes.join()
                process.stderr.close()

    def end(self) -> None:
        """End the command and what it has started, which may hold its output open after its own end."""
        process, self.is_ended = self._process, True
        if sys.platform == "win32":
            process.kill()
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
            os.killpg(process.pid, signal.SIGKILL)

    def _take_notes(self) -> None:
        assert self._process.stderr is not None
        with suppress(ClaimLostError):
            for line in self._process.stderr:
                self._note(line)

    def _note(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        text = text.removeprefix(PREFIX) if self._apart else text
        self.last = text.strip() or self.last
        self._attempt.note(text)


TRACE = "command-"


def end_left_commands(configuration: JobsConfiguration) -> None:
    """End what a worker that was killed has left running: it is begun again."""
    for trace in configuration.directories.run.glob(f"{TRACE}*.json"):
        with suppress(OSError, ValueError, LookupError, TypeError):
            left = json.loads(trace.read_text("utf-8"))
            if left["started"] is not None and start_time(left["pid"]) == left["started"]:
                kill_group(left["pid"])
        with suppress(OSError):
            Path(trace).unlink(missing_ok=True)


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

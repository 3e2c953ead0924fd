"""How jobs and their output are shown, and the exit code that a job means."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..exit_codes import ExitCode
from ..framework.environment import Environment
from ..framework.error_boundary import EXIT_CODES
from ..framework.options import in_bytes, in_words
from ..framework.output import Format, Output, shortened
from ..framework.wrapping import fitted_cell

if TYPE_CHECKING:
    from jobs.client import JobsClient
    from jobs.table.job import Job, JobEvent, State

SEPARATOR = "---"
"""The line between two answers in text."""
OF_ANSWERS = ("chunk", "function_calls", "complete")
"""Events with the index of an answer; records of a function may have an index of another kind."""
STATES = ("queued", "running", "succeeded", "failed", "cancelled")
FINAL = STATES[2:]


def exit_code_of_job(job: Job) -> ExitCode:
    """What the job's command would have returned in the foreground."""
    if job.state.value == "succeeded":
        return ExitCode.DONE
    if job.state.value == "cancelled":
        return ExitCode.INTERRUPTED
    from leap_core import errors

    if (job.error or {}).get("code") in [*ExitCode]:
        return ExitCode((job.error or {})["code"])
    kind = getattr(errors, (job.error or {}).get("type", ""), None)
    if not isinstance(kind, type):
        return ExitCode.JOB
    return next((code for error_class, code in EXIT_CODES if issubclass(kind, error_class)), ExitCode.JOB)


def table_row(job: Job) -> dict[str, Any]:
    """What a person wants to know of a job."""
    error = job.error or {}
    fields: dict[str, Any] = {
        "id": job.id,
        "kind": job.kind,
        "what": shortened(job.label, LABEL_CHARACTERS),
        "state": shown_state(job),
        "done": done(job),
        "left": time_left(job),
        "attempt": job.attempt if job.attempt > 1 else None,
        "submitted": _clock(job.created),
        "started": _clock(job.started),
        "ended": _clock(job.finished),
        "error": error.get("message"),
        "hint": error.get("hint"),
    }
    return fields | {name: (job.result or {}).get(name) for name in ("path", "output")}


LABEL_CHARACTERS = 48
"""Of what a job is about, in a table."""


def shown_state(job: Job) -> str:
    """The state of a job in a word for people."""
    if job.state is not job.shown_state:
        return "watching"
    return "stopping" if job.cancel_requested and job.state.value == "running" else job.state.value


def done(job: Job) -> str | None:
    progress = job.progress or {}
    count, total, unit = progress.get("done"), progress.get("total"), progress.get("unit")
    if count is None:
        return None
    if unit == "bytes":
        return f"{job.percent or 0:.0f} % of {in_bytes(total or count)}"
    return f"{count} of {total} {unit}" if total is not None else f"{count} {unit}"


def time_left(job: Job) -> str | None:
    """Until the end of a batch that runs, as far as that is known."""
    seconds = (job.progress or {}).get("eta")
    return None if seconds is None or job.state.value != "running" else in_words(float(seconds))


def doing(job: Job) -> str:
    """One line on how a job is."""
    left = time_left(job)
    return " ".join(filter(None, [job.id, job.kind, job.state.value, done(job), left and f"({left} left)"]))


def _clock(moment: float | None) -> str | None:
    return None if moment is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


class EventPrinter:
    """Prints a job's output: text as it is, what is meant for people on stderr, or every event as JSON."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._attempt: int | None = None
        self._index: int | None = None
        self._open = False
        self._events: list[object] = []

    def show(self, event: JobEvent) -> None:
        value = dict(event.value)
        if self._output.format is Format.JSON:
            self._events.append({"attempt": event.attempt, **value})
            return
        if self._output.format is Format.JSONL:
            self._output.event({"attempt": event.attempt, **value})
            return
        if self._attempt not in (None, event.attempt):
            self._end_line()
            self._output.note(f"attempt {event.attempt} begins anew")
            self._index = None
        kind = value.get("type") or value.get("event")
        index = value.get("index", self._index) if kind in OF_ANSWERS else self._index
        if self._index not in (None, index):
            self._end_line()
            self._output.text(f"{SEPARATOR}\n")
        self._attempt, self._index = event.attempt, index
        if kind == "chunk":
            self._output.text(value["text"])
            self._open = not value["text"].endswith("\n")
        elif kind == "function_calls":
            self._end_line()
            for call in value["function_calls"]:
                self._output.event(call["function"])
        elif kind == "notice":
            self._end_line()
            self._output.note(value["message"])
        elif kind == "complete":
            self._end_line()
            for warning in (*value.get("left_out", ()), *value.get("warnings", ())):
                self._output.warning(warning)
            if "finish_reason" in value:
                self._note_cut(value)
        elif kind == "filefinished":
            self._output.note(f"{value['file']}: {value['source']}, {value['path']}")

    def _note_cut(self, complete: dict[str, Any]) -> None:
        from leap_core.conversation.messages import ChatMessage
        from leap_core.conversation.responses import GenerationFinishReason

        from ..framework.cut_answers import note_cut

        reason = GenerationFinishReason(complete["finish_reason"])
        note_cut(reason, ChatMessage.from_json(complete["message"]), self._output)

    def end(self) -> None:
        if self._output.format is Format.JSON:
            self._output.document(self._events)
        self._end_line()

    def _end_line(self) -> None:
        if self._open:
            self._output.text("\n")
        self._open = False


def schedule_row(job: Job, client: JobsClient) -> dict[str, Any]:
    """A job that comes again and again: its next run, and how the last ones ended."""
    from leap_core import errors

    told = job.progress or {}
    last = "-"
    with suppress(errors.LeapJobError):
        last = client.get(told["last"]).state.value if told.get("last") else "-"
    if last == "failed" and told.get("failures"):
        last += f", {told['failures'] + 1} in a row"
    waits = (client.waiting_reason(job) or "").removeprefix("its time, ")
    return {
        "id": job.id,
        "every": job.parameters["every"],
        "next": "paused" if waits.startswith("leap") else waits,
        "last": last,
        "last_job": told.get("last"),
        "runs": told.get("runs", 0),
        "skipped": told.get("skipped", 0),
        "what": job.label,
    }


def details(job: Job, client: JobsClient) -> dict[str, Any]:
    """What a job does and when, as far as it is known: of a schedule and of a folder, what each run does."""
    from leap_core import errors
    from leap_core.system.addresses import masked

    inner = job.parameters.get("job", {}).get("parameters", job.parameters)
    batch, told = inner.get("batch", {}), job.progress or {}
    words = inner.get("arguments") or inner.get("command")
    known: dict[str, Any] = {
        "command": ["leap", *words] if isinstance(words, list) else words,
        "model": inner.get("model") or batch.get("model"),
        "options": inner.get("options") or batch.get("options"),
        "cwd": inner.get("cwd"),
        "directory": inner.get("directory"),
        "files": inner.get("patterns"),
        "url": masked(inner["url"]) if "url" in inner else None,
        "every": job.parameters.get("every"),
        "next_run": job.run_after if job.kind == "schedule" and client.is_due(job) else None,
    }
    if job.kind == "schedule" and told.get("last"):
        with suppress(errors.LeapJobError):
            last = client.get(told["last"])
            known["last_run"] = {"id": last.id, "state": last.state.value, "finished": last.finished}
    return {name: value for name, value in known.items() if value}


def _in_text(known: dict[str, Any]) -> dict[str, Any]:
    """The same for people."""
    shown = dict(known)
    if isinstance(known.get("command"), list):
        shown["command"] = shlex.join(known["command"])
    if known.get("options"):
        shown["options"] = ", ".join(f"{name}={value}" for name, value in known["options"].items())
    if "next_run" in known:
        shown["next_run"] = _clock(known["next_run"])
    if "last_run" in known:
        shown["last_run"] = " ".join(filter(None, [known["last_run"]["id"], known["last_run"]["state"]]))
    return shown


def show_jobs(output: Output, jobs: Sequence[Job], client: JobsClient) -> None:
    """Each job in full; with json one document for one job, a list for several."""
    more = {job.id: {"waits_for": client.waiting_reason(job), **details(job, client)} for job in jobs}
    if output.format is Format.JSON and len(jobs) != 1:
        output.document([job.to_json() | more[job.id] for job in jobs])
        return
    for n, job in enumerate(jobs):
        if output.format is Format.TEXT:
            output.text("\n" if n else "")
            record = table_row(job) | _in_text(more[job.id])
            output.record({name: value for name, value in record.items() if value is not None}, name="id")
        else:
            output.record(job.to_json() | more[job.id], name="id")


def show_rows(output: Output, jobs: Iterable[Job]) -> None:
    """A line a job."""
    text = output.format is Format.TEXT
    output.records(
        [table_row(job) if text else job.to_json() for job in jobs], ["id", "kind", "state", "what"], name="id"
    )


def state_named(name: str) -> State:
    """The state of this name."""
    from jobs.table.job import State

    return State(name)


OTHER_SCREEN, FIRST_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class LiveScreen:
    """The terminal's second screen while the block lasts; the contents of the first are restored afterwards. Keys are
    not echoed, Ctrl-C raises KeyboardInterrupt as ever."""

    def __init__(self, env: Environment) -> None:
        self._out = env.stdout
        self._modes: list[Any] | None = None

    def __enter__(self) -> LiveScreen:
        if sys.platform != "win32":
            import termios
            import tty

            self._modes = termios.tcgetattr(0)
            tty.setcbreak(0)
        self._write(OTHER_SCREEN)
        return self

    def __exit__(self, *_: object) -> None:
        self._write(FIRST_SCREEN)
        if sys.platform != "win32" and self._modes is not None:
            import termios

            termios.tcsetattr(0, termios.TCSADRAIN, self._modes)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines now: the window may have changed."""
        return shutil.get_terminal_size()

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines, each cut to the width; those beyond the height are left out."""
        width, height = self.size
        rows = [fitted_cell(line, width - 1).rstrip() + CLEAR_LINE for line in lines[:height]]
        self._write(HOME + "\r\n".join(rows) + CLEAR_BELOW)

    def key(self, seconds: float) -> str | None:
        """The key that was pressed within so many seconds, or None."""
        if sys.platform == "win32":
            time.sleep(seconds)
            return None
        if not select.select([0], [], [], seconds)[0]:
            return None
        pressed = os.read(0, 64).decode("utf-8", "replace")
        return pressed[:1] or "q"  # the terminal is gone

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

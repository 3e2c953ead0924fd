"""What a job has put out, as lines of text: of a batch on a server, of one in a file, of a generation."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from leap_core.conversation.answer_forms import SEPARATOR
from leap_core.errors import LeapJobError
from leap_core.schemas.json_values import JsonObject
from leap_core.system.files import cannot_write

from ..table.batch_rows import BatchRows
from ..table.claims import WorkerRow
from ..table.job import BATCH, COMMAND, DOWNLOAD, FOLDER, FUNCTION, GENERATE, SCHEDULE, TRANSCRIBE, WEBHOOK, Job, State
from ..table.requests import BatchRequest, request_of
from ..table.row_reading import TableReader
from ..table.store_protocol import Database


def lines_of(job: Job, database: Database) -> Iterator[str]:
    """The lines of the job's output, without line ends, in the order of its input, as far as there is no gap; all that
    there are for a batch whose results need no order. Raises LeapJobError for a job that has none."""
    if job.kind == DOWNLOAD:
        raise LeapJobError(f"the job {job.id} is a download", hint=f"leap jobs status {job.id} says where the model is")
    if job.kind == FUNCTION:
        return iter([json.dumps(made, ensure_ascii=False) for made in (job.result or {}).get("records", [])])
    if job.kind in NO_RESULTS or job.parameters.get("do", "leap") != "leap":
        what, hint = NO_RESULTS.get(job.kind, ("runs when another job has ended", "leap jobs logs {} shows its output"))
        raise LeapJobError(f"the job {job.id} {what}, and has no results of its own", hint=hint.format(job.id))
    if job.kind == COMMAND:
        return _printed(job, TableReader(database))
    if job.kind in (GENERATE, TRANSCRIBE):
        text = text_of_result(job)
        return iter(text.removesuffix("\n").split("\n") if text else ())
    if job.kind == BATCH and database.is_shared:
        return _stored_lines(job, database)
    output = Path(request_of(job).settings.output.path)
    if output.suffix.lower() == ".npy":
        raise LeapJobError(f"the results of the job {job.id} are an array, no lines", hint=f"numpy.load reads {output}")
    return _lines_in_file(output)


NO_RESULTS = {
    WEBHOOK: ("sends a message about another job", "leap jobs logs {} shows its tries"),
    SCHEDULE: ("is a schedule", "leap jobs list --schedule {} lists its runs"),
    FOLDER: ("watches a folder", "leap jobs logs {} lists the jobs of its files"),
}


def _printed(job: Job, table: TableReader) -> Iterator[str]:
    """What the newest attempt of a command has printed."""
    attempt = table.last_attempt_with_output(job.id)
    events = () if attempt is None else table.events(job.id, attempt)
    text = "".join(each.value["text"] for each in events if each.value.get("type") == "chunk")
    return iter(text.removesuffix("\n").split("\n") if text else ())


def write_lines(lines: Iterable[str], path: Path, job: Job) -> int:
    """Write the lines to a file, or continue where an earlier call ended; how many were written. Raises LeapError when
    the file holds something else."""
    written = 0
    try:
        with open(path, "a+b") as file:
            file.seek(0)
            whole = 0
            source = iter(lines)
            for there in file:
                if not there.endswith(b"\n"):
                    break  # the last write was torn
                if next(source, "").encode() + b"\n" != there:
                    hint = "give another file, or remove this one"
                    raise LeapJobError(f"{path} is not the output of the job {job.id}", hint=hint)
                whole += len(there)
            file.truncate(whole)
            for line in source:
                file.write(line.encode() + b"\n")
                written += 1
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise cannot_write(path, error) from None
    return written


def text_of_result(job: Job) -> str | None:
    """The text of an answer that has ended; of several, with a line between them."""
    result = job.result or {}
    if "answers" in result:
        texts = [_text_of(each) or "" for each in result["answers"]]
        return f"{SEPARATOR}\n".join(text if text.endswith("\n") or not text else f"{text}\n" for text in texts)
    return _text_of(result)


def _text_of(answer: JsonObject) -> str | None:
    content = (answer.get("message") or {}).get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content if isinstance(content, str) else None


def _lines_in_file(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.removesuffix("\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise LeapJobError(f"cannot read {path}: {error.strerror}") from None


def _stored_lines(job: Job, database: Database) -> Iterator[str]:
    from leap_core.batch.input.line_parts import with_names
    from leap_core.batch.input.lines import parse_line
    from leap_core.batch.input.rows import DELIMITERS
    from leap_core.batch.journal.line_result import TEXT, LineResult, Row, table_header

    asked: BatchRequest = request_of(job)
    settings, columns = asked.settings, asked.columns
    reader = settings.reader()
    rows = BatchRows(database)
    form = settings.output_format
    if form in DELIMITERS:
        yield table_header(form, columns)
    if settings.output.header is not None:
        yield settings.output.header
    gap = rows.first_missing(job.id) if settings.output.ordered else None
    for line, value in rows.results(job.id, with_lines=reader.keep_fields):
        if gap is not None and line.number > gap:
            return
        row = Row()
        if reader.keep_fields:
            row = Row(reader.own_fields(with_names(parse_line(line.raw or b""))), columns)
        result = LineResult.from_json(value)
        if result.succeeded or form != TEXT:
            yield result.render(form, row)


NO_WORKER = "no worker is alive: the job waits until one is started with leap jobs worker"


def waiting_reason(job: Job, workers: Sequence[WorkerRow], is_here: Callable[[str], bool]) -> str | None:
    """What a queued job, or a batch that runs, waits for; None where a worker will do it. ``is_here`` says whether
    this machine has the model of a SHA-256."""
    if job.state is not State.QUEUED and not (job.kind == BATCH and job.state is State.RUNNING):
        return None
    alive = [worker for worker in workers if worker.is_alive and not worker.draining]
    if not alive:
        return NO_WORKER
    if job.machine is not None and not any(worker.machine == job.machine for worker in alive):
        return f"no worker is alive on {job.machine}, which alone can do the job"
    if job.model is None or any(job.model in worker.models for worker in alive):
        return None
    return _without_model(job, job.model, workers, alive, is_here)


def _without_model(
    job: Job, model: str, workers: Sequence[WorkerRow], alive: Sequence[WorkerRow], is_here: Callable[[str], bool]
) -> str:
    name = job.parameters.get("model") or model[:12]
    fetching = sorted({worker.machine for worker in alive if worker.fetches})
    if job.origin is not None and fetching:
        return f"no worker that is alive has the model {name} yet: {', '.join(fetching)} will fetch it"
    places = [
        f"{worker.machine} has it, where the worker {worker.name} {'drains' if worker.is_alive else 'is not alive'}"
        for worker in workers
        if model in worker.models
    ]
    if not places and is_here(model):
        places = ["this machine has it: leap jobs worker starts a worker here"]
    return f"no worker that is alive has the model {name}; {'; '.join(places) or 'the job waits for one'}"

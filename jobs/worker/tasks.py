"""What the kinds of jobs do: a few lines each around leap_core.

A task works on one attempt and returns how it ended, or raises. It stops soon after ``attempt.stop`` is set, and keeps
what there is by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from leap_core.batch.answering import answering
from leap_core.batch.input.line_index import LineIndex
from leap_core.batch.journal.line_result import Result
from leap_core.batch.run import result_of
from leap_core.batch.settings import BatchSettings
from leap_core.conversation.calls import LeapFunction
from leap_core.conversation.generator import require_voice
from leap_core.conversation.messages import ChatMessage, Speech, messages_from_json
from leap_core.conversation.options import GenerationOptions, ModelLoadingOptions
from leap_core.conversation.responses import AudioSample, Complete, GenerationFinishReason, require_complete
from leap_core.conversation.runner import ModelRunner
from leap_core.errors import LeapError, LeapJobError, LeapUnsupportedMediaError
from leap_core.inference.speech.spoken_file import SpokenFile
from leap_core.models.conversion.child import Stopped
from leap_core.models.conversion.quantizing import Making, Quantized, QuantizeWork
from leap_core.models.http import DownloadStopped
from leap_core.schemas.json_values import JsonObject
from leap_core.system.addresses import shown
from leap_core.tasks.transcription import Transcribed

from ..configuration import JobsConfiguration
from ..submission.new_jobs import variables_of
from ..submission.shared_jobs import confined
from ..table.batch_rows import BatchLine, BatchRows, StoredResult
from ..table.job import Ending, Fenced, State
from .attempt import Attempt

if TYPE_CHECKING:
    from leap_core.batch.answering import Runner
    from leap_core.batch.checking import CheckedBatch


def quantize(attempt: Attempt) -> Ending:
    """Make all types. An attempt begins anew what another one left, but for types that are whole."""

    def on_step(what: str, unit: str, done: int, total: int) -> None:
        attempt.progress({"done": done, "total": total, "unit": f"{unit} ({what})"})

    def on_made(made: Quantized) -> None:
        attempt.note(f"{made.name}: {made.before} bytes -> {made.after} bytes")
        if made.problem:
            attempt.note(made.problem)

    parameters = attempt.job.parameters
    work = QuantizeWork.from_json(parameters["quantize"])
    making = Making(stop=attempt.stop, variables=variables_of(parameters))
    try:
        records = work.run(making, on_step, on_made, again=attempt.job.attempt > 1)
    except Stopped:
        return Ending(State.CANCELLED)
    return Ending(State.SUCCEEDED, {"models": records, "path": records[-1]["path"]})


UNHEARD = "the model spoke, and no file was asked for what it says"


class JobSpeech:
    """The speech of one generation, into ``path`` if there is one. Raises LeapUnsupportedMediaError when the model of
    a job that wants speech has no voice."""

    def __init__(self, path: str | None, runner: ModelRunner) -> None:
        if path is not None:
            require_voice(runner)
        self._file = SpokenFile(Path(path)) if path is not None else None
        self._heard = False
        self.result: JsonObject = {}
        """What the job's result says of the speech."""

    def write(self, sample: AudioSample) -> None:
        """Add a piece."""
        self._heard = True
        if self._file is not None:
            self._file.write(sample)

    def discard_unless(self, complete: Complete | None) -> None:
        """Leave no file of an answer that failed or was stopped."""
        unfinished = (GenerationFinishReason.INTERRUPTED, GenerationFinishReason.ERROR)
        if self._file is not None and (complete is None or complete.finish_reason in unfinished):
            self._file.discard()

    def finish(self, complete: Complete) -> Complete:
        """Put the file in its place; the answer without the sound, which is there."""
        if self._file is not None and complete.finish_reason is not GenerationFinishReason.INTERRUPTED:
            if not self._file.finish():
                raise LeapUnsupportedMediaError(
                    f"the model did not speak, so {self._file.path} is not written",
                    hint="its system prompt makes it speak",
                )
            self.result = {"speech": {"file": str(self._file.path), "seconds": round(self._file.seconds, 3)}}
        warnings = complete.warnings
        if self._heard and self._file is None:
            warnings = (*warnings, UNHEARD)
        message = complete.full_message
        content = tuple(part for part in message.content if not isinstance(part, Speech))
        return replace(complete, full_message=replace(message, content=content), warnings=warnings)


PROGRESS_SECONDS = 0.1

Load = Callable[[str, ModelLoadingOptions], AbstractContextManager[ModelRunner]]
"""Lends a runner for a reference, for the length of a ``with``."""
OpenModel = Callable[[str, ModelLoadingOptions], "Runner"]
"""Gives a runner that its receiver unloads, of the kind that the job needs."""


def download(attempt: Attempt, configuration: JobsConfiguration) -> Ending:
    """Fetch a model. What has arrived stays, and the next attempt goes on from there."""
    from leap_core.models.download.downloading import (
        Download,
        DownloadOptions,
        Event,
        FileFinished,
        Notice,
        Planned,
        Progress,
    )

    parameters = confined(attempt.job, configuration).parameters
    variables = variables_of(parameters)

    def take(event: Event) -> None:
        if isinstance(event, Progress):
            attempt.progress({"done": event.bytes, "total": event.total, "unit": "bytes", "speed": event.speed})
        elif isinstance(event, Planned):
            attempt.emit(event.to_json(), {"done": event.bytes, "total": event.total, "unit": "bytes"})
        elif isinstance(event, Notice):
            attempt.note(event.message)
        elif isinstance(event, FileFinished):
            attempt.emit(event.to_json())

    options = DownloadOptions(**parameters.get("options", {}))
    fetch = Download(options, on_event=take, stop=attempt.stop, variables=variables, cwd=Path(parameters["cwd"]))
    try:
        local = fetch.run(parameters["model"], parameters.get("quantization"), parameters.get("revision"))
    except DownloadStopped:
        return Ending(State.CANCELLED)
    size = local.path.stat().st_size
    attempt.progress({"done": size, "total": size, "unit": "bytes"})
    return Ending(State.SUCCEEDED, {"model": local.model_id, "path": str(local.path), "kind": local.kind})


def generate(attempt: Attempt, load: Load) -> Ending:
    """Answer one conversation, written down piece by piece."""
    parameters = attempt.job.parameters
    if "transcription" in parameters:
        return _transcribe(attempt, load)
    options = GenerationOptions.from_json(parameters.get("options", {}))
    messages = messages_from_json(parameters["messages"])
    functions = [LeapFunction.from_openai(tool) for tool in parameters.get("tools", [])]
    with load(parameters["model"], ModelLoadingOptions(**parameters.get("loading", {}))) as runner:
        if attempt.stop.is_set():
            return Ending(State.CANCELLED)
        speech = JobSpeech(parameters.get("speech"), runner)
        generation = runner.start(messages, functions, options)
        attempt.when_stopped(generation.stop)
        complete = None
        tokens = 0
        try:
            for response in generation:
                if isinstance(response, Complete):
                    complete = response
                    break
                tokens += 1
                if isinstance(response, AudioSample):
                    speech.write(response)
                    attempt.progress({"done": tokens, "unit": "tokens"})
                else:
                    attempt.emit(response.to_json(), {"done": tokens, "unit": "tokens"})
        finally:
            generation.close()
            speech.discard_unless(complete)
    complete = speech.finish(require_complete(complete))
    result = {"model": runner.model_id, **{k: v for k, v in complete.to_json().items() if k != "type"}, **speech.result}
    attempt.emit(complete.to_json())
    stopped = complete.finish_reason is GenerationFinishReason.INTERRUPTED
    return Ending(State.CANCELLED if stopped else State.SUCCEEDED, result)


def _transcribe(attempt: Attempt, load: Load) -> Ending:
    """Write down what is said in the sound that is kept with the job."""
    from leap_core.system.files import replace_text
    from leap_core.tasks.transcription import TIMED, as_json, read_recording, transcribe, write

    parameters = attempt.job.parameters
    request = parameters["transcription"]
    sound = Path(parameters["kept"]).read_bytes()
    recording = read_recording(sound, longest=request["longest"], phrases=request["format"] in TIMED)
    options = GenerationOptions(max_tokens=request["max_tokens"])
    total = len(recording.pieces)
    done: list[Transcribed] = []
    with (
        load(parameters["model"], ModelLoadingOptions(**parameters.get("loading", {}))) as runner,
        closing(transcribe(runner, recording, prompt=request["prompt"], options=options)) as pieces,
    ):
        while not attempt.stop.is_set() and (piece := next(pieces, None)) is not None:
            done.append(piece)
            text = {"type": "chunk", "text": f"{piece.text}\n"} if piece.text else {"type": "silence"}
            attempt.emit({**text, "start": piece.start, "end": piece.end}, _of_pieces(len(done), total))
    result: JsonObject = as_json(done, recording.seconds, runner.model_id)
    result["message"] = ChatMessage("assistant", result["text"]).to_json()
    if len(done) < total:
        return Ending(State.CANCELLED, result)
    if request["output"] is not None:
        place = Path(request["output"])
        replace_text(place, write(done, request["format"], seconds=recording.seconds, model=runner.model_id))
        result["output"] = str(place)
        attempt.note(f"the transcript is in {place}")
    return Ending(State.SUCCEEDED, result)


def _of_pieces(done: int, total: int) -> JsonObject:
    return {"done": done, "total": total, "unit": "pieces"}


def batch(attempt: Attempt, open_model: OpenModel) -> Ending:
    """Answer the lines of a file; those that an earlier attempt answered are not asked again."""
    from leap_core.batch.checking import check_batch
    from leap_core.batch.settings import BatchSettings

    parameters = attempt.job.parameters
    settings = BatchSettings.from_json(parameters["batch"])
    variables = variables_of(parameters)
    checked = check_batch(
        settings,
        default_model=parameters.get("default_model"),
        variables=variables,
        cwd=Path(parameters["cwd"]),
    )
    with checked:
        load = partial(_opened, attempt, checked, settings, variables, open_model)
        return _run_batch(attempt, settings, checked, load)


class _StoppedError(Exception):
    """The attempt was to stop while it waited."""


def _run_batch(attempt: Attempt, settings: BatchSettings, checked: CheckedBatch, load: Callable[[], Runner]) -> Ending:
    from leap_core.batch.run import Progress

    for problem in checked.problems:
        attempt.note(f"{problem}; left out")
    last = 0.0
    waits = False

    def wait() -> None:
        nonlocal waits
        if not waits:
            attempt.note(f"waiting for another batch that writes to {shown(settings.output)}")
        waits = True
        if attempt.stop.is_set():
            raise _StoppedError

    def take(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_SECONDS or progress.finished == progress.total:
            last = now
            attempt.progress(_of_batch(progress))

    journal = None
    try:
        journal = settings.open_journal(wait)
        prepared = checked.open(journal, print, take, run_id=attempt.job.id, while_waiting=wait)
        ended = prepared.run(load, attempt.stop)
    except _StoppedError:
        return Ending(State.CANCELLED)
    except OSError as error:
        message = f"cannot write {error.filename or shown(settings.output)}: {error.strerror or error}"
        raise LeapError(message, hint=f"make room, then: leap jobs retry {attempt.job.id}") from None
    finally:
        if journal is not None:
            journal.close()
    kept = "kept_output" in attempt.job.parameters
    result = {"output": None if kept else settings.output, **_of_batch(ended), "skipped": checked.problem_count}
    attempt.progress(_of_batch(ended))
    place = (
        f"leap jobs output {attempt.job.id} prints the results"
        if kept
        else f"the results are in {shown(settings.output)}"
    )
    attempt.note(
        f"{ended.succeeded} of {ended.total} lines answered ({ended.reused} of them before), {ended.failed} failed; "
        f"{place}"
    )
    if ended.remark:
        attempt.note(ended.remark)
    if ended.stopped:
        return Ending(State.CANCELLED, result)
    if ended.failed:
        again = f"leap jobs retry {attempt.job.id} tries them again"
        failure = LeapJobError(f"{ended.failed} of {ended.total} lines failed", hint=again)
        return Ending(State.FAILED, result, error_of(failure))
    return Ending(State.SUCCEEDED, result)


def _opened(
    attempt: Attempt,
    checked: CheckedBatch,
    settings: BatchSettings,
    variables: Mapping[str, str],
    open_model: OpenModel,
) -> Runner:
    if settings.escalate_to is not None:
        from leap_core.batch.escalation import EscalatingRunner, When

        near = open_model(checked.model, settings.loading_options())
        far = open_model(settings.escalate_to, ModelLoadingOptions())
        assert isinstance(near, ModelRunner) and isinstance(far, ModelRunner)
        name = settings.escalate_to
        when = When.parse(settings.when, settings.check)
        return EscalatingRunner(near, far, when, on_end=lambda ended: attempt.note(ended.summary(name)))
    if settings.on is None:
        return open_model(checked.model, settings.loading_options())
    from leap_core.batch.clusters.opening import open_on_cluster

    return open_on_cluster(checked, settings, variables=variables)


def error_of(error: LeapError) -> JsonObject:
    """An error as the table keeps it."""
    value: JsonObject = {"type": type(error).__name__, "message": error.message}
    return {**value, "hint": error.hint} if error.hint else value


def _of_batch(progress: object) -> Mapping[str, object]:
    from leap_core.batch.run import Progress

    assert isinstance(progress, Progress)
    return {
        "done": progress.finished,
        "total": progress.total,
        "unit": "lines",
        "succeeded": progress.succeeded,
        "failed": progress.failed,
        "reused": progress.reused,
        "lines_per_second": round(progress.lines_per_second, 2),
        "tokens_per_second": round(progress.tokens_per_second, 1),
        "eta": progress.eta,
    }


WRITE_SECONDS = 0.25
"""How long a result may wait for others before it is stored."""


class StoredLines(LineIndex):
    """Lines that came from rows, as the threads that answer them read lines."""

    def __init__(self, lines: list[BatchLine], rows: BatchRows, batch: str) -> None:
        self._lines = lines  # there is no file, and so nothing of what the base class holds
        self._rows, self._batch = rows, batch

    def __len__(self) -> int:
        return len(self._lines)

    def raw(self, n: int) -> bytes:
        raw = self._lines[n].raw
        return self._rows.raw(self._batch, self._lines[n].number) if raw is None else raw

    def number(self, n: int) -> int:
        return self._lines[n].number

    def digest(self, n: int) -> str:
        return self._lines[n].digest


class ShardResults:
    """Stores the results of one shard, several in one transaction."""

    def __init__(self, attempt: Attempt, rows: BatchRows, batch: str, total: int, answered: int) -> None:
        self._attempt, self._rows, self._batch = attempt, rows, batch
        self._progress = {"done": answered, "total": total, "unit": "lines"}
        self._held: list[StoredResult] = []
        self._written = time.monotonic()

    def add(self, line: BatchLine, result: Result) -> None:
        """Store a result a moment later. Raises Fenced."""
        tokens = result.completion_tokens
        self._held.append(StoredResult(line.number, line.key, result.succeeded, tokens, result.to_json()))
        self._progress["done"] = int(str(self._progress["done"])) + 1
        if time.monotonic() - self._written >= WRITE_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Store what is held back. Raises Fenced."""
        if not self._held:
            return
        try:
            cancelled = self._rows.write(self._attempt.claim, self._batch, self._held, dict(self._progress))
        except Fenced:
            self._attempt.end(lost=True)
            raise
        self._held = []
        self._written = time.monotonic()
        if cancelled:
            self._attempt.end(cancelled=True)


def shard(attempt: Attempt, rows: BatchRows, load: Load) -> Ending:
    """Answer the lines of the shard that have no result yet."""
    parameters = attempt.job.parameters
    batch = str(attempt.job.parent)
    first, last = int(parameters["first"]), int(parameters["last"])
    settings = BatchSettings.from_json({**parameters["batch"], "source": "-"})
    lines = rows.missing(batch, first, last)
    if not lines:
        return Ending(State.SUCCEEDED)
    stored = StoredLines(lines, rows, batch)
    results = ShardResults(attempt, rows, batch, int(parameters["count"]), int(parameters["count"]) - len(lines))
    with load(parameters["model"], settings.loading_options()) as runner:
        work = ((n, stored) for n in range(len(lines)))
        answered = 0
        with answering(runner, settings.reader(), settings.concurrency, attempt.stop) as answers:
            for n, custom_id, outcome in answers.answers(work, len(lines)):
                results.add(lines[n], result_of(outcome, lines[n].key, custom_id, runner.model_id))
                answered += 1
        results.flush()
    return Ending(State.SUCCEEDED if answered == len(lines) else State.CANCELLED)

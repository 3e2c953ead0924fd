"""What the kinds of jobs do: a few lines each around leap_core and ``jobs.batch``.

A task works on one attempt and returns how it ended, or raises. It stops soon after ``attempt.stop`` is set, and keeps
what there is by then.
"""

from __future__ import annotations

from leap_core.json_fields import JsonObject
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from leap_core.addresses import shown
from leap_core.errors import LeapError, LeapJobError
from leap_core.functions import LeapFunction
from leap_core.messages import ChatMessage, messages_from_json
from leap_core.models.hub.hub_retries import DownloadStopped
from leap_core.options import GenerationOptions, ModelLoadingOptions
from leap_core.responses import AudioSample, Complete, GenerationFinishReason, require_complete
from leap_core.runner.contract import ModelRunner
from leap_core.transcription.recognition import Transcribed

from ..configuration import JobsConfiguration
from ..submission.shared_rows import confined
from ..submission.variables import variables_of
from ..table.job import State
from ..table.job import Ending
from .attempt import Attempt
from .speech import JobSpeech

if TYPE_CHECKING:
    from leap_core.batch.answering import Runner
    from leap_core.batch.batch_settings import BatchSettings
    from leap_core.batch.checking import CheckedBatch

PROGRESS_SECONDS = 0.1

Load = Callable[[str, ModelLoadingOptions], AbstractContextManager[ModelRunner]]
"""Lends a runner for a reference, for the length of a ``with``."""
OpenModel = Callable[[str, ModelLoadingOptions], "Runner"]
"""Gives a runner that its receiver unloads, of the kind that the job needs."""


def download(attempt: Attempt, configuration: JobsConfiguration) -> Ending:
    """Fetch a model. What has arrived stays, and the next attempt goes on from there."""
    from leap_core.models.download.download_events import Event, FileFinished, Notice, Planned, Progress
    from leap_core.models.download.downloading import Download, DownloadOptions

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
    from leap_core.storage.atomic_files import replace_text
    from leap_core.transcription.recognition import read_recording, transcribe
    from leap_core.transcription.transcript_formats import TIMED, as_json, write

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
    from leap_core.batch.batch_settings import BatchSettings
    from leap_core.batch.checking import check_batch

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
    from leap_core.batch.definition import Progress

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
    from leap_core.clusters.opening import open_on_cluster

    return open_on_cluster(checked, settings, variables=variables)


def error_of(error: LeapError) -> JsonObject:
    """An error as the table keeps it."""
    value: JsonObject = {"type": type(error).__name__, "message": error.message}
    return {**value, "hint": error.hint} if error.hint else value


def _of_batch(progress: object) -> Mapping[str, object]:
    from leap_core.batch.definition import Progress

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

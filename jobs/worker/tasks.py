"""What the kinds of jobs do, batches aside: a few lines each around leap_core.

A task works on one attempt and returns how it ended, or raises. It stops soon after ``attempt.stop`` is set, and keeps
what there is by then.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from leap_core.conversation.answer_forms import SEPARATOR, ReadAhead
from leap_core.conversation.generator import require_voice
from leap_core.conversation.messages import ChatMessage, Speech
from leap_core.conversation.options import GenerationOptions, ModelLoadingOptions
from leap_core.conversation.prompt_progress import PromptReading, seconds_left
from leap_core.conversation.responses import (
    AudioSample,
    Complete,
    GenerationFinishReason,
    MessageResponse,
    require_complete,
)
from leap_core.conversation.runner import ModelRunner
from leap_core.errors import LeapUnsupportedMediaError
from leap_core.inference.speech.spoken_file import SpokenFile
from leap_core.schemas.json_values import JsonObject
from leap_core.system.files import replace_text

from ..configuration import JobsConfiguration
from ..submission.shared_jobs import confined
from ..table.job import ClaimLostError, Ending, State
from ..table.requests import AnswerRequest, DownloadRequest, TranscriptRequest
from ..table.table import Table
from .attempt import Attempt

if TYPE_CHECKING:
    from leap_core.batch.answering import Runner
    from leap_core.conversation.generator import Generation
    from leap_core.conversation.streams import Stream
    from leap_core.tasks.transcription import Transcribed


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

Load = Callable[..., AbstractContextManager[ModelRunner]]
"""Lends a runner for a reference and ModelLoadingOptions, for the length of a ``with``; ``report``, where it is given,
gets how far its prompts are read."""
OpenModel = Callable[[str, ModelLoadingOptions], "Runner"]
"""Gives a runner that its receiver unloads, of the kind that the job needs."""


def download(attempt: Attempt, table: Table, configuration: JobsConfiguration) -> Ending:
    """Fetch a model. What has arrived stays, and the next attempt resumes there."""
    from leap_core.models.download.downloading import (
        Download,
        DownloadOptions,
        Event,
        FileFinished,
        Notice,
        Planned,
        Progress,
    )
    from leap_core.models.http import DownloadStopped

    asked: DownloadRequest = confined(attempt.job, configuration)

    def take(event: Event) -> None:
        if isinstance(event, Progress):
            attempt.progress({"done": event.bytes, "total": event.total, "unit": "bytes", "speed": event.speed})
        elif isinstance(event, Planned):
            attempt.emit(event.to_json(), {"done": event.bytes, "total": event.total, "unit": "bytes"})
        elif isinstance(event, Notice):
            attempt.note(event.message)
        elif isinstance(event, FileFinished):
            attempt.emit(event.to_json())

    options = DownloadOptions(**asked.options)
    fetch = Download(options, on_event=take, stop=attempt.stop, variables=asked.environment(), cwd=asked.cwd)
    try:
        local = fetch.run(asked.model, asked.quantization, asked.revision)
    except DownloadStopped:
        return Ending(State.CANCELLED)
    size = local.path.stat().st_size
    attempt.progress({"done": size, "total": size, "unit": "bytes"})
    return Ending(State.SUCCEEDED, {"model": local.model_id, "path": str(local.path), "kind": local.kind})


def generate(attempt: Attempt, asked: AnswerRequest, load: Load) -> Ending:
    """Answer one conversation, written down piece by piece."""
    form, given = asked.form, asked.request
    loading, report = ModelLoadingOptions.from_json(asked.loading), partial(_report_prompt, attempt)
    with load(asked.model, loading, report=report) as runner, ExitStack() as running:
        if attempt.stop.is_set():
            return Ending(State.CANCELLED)
        speech, answers = JobSpeech(asked.speech, runner), Answers(attempt, asked, runner.model_id)
        streams: list[Stream] = []
        for options in form.options(given.options):
            streams.append(form.part_of(replace(given, options=options).start(runner)))
            running.callback(streams[-1].close)

        def stop() -> None:
            for each in streams:
                each.stop()

        attempt.when_stopped(stop)
        read = streams
        if len(streams) > 1:
            read = [ReadAhead(each, stop) for each in streams]
            running.pop_all()  # whose threads close them
            for each in read:
                running.callback(each.close)
        try:
            for stream in read:
                answers.take(stream, speech)
        finally:
            running.close()
            speech.discard_unless(answers.ended[-1] if answers.ended else None)
        return answers.ending(speech)


class Answers:
    """The answers of a job: their events are its output, and their ends its result."""

    def __init__(self, attempt: Attempt, asked: AnswerRequest, model: str) -> None:
        self._attempt, self._asked, self._model = attempt, asked, model
        self._tokens = 0
        self._events: list[JsonObject] = []
        """Those that a file gets."""
        self.ended: list[Complete] = []

    def _event(self, response: MessageResponse) -> JsonObject:
        index = {"index": len(self.ended)} if self._asked.form.count > 1 else {}
        event = {**index, **response.to_json()}
        if self._asked.format == "jsonl" and self._asked.output is not None:
            self._events.append(event)
        return event

    def take(self, stream: Stream, speech: JobSpeech) -> None:
        """Put out one answer."""
        complete, before = None, self._tokens
        for response in stream:
            if isinstance(response, Complete):
                complete = response
                break
            self._tokens += 1
            if isinstance(response, AudioSample):
                speech.write(response)
                self._attempt.progress({"done": self._tokens, "unit": "tokens"})
            else:
                self._attempt.emit(self._event(response), {"done": self._tokens, "unit": "tokens"})
        complete = speech.finish(require_complete(complete))
        if complete.stats is not None:  # several tokens may have come as one piece
            self._tokens = before + complete.stats.completion_tokens
        self._attempt.emit(self._event(complete), {"done": self._tokens, "unit": "tokens"})
        if "reasoning" in self._asked.logged and complete.full_message.reasoning_content:
            self._attempt.note(complete.full_message.reasoning_content)
        if "stats" in self._asked.logged and complete.stats is not None:
            self._attempt.note(complete.stats.describe())
        self.ended.append(complete)

    def ending(self, speech: JobSpeech) -> Ending:
        """The job's end, and the file that was asked for."""
        ends = [{name: value for name, value in each.to_json().items() if name != "type"} for each in self.ended]
        several = [{"index": index, "model": self._model, **end} for index, end in enumerate(ends)]
        result: JsonObject = {"model": self._model, **ends[0], **speech.result}
        result |= {"answers": several} if len(ends) > 1 else {}
        self._attempt.result = result
        stopped = any(each.finish_reason is GenerationFinishReason.INTERRUPTED for each in self.ended)
        if self._asked.output is not None and (self._attempt.cancelled or not stopped):
            replace_text(Path(self._asked.output), self._text(several if len(ends) > 1 else result), mode=0o666)
            result["output"] = self._asked.output
            self._attempt.note(f"the answer is in {self._asked.output}")
        return Ending(State.CANCELLED if stopped else State.SUCCEEDED, result)

    def _text(self, document: object) -> str:
        """What the file gets, as ``leap generate -o`` writes it."""
        if self._asked.format == "json":
            return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
        compact = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
        if self._asked.format == "jsonl":
            return "".join(f"{compact(each)}\n" for each in self._events)
        texts = []
        for message in (each.full_message for each in self.ended):
            text = message.text if message.text.endswith("\n") or not message.text else f"{message.text}\n"
            calls = [f"{compact(call.to_json()['function'])}\n" for call in message.function_calls or ()]
            texts.append("".join([text, *calls]))
        return f"{SEPARATOR}\n".join(texts)


def _report_prompt(attempt: Attempt, _generation: Generation, reading: PromptReading | None) -> None:
    """Say how far the prompt is read."""
    if reading is not None:
        counts = {"done": reading.done, "total": reading.total, "unit": "tokens of the prompt"}
        with suppress(ClaimLostError):  # what the attempt does next ends it
            attempt.progress({**counts, "eta": seconds_left([reading])})


def transcribe(attempt: Attempt, asked: TranscriptRequest, load: Load) -> Ending:
    """Write down what is said in the sound that is kept with the job."""
    from leap_core.tasks.transcription import TIMED, as_json, read_recording, write
    from leap_core.tasks.transcription import transcribe as pieces_of

    recording = read_recording(Path(str(asked.kept)).read_bytes(), longest=asked.longest, phrases=asked.format in TIMED)
    options = GenerationOptions(max_tokens=asked.max_tokens)
    total = len(recording.pieces)
    done: list[Transcribed] = []
    with (
        load(asked.model, ModelLoadingOptions.from_json(asked.loading)) as runner,
        closing(pieces_of(runner, recording, prompt=asked.prompt, options=options)) as pieces,
    ):
        while not attempt.stop.is_set() and (piece := next(pieces, None)) is not None:
            done.append(piece)
            text = {"type": "chunk", "text": f"{piece.text}\n"} if piece.text else {"type": "silence"}
            attempt.emit({**text, "start": piece.start, "end": piece.end}, _of_pieces(len(done), total))
    result: JsonObject = as_json(done, recording.seconds, runner.model_id)
    result["message"] = ChatMessage("assistant", result["text"]).to_json()
    if len(done) < total:
        return Ending(State.CANCELLED, result)
    if asked.output is not None:
        attempt.result, place = result, Path(asked.output)
        replace_text(place, write(done, asked.format, seconds=recording.seconds, model=runner.model_id))
        result["output"] = str(place)
        attempt.note(f"the transcript is in {place}")
    return Ending(State.SUCCEEDED, result)


def _of_pieces(done: int, total: int) -> JsonObject:
    return {"done": done, "total": total, "unit": "pieces"}

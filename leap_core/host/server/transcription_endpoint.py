"""/v1/audio/transcriptions: OpenAI's speech to text, for models that hear."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ...errors import LeapError, LeapSerializationError
from ...options import GenerationOptions
from ...runner.contract import ModelRunner
from ...transcription.formats import as_json, write
from ...transcription.recognition import PROMPT, Recording, Transcribed, read_recording, transcribe
from .http_errors import Refused, unacceptable
from .loaded_models import LoadedModels
from .request_bodies import LARGEST_BODY

FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
KNOWN = ("file", "model", "language", "prompt", "response_format", "temperature", "stream", "timestamp_granularities[]")
PROMPTS = {"ja": "Perform ASR in japanese."}
"""Of LFM2.5-Audio-JP, by OpenAI's ``language``."""
PLAIN = {"srt": "application/x-subrip", "vtt": "text/vtt", "text": "text/plain"}


@dataclass(frozen=True)
class TranscriptionRequest:
    """What a form asks. ``prompt``: the system prompt."""

    data: bytes
    model: str | None
    prompt: str
    format: str
    options: GenerationOptions


def transcriptions(models: LoadedModels) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint over these models."""

    async def answer(request: Request) -> Response:
        transcription_request = await _read(request)
        model = models.to_answer(transcription_request.model)
        recording = await asyncio.to_thread(read_recording, transcription_request.data)
        with model.in_use() as runner:
            pieces = await _unless_gone(request, runner, recording, transcription_request)
        return _response(pieces, transcription_request.format, recording, transcription_request.model or model.name)

    return answer


async def _read(request: Request) -> TranscriptionRequest:
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > LARGEST_BODY:
        error = LeapSerializationError(f"the request is larger than {LARGEST_BODY // 1024**2} MiB")
        raise Refused(413, "request_too_large", error)
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise LeapSerializationError("expected multipart/form-data with the sound as 'file'")
    try:
        async with request.form(max_files=1, max_fields=32, max_part_size=64 * 1024) as form:
            return await _of_form(form)
    except ClientDisconnect:
        raise LeapSerializationError("the connection ended within the request", path="body") from None
    except HTTPException as error:  # starlette's word for a damaged form
        raise LeapSerializationError(f"the form cannot be read: {error.detail}") from None


async def _of_form(form: FormData) -> TranscriptionRequest:
    for name in form:
        if name not in KNOWN:
            raise LeapSerializationError("there is no such field", path=name)
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise LeapSerializationError("expected a sound", path="file")
    data = await file.read(LARGEST_BODY + 1)
    if len(data) > LARGEST_BODY:
        error = LeapSerializationError(f"the sound is larger than {LARGEST_BODY // 1024**2} MiB")
        raise Refused(413, "request_too_large", error)
    format = str(form.get("response_format") or "json")
    if format not in FORMATS:
        raise LeapSerializationError(f"{format!r} is not one of {', '.join(FORMATS)}", path="response_format")
    if str(form.get("stream") or "false").lower() not in ("false", "0"):
        raise LeapSerializationError("true is not supported: the transcript is sent whole", path="stream")
    language = str(form.get("language") or "")
    prompt = str(form.get("prompt") or "") or PROMPTS.get(language, PROMPT)
    model = str(form.get("model") or "") or None
    return TranscriptionRequest(data, model, prompt, format, GenerationOptions(temperature=_temperature(form)))


def _temperature(form: FormData) -> float:
    try:
        return float(str(form.get("temperature") or 0))
    except ValueError:
        raise LeapSerializationError("expected a number", path="temperature") from None


async def _unless_gone(
    request: Request, runner: ModelRunner, recording: Recording, transcription_request: TranscriptionRequest
) -> list[Transcribed]:
    """The pieces, made in a thread; one whose client leaves ends after the piece at hand."""
    disconnected = threading.Event()

    def work() -> list[Transcribed]:
        done: list[Transcribed] = []
        try:
            with closing(
                transcribe(
                    runner, recording, prompt=transcription_request.prompt, options=transcription_request.options
                )
            ) as pieces:
                while not disconnected.is_set() and (piece := next(pieces, None)) is not None:
                    done.append(piece)
        except LeapError as error:
            raise unacceptable(error) from None
        return done

    async def watch() -> None:
        with suppress(RuntimeError):
            while (await request.receive())["type"] != "http.disconnect":
                pass
            disconnected.set()

    watcher = asyncio.create_task(watch())
    try:
        return await asyncio.to_thread(work)
    finally:
        disconnected.set()
        watcher.cancel()


def _response(pieces: list[Transcribed], format: str, recording: Recording, model: str) -> Response:
    if format in PLAIN:
        return PlainTextResponse(
            write(pieces, format, seconds=recording.seconds, model=model), media_type=PLAIN[format]
        )
    value: dict[str, Any] = as_json(pieces, recording.seconds, model)
    return JSONResponse({"text": value["text"]} if format == "json" else value)

"""/v1/audio/speech and /v1/audio/transcriptions: a text read aloud, and speech to text."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, closing
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ...conversation.generator import Generation
from ...conversation.media.wav import encoded_sound, pcm16, wav_header
from ...conversation.messages import ChatMessage
from ...conversation.options import GenerationOptions
from ...conversation.responses import AudioSample, Complete
from ...conversation.runner import ModelRunner
from ...errors import LeapError, LeapGenerationError, LeapSerializationError
from ...protocols.openai.fields import read_keep_alive
from ...protocols.openai.responses_reply import typed_event
from ...protocols.openai.speech import FORMATS, SpeechRequest, read_speech
from ...system.dataclass import dataclass
from ...tasks.transcription import PROMPT, Recording, Transcribed, as_json, read_recording, transcribe, write
from ..answers import GenerationBridge, reserved, start_bridge
from ..http import (
    LARGEST_BODY,
    READING,
    AsciiJSON,
    Refused,
    body_of,
    check_declared,
    client_watch,
    finish,
    read_body,
    unacceptable,
)
from ..models.loaded_model import LoadedModel
from ..models.loaded_models import LoadedModels
from .generation import check_voice

SILENT = LeapGenerationError("the model did not speak", hint="send a text that can be read aloud")


class SpeechEndpoint:
    """Reads texts aloud with any of ``models``."""

    def __init__(self, models: LoadedModels) -> None:
        self._models = models

    async def speech(self, request: Request) -> Response:
        """The sound of a text."""
        speech_request = await read_body(request, read_speech)
        with ExitStack() as using:
            wish = speech_request.keep_alive
            model = await reserved(self._models, speech_request.model, request, using, keep_alive=wish)
            runner = using.enter_context(model.in_use())
            check_voice(runner)
            bridge = GenerationBridge(lambda: _begin(runner, speech_request))
            if not await start_bridge(bridge, request.receive):
                return Response()  # the client left
            sound = _Sound(bridge, model)
            warning = "; ".join(speech_request.notes).encode("ascii", "backslashreplace")[:LONGEST_HEADER].decode()
            headers = {"X-Leap-Warning": warning} if warning else {}
            if speech_request.format == "pcm":
                return _Samples(sound, using.pop_all(), headers)
            return await _whole(request, sound, speech_request.format, headers)


LONGEST_HEADER = 1000


def _begin(runner: ModelRunner, speech_request: SpeechRequest) -> Generation:
    return runner.start(
        [ChatMessage("system", speech_request.system), ChatMessage("user", speech_request.text)],
        (),
        speech_request.options,
    )


class _Sound:
    """The samples of one generation, in pieces; its end, or its error, comes out of ``pieces``."""

    def __init__(self, bridge: GenerationBridge, model: LoadedModel) -> None:
        self.bridge = bridge
        self.sample_rate = 0
        self._model = model

    async def pieces(self) -> AsyncIterator[bytes]:
        """16-bit samples. Raises the error with which the generation failed."""
        async for batch in self.bridge.batches():
            for item in batch:
                if isinstance(item, LeapError):
                    raise item
                if isinstance(item, AudioSample):
                    self.sample_rate = item.sample_rate
                    yield pcm16(item.samples)
                elif isinstance(item, Complete) and item.stats is not None:
                    self._model.throughput.add(item.stats.completion_tokens)


async def _whole(request: Request, sound: _Sound, format: str, headers: dict[str, str]) -> Response:
    try:
        with client_watch(request.receive, sound.bridge.stop):
            samples = b"".join([piece async for piece in sound.pieces()])
    finally:
        await sound.bridge.close()
    if not samples:
        raise unacceptable(SILENT)
    if format == "wav":
        data = wav_header(len(samples), sound.sample_rate) + samples
    else:
        data = await READING.run(encoded_sound, samples, sound.sample_rate, format)
    return Response(data, media_type=FORMATS[format], headers=headers)


class _Samples(Response):
    """16-bit samples as they come. When the reader leaves, the generation ends; an error ends the connection."""

    def __init__(self, sound: _Sound, using: ExitStack, headers: dict[str, str]) -> None:
        super().__init__(media_type=FORMATS["pcm"], headers=headers)
        self._sound = sound
        self._using = using
        self.raw_headers = [header for header in self.raw_headers if header[0] != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        bridge = self._sound.bridge
        try:
            with client_watch(receive, bridge.stop):
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                async for piece in self._sound.pieces():
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:
            pass  # the reader left
        finally:
            await bridge.close()
            self._using.close()


TRANSCRIPT_FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
KNOWN = (
    *("file", "model", "language", "prompt", "response_format", "temperature", "stream", "timestamp_granularities[]"),
    "keep_alive",
)
PROMPTS = {"ja": "Perform ASR in japanese."}
"""LFM2.5-Audio-JP takes these prompts, by OpenAI's ``language``."""
PLAIN = {"srt": "application/x-subrip", "vtt": "text/vtt", "text": "text/plain"}


WITH_TIMES = ("verbose_json", "srt", "vtt")
"""Formats that say when a phrase was said."""


@dataclass(frozen=True)
class TranscriptionRequest:
    """What a form asks. ``prompt``: the system prompt."""

    data: bytes
    model: str | None
    prompt: str
    format: str
    options: GenerationOptions
    stream: bool = False
    keep_alive: float | None = None
    notes: tuple[str, ...] = ()


def transcriptions(models: LoadedModels) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint over these models."""

    async def answer(request: Request) -> Response:
        transcription_request = await _read(request)
        recording = await READING.run(
            read_recording, transcription_request.data, phrases=transcription_request.format in WITH_TIMES
        )
        with ExitStack() as using:
            wish = transcription_request.keep_alive
            model = await reserved(models, transcription_request.model, request, using, keep_alive=wish)
            runner = using.enter_context(model.in_use())
            if transcription_request.stream:
                events = _events(request, runner, recording, transcription_request, using.pop_all())
                return StreamingResponse(events, media_type="text/event-stream")
            pieces = await finish(request, lambda left: _pieces(runner, recording, transcription_request, left))
        return _response(pieces, transcription_request, recording, transcription_request.model or model.name)

    return answer


async def _read(request: Request) -> TranscriptionRequest:
    check_declared(request, LARGEST_BODY)
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
    if format not in TRANSCRIPT_FORMATS:
        known = ", ".join(TRANSCRIPT_FORMATS)
        raise LeapSerializationError(f"{format!r} is not one of {known}", path="response_format")
    stream = str(form.get("stream") or "false").lower()
    if stream not in ("false", "0", "true", "1"):
        raise LeapSerializationError("expected true or false", path="stream")
    streams = stream in ("true", "1")
    if streams and format != "json":
        raise LeapSerializationError("only json is streamed", path="response_format")
    language = str(form.get("language") or "")
    prompt = str(form.get("prompt") or "") or PROMPTS.get(language, PROMPT)
    model = str(form.get("model") or "") or None
    keep_alive = read_keep_alive(str(form["keep_alive"]) if form.get("keep_alive") else None)
    options = GenerationOptions(temperature=_temperature(form))
    words = "word" in form.getlist("timestamp_granularities[]")
    notes = ("timestamp_granularities: words get no times, segments do (verbose_json)",) if words else ()
    return TranscriptionRequest(data, model, prompt, format, options, streams, keep_alive, notes)


def _temperature(form: FormData) -> float:
    try:
        return float(str(form.get("temperature") or 0))
    except ValueError:
        raise LeapSerializationError("expected a number", path="temperature") from None


async def _events(
    request: Request,
    runner: ModelRunner,
    recording: Recording,
    transcription_request: TranscriptionRequest,
    using: ExitStack,
) -> AsyncIterator[bytes]:
    """OpenAI's events: a delta for each piece as it is heard, then all of them."""
    loop, heard = asyncio.get_running_loop(), asyncio.Queue[str | None]()

    def work(cancelled: threading.Event) -> list[Transcribed]:
        def tell(piece: Transcribed) -> None:
            loop.call_soon_threadsafe(heard.put_nowait, piece.text)

        return _pieces(runner, recording, transcription_request, cancelled, tell)

    with using:
        working = asyncio.ensure_future(finish(request, work))
        working.add_done_callback(lambda _: heard.put_nowait(None))
        said = ""
        while (text := await heard.get()) is not None:
            delta = f" {text}" if said else text
            said += delta
            yield typed_event("transcript.text.delta", {"type": "transcript.text.delta", "delta": delta})
        try:
            working.result()
        except (LeapError, Refused) as error:
            yield typed_event("error", {"type": "error", **body_of(error)[1]})
            return
        yield typed_event("transcript.text.done", {"type": "transcript.text.done", "text": said})


def _pieces(
    runner: ModelRunner,
    recording: Recording,
    request: TranscriptionRequest,
    cancelled: threading.Event,
    on_piece: Callable[[Transcribed], object] = lambda _: None,
) -> list[Transcribed]:
    """The pieces of the transcript; ``cancelled`` ends the work after the piece at hand."""
    done: list[Transcribed] = []
    try:
        with closing(transcribe(runner, recording, prompt=request.prompt, options=request.options)) as pieces:
            while not cancelled.is_set() and (piece := next(pieces, None)) is not None:
                done.append(piece)
                on_piece(piece)
    except LeapError as error:
        raise unacceptable(error) from None
    return done


def _response(pieces: list[Transcribed], request: TranscriptionRequest, recording: Recording, model: str) -> Response:
    format = request.format
    if format in PLAIN:
        return PlainTextResponse(
            write(pieces, format, seconds=recording.seconds, model=model), media_type=PLAIN[format]
        )
    value: dict[str, Any] = as_json(pieces, recording.seconds, model)
    value = {"text": value["text"]} if format == "json" else value
    return AsciiJSON({**value, **({"leap": {"warnings": list(request.notes)}} if request.notes else {})})

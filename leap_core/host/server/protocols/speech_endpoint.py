"""/v1/audio/speech: a text, read aloud. Bare samples are sent as they come, files in one piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ....errors import LeapError, LeapGenerationError
from ....media.wav_writer import encoded_sound, pcm16, wav_header
from ....messages import ChatMessage
from ....openai.speech_bodies import FORMATS, SpeechRequest, read_speech
from ....responses import AudioSample, Complete
from ....runner.contract import Generation, ModelRunner
from ..models.loaded_model import LoadedModel
from ..models.loaded_models import LoadedModels
from ..sending.client_watch import client_watch
from ..sending.event_loop_bridge import GenerationBridge
from ..sending.http_errors import unacceptable
from ..sending.starting import reserved, start_bridge
from .generation_endpoints import check_voice
from .request_bodies import read_body

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
            headers = {"X-Leap-Warning": "; ".join(speech_request.notes)} if speech_request.notes else {}
            if speech_request.format == "pcm":
                return _Samples(sound, using.pop_all(), headers)
            return await _whole(request, sound, speech_request.format, headers)


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
        data = await asyncio.to_thread(encoded_sound, samples, sound.sample_rate, format)
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

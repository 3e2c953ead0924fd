"""Speech in OpenAI's shapes: answers with ``modalities: ["text", "audio"]``, and the text of /v1/audio/speech.

A spoken answer has an id; a later request that names it (``{"role": "assistant", "audio": {"id": …}}``) means all that
was said, so that a conversation continues.
"""

from __future__ import annotations

import base64
import json
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from ...conversation.messages import ChatMessage, ChatMessageRole, Speech
from ...conversation.options import GenerationOptions
from ...errors import LeapOptionsError, LeapSerializationError
from ...inference.speech.voices import CONVERSATION_PROMPT, DEFAULT_VOICE, VOICES, voice_prompt
from ...schemas.json_values import JsonObject
from ...system.dataclass import dataclass
from .fields import NOTE, REFUSE, BodyFields, Unknown, options_in, read_keep_alive, read_parameters

FORMATS = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm16": "audio/pcm",
    "pcm": "audio/pcm",
}
"""Name of a format -> its media type. pcm is 16-bit little-endian mono; opus is within Ogg."""
SPEECH_FORMATS = tuple(name for name in FORMATS if name != "pcm16")
OPENAI_VOICES = {
    **dict.fromkeys(("alloy", "coral", "nova", "sage", "shimmer", "marin"), "us-female"),
    **dict.fromkeys(("ash", "echo", "onyx", "verse", "cedar"), "us-male"),
    "ballad": "uk-male",
    "fable": "uk-female",
}
"""OpenAI's names of voices -> the nearest voice that models here have."""
REMEMBERED_SECONDS = 3600
"""How long an answer's id is promised to be known."""
MOST_REMEMBERED = 256
WAV_HEADER = 44


@dataclass(frozen=True)
class AudioAnswer:
    """How an answer's sound is delivered: ``format`` is wav or pcm16; ``id`` names the answer later."""

    format: str
    id: str


@dataclass(frozen=True)
class SpeechRequest:
    """A text to read aloud. ``format`` is one of SPEECH_FORMATS; ``system`` calls the voice."""

    model: str | None
    text: str
    system: str
    format: str
    options: GenerationOptions
    notes: tuple[str, ...] = ()
    keep_alive: float | None = None


def read_audio(body: BodyFields, unknown: Unknown) -> AudioAnswer | None:
    """What ``modalities`` and ``audio`` ask for; None for text alone. Raises LeapSerializationError."""
    modalities = body.take("modalities")
    audio = body.object("audio")
    kind, voice = audio.text("format"), audio.take("voice")
    if modalities is None or modalities == ["text"]:
        return None
    if not isinstance(modalities, list) or sorted(map(str, modalities)) != ["audio", "text"]:
        raise LeapSerializationError(
            f'{json.dumps(modalities)[:60]} is not supported; ["text"] and ["text", "audio"] are', path="modalities"
        )
    if unknown is REFUSE:
        raise LeapSerializationError("sound is not supported in a batch's lines", path="modalities")
    if voice is not None:
        _check_voice(voice, "audio.voice")
    if kind not in (None, "wav", "pcm16"):
        raise LeapSerializationError(f"{kind!r} is not supported; wav and pcm16 are", path="audio.format")
    return AudioAnswer(kind or "wav", f"audio_{secrets.token_hex(12)}")


def asked_to_speak(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages, opened by the system prompt of a spoken conversation where they have none of their own."""
    if any(message.role is ChatMessageRole.SYSTEM for message in messages):
        return list(messages)
    return [ChatMessage(ChatMessageRole.SYSTEM, CONVERSATION_PROMPT), *messages]


def read_speech(body: object) -> SpeechRequest:
    """A request to /v1/audio/speech. Raises LeapSerializationError or LeapOptionsError naming the field."""
    fields = BodyFields(body)
    extension = fields.object("leap")
    text = fields.text("input")
    if not text or not text.strip():
        raise LeapSerializationError("expected a text to read", path="input")
    voice = fields.take("voice")
    system = VOICES[DEFAULT_VOICE] if voice is None else _check_voice(voice, "voice")
    kind = fields.text("response_format") or "mp3"
    if kind not in SPEECH_FORMATS:
        raise LeapSerializationError(
            f"{kind!r} is not supported; {', '.join(SPEECH_FORMATS)} are", path="response_format"
        )
    if fields.take("speed") not in (None, 1):
        raise LeapSerializationError("the model speaks at its own speed; 1 is supported", path="speed")
    if fields.take("stream_format") not in (None, "audio"):
        raise LeapSerializationError('"audio" is supported', path="stream_format")
    model, keep_alive = fields.text("model"), read_keep_alive(fields.take("keep_alive"))
    parameters = {**read_parameters(fields), **options_in(extension)}
    try:
        options = GenerationOptions.from_json(parameters)
    except LeapOptionsError as error:
        name = error.option.removeprefix("options.")
        raise LeapOptionsError(name, error.reason) from None
    notes = fields.finish(NOTE)
    if isinstance(voice, str) and voice.lower() in OPENAI_VOICES:
        notes = (*notes, f"there is no voice {voice!r} here; {OPENAI_VOICES[voice.lower()]} speaks")
    return SpeechRequest(model, text, system, kind, options, notes, keep_alive)


def audio_body(audio: AudioAnswer, message: ChatMessage, created: int) -> JsonObject | None:
    """The ``audio`` of a whole answer; None where nothing was said aloud."""
    speech = next((part for part in message.content if isinstance(part, Speech)), None)
    if speech is None:
        return None
    data = speech.data if audio.format == "wav" else speech.data[WAV_HEADER:]
    return {
        "id": audio.id,
        "data": base64.b64encode(data).decode("ascii"),
        "expires_at": created + REMEMBERED_SECONDS,
        "transcript": message.text,
    }


class SpokenAnswers:
    """The latest answers that were given aloud, by their ids. Any thread may call."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._messages: OrderedDict[str, ChatMessage] = OrderedDict()

    def keep(self, audio: AudioAnswer, message: ChatMessage) -> None:
        """Remember an answer, if it is one with sound."""
        if not any(isinstance(part, Speech) for part in message.content):
            return
        with self._guard:
            self._messages[audio.id] = message
            while len(self._messages) > MOST_REMEMBERED:
                self._messages.popitem(last=False)

    def filled_in(self, body: object) -> object:
        """The body with each answer that is named by its id in full. Raises LeapSerializationError for an id that
        nothing is known of."""
        messages = body.get("messages") if isinstance(body, Mapping) else None
        if not isinstance(body, Mapping) or not isinstance(messages, list):
            return body
        return {**body, "messages": [self._filled_in(message, n) for n, message in enumerate(messages)]}

    def _filled_in(self, message: object, index: int) -> object:
        audio = message.get("audio") if isinstance(message, Mapping) else None
        if not isinstance(message, Mapping) or audio is None or message.get("role") != "assistant":
            return message
        name = audio.get("id") if isinstance(audio, Mapping) else None
        with self._guard:
            answer = self._messages.get(str(name))
        if answer is None:
            raise LeapSerializationError(
                f"there is no answer {name!r} any more", path=f"messages[{index}].audio.id", hint="send its text"
            )
        return answer.to_json()


def _check_voice(voice: object, path: str) -> str:
    """The system prompt of a voice."""
    name = voice.get("id") if isinstance(voice, Mapping) else voice
    try:
        return voice_prompt(OPENAI_VOICES.get(str(name).lower(), str(name)))
    except LeapOptionsError as error:
        raise LeapSerializationError(error.reason, path=path) from None

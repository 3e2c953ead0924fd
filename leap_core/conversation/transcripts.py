"""Conversations as texts that leave leap and come back: OpenAI's JSON, JSON lines, and Markdown for reading.

The JSON is what ``Conversation.export_to_json`` gives: an array of messages. A line of JSONL is ``{"messages": […]}``,
which ``leap batch`` and tools for fine-tuning read. Images and audio are in the text, or in files of a directory that
the text names; then ``image_url.url`` is the file's path, and ``input_audio`` has ``file`` in the place of ``data``.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import LeapSerializationError
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from .media.wav import wav_from_samples
from .messages import (
    Audio,
    AudioPcmF32,
    ChatMessage,
    ChatMessageContent,
    Image,
    LeapFunctionCall,
    Text,
    messages_from_json,
)

SUFFIXES = {"wav": ".wav", "pcm_f32le": ".f32"}
ELSEWHERE = ("data:", "http:", "https:")
HASH_CHARACTERS = 16
LONGEST_TITLE = 80
LARGEST_MEDIA = 256 * 2**20

Place = Callable[[bytes, str], str]
"""Puts bytes somewhere, with this suffix of a file name, and returns where they can be found."""


@dataclass(frozen=True)
class MediaDirectory:
    """Where images and audio go as files, called by their content. ``beside``: the directory of the text that names
    them, which is made the beginning of their paths; the paths are absolute where the files are not below it."""

    path: Path
    beside: Path

    def place(self, data: bytes, suffix: str) -> str:
        """Write a file unless it is there; its path. Raises OSError."""
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.path / (hashlib.sha256(data).hexdigest()[:HASH_CHARACTERS] + suffix)
        if not (file.is_file() and file.stat().st_size == len(data)):
            file.write_bytes(data)
        try:
            return file.absolute().relative_to(self.beside.absolute()).as_posix()
        except ValueError:
            return file.absolute().as_posix()


def to_openai(history: Sequence[ChatMessage], place: Place | None = None) -> list[JsonObject]:
    """The messages in OpenAI's format; with ``place`` their images and audio are put there."""
    messages = [message.to_json() for message in history]
    if place is not None:
        for part in _parts(messages):
            _put_away(part, place)
    return messages


def to_json(history: Sequence[ChatMessage], place: Place | None = None) -> str:
    """One JSON document, indented for reading."""
    return _dumped(to_openai(history, place), indent=2) + "\n"


def to_jsonl(history: Sequence[ChatMessage], place: Place | None = None) -> str:
    """One line."""
    return _dumped({"messages": to_openai(history, place)}, separators=(",", ":")) + "\n"


def to_markdown(history: Sequence[ChatMessage], title: str, place: Place | None = None) -> str:
    """A page for people, headed by ``title``. Texts are in it unchanged."""
    link = place or _data_uri
    sections = [f"# {' '.join(title.split())[:LONGEST_TITLE] or 'Conversation'}\n"]
    for message in history:
        blocks = [f"## {message.role.value.capitalize()}"]
        if message.reasoning_content:
            blocks.append("\n".join(f"> {line}".rstrip() for line in message.reasoning_content.strip().splitlines()))
        blocks += [_block(part, message, link) for part in message.content]
        if message.function_calls:
            blocks.append(_calls(message.function_calls))
        sections.append("\n\n".join(block for block in blocks if block) + "\n")
    return "\n".join(sections).encode("utf-8", "replace").decode("utf-8")


def read_conversations(text: str, source: str, base: Path | None = None) -> list[list[ChatMessage]]:
    """The conversations in a text: a JSON array of messages, an object with ``messages``, or either on each line.

    Files of images and audio are looked for from ``base``; None allows none. Raises LeapSerializationError that names
    ``source`` and the place in it.
    """
    return [_conversation(value, where, base) for where, value in _documents(text, source)]


def _documents(text: str, source: str) -> Iterator[tuple[str, object]]:
    """The JSON documents with their places: one, or one a line."""
    lines = [(n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise LeapSerializationError("there is no conversation in it", path=source)
    try:
        first = _parsed(lines[0][1], source)
    except LeapSerializationError:  # it goes on in the next line, or is wrong
        yield source, _parsed(text, source)
        return
    yield source if len(lines) == 1 else f"{source}, line {lines[0][0]}", first
    for number, line in lines[1:]:
        yield f"{source}, line {number}", _parsed(line, f"{source}, line {number}")


def _parsed(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise LeapSerializationError(f"not JSON: {error}", path=where) from None
    except RecursionError:
        raise LeapSerializationError("the JSON is nested too deeply", path=where) from None


def _conversation(value: object, where: str, base: Path | None) -> list[ChatMessage]:
    if isinstance(value, dict):
        if "messages" not in value:
            raise LeapSerializationError('expected an array of messages, or an object with "messages"', path=where)
        value = value["messages"]
    if base is not None:
        for part in _parts(value):
            _fetch(part, base, where)
    try:
        return messages_from_json(value)
    except LeapSerializationError as error:
        raise LeapSerializationError(error.message, path=where, hint=error.hint) from None


def _parts(messages: object) -> list[JsonObject]:
    """The parts of content that are objects, wherever a message has them."""
    contents = [message.get("content") for message in _objects(messages)]
    return [part for content in contents for part in _objects(content)]


def _objects(value: object) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _dumped(value: object, **style: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, **style)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8
        return json.dumps(value, **style)
    return text


def _put_away(part: JsonObject, place: Place) -> None:
    if part["type"] == "image_url":
        data = base64.b64decode(part["image_url"]["url"].partition(",")[2])
        part["image_url"] = {"url": place(data, ".jpg")}
    elif part["type"] == "input_audio":
        audio = part["input_audio"]
        file = place(base64.b64decode(audio.pop("data")), SUFFIXES[audio["format"]])
        part["input_audio"] = {"file": file, **audio}


def _fetch(part: JsonObject, base: Path, where: str) -> None:
    """Put the bytes of a file in the place of its path."""
    picture, audio = part.get("image_url"), part.get("input_audio")
    url = picture.get("url") if isinstance(picture, dict) else None
    file = audio.get("file") if isinstance(audio, dict) else None
    if isinstance(url, str) and not url.startswith(ELSEWHERE):
        part["image_url"] = {"url": "data:image/jpeg;base64," + _encoded(base / url, where)}
    elif isinstance(audio, dict) and isinstance(file, str):
        rest = {key: value for key, value in audio.items() if key != "file"}
        part["input_audio"] = {"data": _encoded(base / file, where), **rest}


def _encoded(path: Path, where: str) -> str:
    try:
        if path.exists() and not path.is_file():
            raise LeapSerializationError(f"{path} is not a file", path=where)
        if path.is_file() and path.stat().st_size > LARGEST_MEDIA:
            raise LeapSerializationError(f"{path} has more than {LARGEST_MEDIA:,} bytes", path=where)
        return base64.b64encode(path.read_bytes()).decode("ascii")
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        why = getattr(error, "strerror", None) or error
        raise LeapSerializationError(f"{path} cannot be read: {why}", path=where) from None


def _block(part: ChatMessageContent, message: ChatMessage, link: Place) -> str:
    if isinstance(part, Text):
        return _fenced(part.text) if message.role.value == "tool" else part.text.strip("\n")
    if isinstance(part, Image):
        return f"![picture](<{link(part.data, '.jpg')}>)"
    if isinstance(part, AudioPcmF32):
        return f"[sound](<{link(wav_from_samples(part.samples, part.sample_rate), '.wav')}>)"
    assert isinstance(part, Audio)
    return f"[sound](<{link(part.data, '.wav')}>)"


def _calls(calls: Sequence[LeapFunctionCall]) -> str:
    from .calls.pythonic import write_calls

    return _fenced("\n".join(write_calls([call])[1:-1] for call in calls), "python")


def _fenced(text: str, language: str = "") -> str:
    """A block of code, whatever backticks are in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}"


def _data_uri(data: bytes, suffix: str) -> str:
    kind = {".jpg": "image/jpeg", ".wav": "audio/wav"}[suffix]
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"

"""The pictures and sounds that a line names beside its prompt: files, or their content where the line is answered on
another machine. Such a line has ``{"name": …, "data": …}`` in place of a name: the bytes of the JPEG or WAV in base64.
"""

from __future__ import annotations

from ...json_fields import JsonObject
import base64
import binascii
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ...errors import LeapSerializationError
from ...media.conversion import naming_source
from ...media.fetching import UrlAccess, read_file
from ...messages import Audio, ChatMessageContent, Image


MEDIA_FIELDS: dict[str, type[Image] | type[Audio]] = {"image": Image, "audio": Audio}
"""Fields of a line that name files."""
FILE_URL = "file:"


def take_media(fields: JsonObject, directory: Path, access: UrlAccess = UrlAccess.FILES) -> list[Image | Audio]:
    """Take the fields out, and read what they name, seen from ``directory``. Raises LeapSerializationError, also for
    what ``access`` does not reach."""
    media: list[Image | Audio] = []
    for name, kind in MEDIA_FIELDS.items():
        for file in _files(fields.pop(name, []), name):
            try:
                media.append(_read(file, kind, directory, access))
            except LeapSerializationError as error:
                raise LeapSerializationError(error.message, path=name, hint=error.hint) from None
    return media


def with_content(
    fields: JsonObject, directory: Path, names: Collection[str], access: UrlAccess = UrlAccess.FILES
) -> JsonObject:
    """The line with the content of the files that the fields ``names`` of it name. Raises LeapSerializationError."""
    return fields | {
        name: [_content(file, MEDIA_FIELDS[name], directory, access) for file in _files(fields[name], name)]
        for name in names
        if name in fields
    }


def with_names(fields: JsonObject) -> JsonObject:
    """The line as it was before ``with_content``, as far as that matters to its reader."""
    named = {}
    for name in MEDIA_FIELDS:
        value = fields.get(name)
        if isinstance(value, list) and any(isinstance(file, dict) for file in value):
            names = [file["name"] if isinstance(file, dict) else file for file in value]
            named[name] = names[0] if len(names) == 1 else names
    return fields | named


def messages_with_content(messages: object, access: UrlAccess = UrlAccess.FILES) -> object:
    """Messages as a body has them, with data in place of the ``file:`` URLs of their parts."""
    if not isinstance(messages, list):
        return messages
    return [
        message | {"content": [_part_with_content(part, access) for part in message["content"]]}
        if isinstance(message, dict) and isinstance(message.get("content"), list)
        else message
        for message in messages
    ]


def _part_with_content(part: object, access: UrlAccess) -> object:
    if not isinstance(part, dict) or FILE_URL not in json.dumps(part):
        return part
    return ChatMessageContent.from_json(part, urls=access).to_json()


def mentions_media(raw: bytes) -> bool:
    """Whether a line may name files; cheap."""
    return FILE_URL.encode() in raw or any(json.dumps(name).encode() in raw for name in MEDIA_FIELDS)


def _files(value: object, name: str) -> list[Any]:
    files = [value] if isinstance(value, str) else value
    if not isinstance(files, list) or not all(_is_file(file) for file in files):
        raise LeapSerializationError("expected the name of a file, or a list of them", path=name)
    return files


def _is_file(value: object) -> bool:
    if isinstance(value, dict):
        return set(value) == {"name", "data"} and all(isinstance(part, str) for part in value.values())
    return isinstance(value, str) and bool(value)


def _read(file: str | JsonObject, kind: type[Image] | type[Audio], directory: Path, access: UrlAccess) -> Image | Audio:
    if isinstance(file, str):
        if access is not UrlAccess.FILES:
            raise LeapSerializationError(
                "the names of files are not taken here", hint='send the content: {"name": …, "data": BASE64}'
            )
        data = read_file(directory / file)
        with naming_source(file):
            return kind.from_bytes(data)
    with naming_source(file["name"]):
        try:
            return kind(base64.b64decode(file["data"], validate=True))
        except binascii.Error as error:
            raise LeapSerializationError(f"not base64: {error}") from None


def _content(file: str | JsonObject, kind: type[Image] | type[Audio], directory: Path, access: UrlAccess) -> JsonObject:
    if isinstance(file, dict):
        return file
    return {"name": file, "data": base64.b64encode(_read(file, kind, directory, access).data).decode("ascii")}

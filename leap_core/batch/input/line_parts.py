"""What a line names beside its prompt: documents, images and audio; and prompts with holes."""

from __future__ import annotations

import base64
import binascii
import json
import re
import string
from collections.abc import Collection, Container, Mapping
from pathlib import Path
from typing import Any

from ...conversation.media.audio import naming_source
from ...conversation.media.fetching import UrlAccess, read_file
from ...conversation.messages import Audio, ChatMessageContent, Image, Text
from ...errors import LeapSerializationError
from ...schemas.json_values import JsonObject

DOCUMENT = "file"
Part = Text | Image | Audio
MEDIA_FIELDS: dict[str, type[Part]] = {DOCUMENT: Text, "image": Image, "audio": Audio}
"""Fields of a line that name files."""
FILE_URL = "file:"


def take_media(fields: JsonObject, directory: Path, access: UrlAccess = UrlAccess.FILES) -> list[Part]:
    """Take the fields out, and read what they name, seen from ``directory``. Raises LeapSerializationError, also for
    what ``access`` does not reach."""
    media: list[Part] = []
    for name, kind in MEDIA_FIELDS.items():
        for file in _files(fields.pop(name, []), name):
            try:
                media.append(_read(file, kind, directory, access))
            except LeapSerializationError as error:
                raise LeapSerializationError(error.message, path=name, hint=error.hint) from None
    return media


def of_column(name: str, data: bytes) -> JsonObject:
    """The bytes of a table's column as a line has a file's content. Raises LeapSerializationError for bytes that are no
    picture or sound."""
    kind, source = MEDIA_FIELDS[name], f"the column {name}"
    if not issubclass(kind, Text):
        with naming_source(source):
            data = kind.from_bytes(data).data
    return {"name": source, "data": base64.b64encode(data).decode("ascii")}


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


def _bytes(file: str | JsonObject, directory: Path, access: UrlAccess) -> bytes:
    if isinstance(file, str):
        if access is not UrlAccess.FILES:
            raise LeapSerializationError(
                "the names of files are not taken here", hint='send the content: {"name": …, "data": BASE64}'
            )
        return read_file(directory / file)
    try:
        return base64.b64decode(file["data"], validate=True)
    except binascii.Error as error:
        raise LeapSerializationError(f"{file['name']}: not base64: {error}") from None


def _read(file: str | JsonObject, kind: type[Part], directory: Path, access: UrlAccess) -> Part:
    data, name = _bytes(file, directory, access), file if isinstance(file, str) else file["name"]
    if issubclass(kind, Text):
        from ...documents.blocks import UnreadableDocumentError
        from ...documents.reading import document_text

        try:
            return kind(document_text(data, name).replace("\f", "\n").rstrip() + "\n\n")
        except UnreadableDocumentError as error:
            raise LeapSerializationError(error.message, hint=error.hint) from None
    with naming_source(name):
        return kind.from_bytes(data) if isinstance(file, str) else kind(data)


def _content(file: str | JsonObject, kind: type[Part], directory: Path, access: UrlAccess) -> JsonObject:
    if isinstance(file, dict):
        return file
    part = _read(file, kind, directory, access)
    data = read_file(directory / file) if isinstance(part, Text) else part.data
    return {"name": file, "data": base64.b64encode(data).decode("ascii")}


NAME = re.compile(r"[^\W\d][\w -]*")
"""A column or field is named by words, with spaces and hyphens as headers of tables have them."""


INPUT, PROMPT = "input", "prompt"
"""``{input}`` is a line's own input or, where it has none, its prompt."""


class LineTemplate:
    """A template and the names of its variables. A malformed one raises LeapSerializationError.

    ``defaults``: values of variables that a line does not have, of a saved prompt; such a template may have no
    variable, and a line's input follows it where it has no place for that.
    """

    def __init__(self, text: str, defaults: Mapping[str, str] | None = None) -> None:
        self._defaults = defaults or {}
        self._pieces: list[tuple[str, str | None]] = []
        try:
            for literal, name, specification, conversion in string.Formatter().parse(text):
                if name is not None and (not NAME.fullmatch(name) or specification or conversion):
                    raise ValueError(f"{{{name}}} is not a plain name")
                self._pieces.append((literal, name))
        except ValueError as error:
            raise LeapSerializationError(
                f"{error} in {text!r}", path="template", hint="write {name} for a variable and {{ for a brace"
            ) from None
        self.names = frozenset(name for _, name in self._pieces if name is not None)
        self._is_followed = defaults is not None and INPUT not in self.names
        if not self.names and defaults is None:
            raise LeapSerializationError(
                f"{text!r} has no variable, so every line would ask the same", path="template", hint="write {name}"
            )

    def fill(self, variables: Mapping[str, Any]) -> str:
        """The prompt; values that are no strings are written as JSON. A missing one raises LeapSerializationError."""
        missing = self.missing(variables)
        if missing:
            raise LeapSerializationError(f"the template needs {', '.join(missing)}")
        values = {INPUT: variables.get(PROMPT), **self._defaults, **variables}
        text = "".join(literal + ("" if name is None else _text(values[name])) for literal, name in self._pieces)
        question = _text(values[INPUT]) if self._is_followed and values[INPUT] is not None else ""
        return f"{text}\n\n{question}" if question else text

    def missing(self, names: Container[str]) -> list[str]:
        """The variables that have no value where a line has these names."""
        input_is_there = INPUT in names or PROMPT in names
        missing = [name for name in self.names if name not in names and name not in self._defaults]
        return sorted(name for name in missing if not (name == INPUT and input_is_there))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

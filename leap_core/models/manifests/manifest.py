"""Manifests: the LEAP SDK's JSON beside a model, schema 1.x. Which files belong together, and how to sample.

    {
      "inference_type": "llama.cpp/text-to-text",
      "schema_version": "1.0.0",
      "load_time_parameters": {"model": "../LFM2-350M-Q5_K_M.gguf"},
      "generation_time_parameters": {"sampling_parameters": {"temperature": 0.3, "min_p": 0.15}}
    }

leap adds two keys of its own. ``load_time_parameters.lora_adapters`` lists LoRA adapters that belong to the model, each
a file or ``{"path": file, "scale": number}``. "leap" is a key of the manifests that it writes beside downloaded files:
where they came from, and their sizes and SHA-256. Published manifests: ``leap/<quantization>.json`` in Liquid's GGUF
repositories.
"""

from __future__ import annotations

from ...json_fields import JsonObject
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urljoin, urlsplit

from ...errors import LeapSerializationError
from ...options import SamplingDefaults
from ...storage.atomic_files import replacing
from ..names.file_names import AUDIO_DECODER, AUDIO_TOKENIZER, PROJECTOR
from .manifest_checks import (
    ADAPTERS,
    FILE_KEYS,
    KINDS,
    LOAD_KEYS,
    SAMPLING_KEYS,
    SCHEMA_VERSION,
    TEXT,
    Problem,
    check_manifest,
)

LARGEST_MANIFEST = 4 * 1024**2


@dataclass(frozen=True)
class Manifest:
    """One manifest. The four file fields are file names, paths or URLs as they were written; ``locate`` resolves them.

    ``adapters`` are the LoRA adapters, files as well, each with its scale. ``threads`` is the number of decoding
    threads it recommends. ``record`` is leap's own key, empty in foreign ones.
    """

    model: str
    inference_type: str = TEXT
    multimodal_projector: str | None = None
    audio_decoder: str | None = None
    audio_tokenizer: str | None = None
    adapters: tuple[tuple[str, float], ...] = ()
    chat_template: str | None = None
    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)
    threads: int | None = None
    schema_version: str = SCHEMA_VERSION
    original_url: str | None = None
    path_on_disk: str | None = None
    record: JsonObject = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """text, vision or audio."""
        return KINDS[self.inference_type]

    @property
    def files(self) -> dict[str, str]:
        """The files it names, by their key in load_time_parameters, the model first; adapters by ``adapter_key``."""
        adapters = {adapter_key(n): file for n, (file, _) in enumerate(self.adapters)}
        return {key: value for key in FILE_KEYS if (value := getattr(self, key))} | adapters

    def with_files(self, files: Mapping[str, str]) -> Manifest:
        """A copy that names these files instead."""
        adapters = tuple((files.get(adapter_key(n), file), scale) for n, (file, scale) in enumerate(self.adapters))
        return replace(self, adapters=adapters, **{key: files.get(key) for key in FILE_KEYS})  # type: ignore[arg-type]

    def with_record(self, record: JsonObject, **changes: str) -> Manifest:
        """A copy with leap's own key, and whatever other fields are given."""
        return replace(self, record=record, **changes)  # type: ignore[arg-type]

    def to_json(self) -> JsonObject:
        """The manifest as published ones look; empty parts are left out."""
        sampling = {key: getattr(self.sampling, key) for key in SAMPLING_KEYS}
        load: JsonObject = _given({key: getattr(self, key) for key in LOAD_KEYS if key != ADAPTERS})
        if self.adapters:
            load[ADAPTERS] = [{"path": file, "scale": scale} for file, scale in self.adapters]
        generation = {"sampling_parameters": _given(sampling), "number_of_decoding_threads": self.threads}
        return _given(
            {
                "inference_type": self.inference_type,
                "schema_version": self.schema_version,
                "load_time_parameters": load,
                "generation_time_parameters": _given(generation),
                "original_url": self.original_url,
                "path_on_disk": self.path_on_disk,
                "leap": self.record,
            }
        )

    def dumps(self) -> str:
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n"


def adapter_key(number: int) -> str:
    """The key of an adapter among those of files."""
    return f"{ADAPTERS}_{number}"


def _given(value: JsonObject) -> JsonObject:
    return {key: item for key, item in value.items() if item is not None and item != {} and item != ""}


def read_manifest(path: str | PathLike[str]) -> Manifest:
    """Read a manifest file. Raises LeapSerializationError naming file and key, or OSError."""
    path = Path(path)
    with path.open("rb") as file:
        data = file.read(LARGEST_MANIFEST + 1)
    return parse_manifest(data, str(path))


def is_manifest(path: Path) -> bool:
    """Whether the JSON beside a model is meant as its manifest, sound or not: other programs' files lie there too."""
    if not path.is_file():
        return False
    with suppress(OSError), path.open("rb") as file:
        data = file.read(LARGEST_MANIFEST)
        text = data.decode(json.detect_encoding(data), "replace")
        return any(key in text for key in ("inference_type", "load_time_parameters"))
    return True  # reading it says what is wrong


def write_manifest(manifest: Manifest, path: Path) -> None:
    """Write it atomically: a reader sees the old one or the whole new one, also after a power failure."""
    with replacing(path, unfinished=path.with_name(f".{path.name}.new")) as file:
        file.write(manifest.dumps().encode("utf-8", "backslashreplace"))  # paths that are no text, as JSON has it


def parse_manifest(text: str | bytes, source: str = "manifest") -> Manifest:
    """Read a manifest's text; ``source`` is named in errors. Raises LeapSerializationError for the first problem."""
    value = _load(text, source)
    problems = check_manifest(value)
    for problem in problems:
        if problem.is_error:
            raise LeapSerializationError(problem.message, path=f"{source}: {problem.path}".rstrip(": "))
    load = value["load_time_parameters"]
    generation = value.get("generation_time_parameters") or {}
    sampling = generation.get("sampling_parameters") or {}
    return Manifest(
        model=load["model"],
        inference_type=value["inference_type"],
        multimodal_projector=load.get(PROJECTOR) or None,
        audio_decoder=load.get(AUDIO_DECODER) or None,
        audio_tokenizer=load.get(AUDIO_TOKENIZER) or None,
        adapters=tuple(_adapter(each) for each in load.get(ADAPTERS) or ()),
        chat_template=load.get("chat_template") or None,
        sampling=SamplingDefaults(**{key: sampling.get(key) for key in SAMPLING_KEYS}),
        threads=generation.get("number_of_decoding_threads"),
        schema_version=value["schema_version"],
        original_url=value.get("original_url"),
        path_on_disk=value.get("path_on_disk"),
        record=value.get("leap") or {},
    )


def _adapter(value: Any) -> tuple[str, float]:
    return (value, 1.0) if isinstance(value, str) else (value["path"], float(value.get("scale", 1.0)))


def problems_of(text: str | bytes, source: str) -> list[Problem]:
    """All problems of a manifest's text, JSON that cannot be read included."""
    try:
        return check_manifest(_load(text, source))
    except LeapSerializationError as error:
        return [Problem("", error.message)]


def _load(text: str | bytes, source: str) -> Any:
    if len(text) > LARGEST_MANIFEST:
        raise LeapSerializationError(f"larger than {LARGEST_MANIFEST} bytes, so no manifest", path=source)
    try:
        return json.loads(text)
    except RecursionError:
        raise LeapSerializationError("nested too deeply, so no manifest", path=source) from None
    except ValueError as error:  # JSON that is none, bytes that are no text
        raise LeapSerializationError(f"not JSON: {error}", path=source) from None


def locate(value: str, base: str) -> str:
    """Where a manifest's file is: a URL or an absolute path. ``base`` is the manifest's own URL or absolute path.

    The SDK's rule: a value that starts with ``../`` is the parent of the manifest's directory plus the base name; any
    other relative value is relative to the manifest's directory. Hugging Face ``/blob/`` pages become ``/resolve/``.
    """
    scheme = urlsplit(value).scheme
    if scheme in ("http", "https"):
        return re.sub(r"^(https?://[^/]+/[^/]+/[^/]+)/blob/", r"\1/resolve/", value)
    if scheme == "file":
        return path_of_file_url(value)
    name = value.replace("\\", "/")
    if base.startswith(("http://", "https://")):
        return urljoin(base, f"../{PurePosixPath(name).name}" if name.startswith("../") else name)
    if name.startswith("../"):
        return str(Path(base).parent.parent / PurePosixPath(name).name)
    return str(Path(base).parent / name)


def path_of_file_url(url: str) -> str:
    """The path in ``file:///x`` or ``file://localhost/x``; LeapSerializationError for another machine's file."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost", "127.0.0.1"):
        raise LeapSerializationError(f"{url!r} is a file of another machine ({parts.netloc})")
    from urllib.request import url2pathname  # heavy to import, and rarely needed

    return url2pathname(parts.path)

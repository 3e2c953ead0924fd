"""Manifests: the LEAP SDK's JSON beside a model, schema 1.x: read, written, checked.

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

Knows the shape of the SDK's JSON (schema 1.x); reads no file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, fields, replace
from difflib import get_close_matches
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urljoin, urlsplit

from ..conversation.loading_options import adapters_of
from ..conversation.options import SamplingDefaults
from ..errors import LeapOptionsError, LeapSerializationError
from ..inference.gguf.file_names import AUDIO_DECODER, AUDIO_TOKENIZER, PROJECTOR
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from ..system.files import replacing

TEXT, IMAGE, AUDIO = "llama.cpp/text-to-text", "llama.cpp/image-to-text", "llama.cpp/lfm2-audio-v1"
INFERENCE_TYPES = {"text": TEXT, "vision": IMAGE, "audio": AUDIO}
KINDS = {inference_type: kind for kind, inference_type in INFERENCE_TYPES.items()}
SCHEMA_VERSION = "1.0.0"

TOP_KEYS = ("inference_type", "schema_version", "load_time_parameters", "generation_time_parameters")
OPTIONAL_TOP_KEYS = ("original_url", "path_on_disk", "audio_profile", "leap")
FILE_KEYS = ("model", PROJECTOR, AUDIO_DECODER, AUDIO_TOKENIZER)
ADAPTERS = "lora_adapters"
LOAD_KEYS = (*FILE_KEYS, ADAPTERS, "chat_template")
GENERATION_KEYS = ("sampling_parameters", "number_of_decoding_threads")
SAMPLING_KEYS = tuple(field.name for field in fields(SamplingDefaults))
LIKELY = {
    "mmproj": PROJECTOR,
    "mm_proj": PROJECTOR,
    "mmproj_path": PROJECTOR,
    "projector": PROJECTOR,
    "vocoder": AUDIO_DECODER,
    "decoder": AUDIO_DECODER,
    "tokenizer": AUDIO_TOKENIZER,
    "adapters": ADAPTERS,
    "lora": ADAPTERS,
    "loras": ADAPTERS,
    "model_path": "model",
    "model_file": "model",
    "template": "chat_template",
    "repeat_penalty": "repetition_penalty",
    "rep_penalty": "repetition_penalty",
    "temp": "temperature",
    "threads": "number_of_decoding_threads",
    "number_of_decoder_threads": "number_of_decoding_threads",
    "sampling": "sampling_parameters",
    "version": "schema_version",
    "type": "inference_type",
}
"""What people write, and what the key is called."""


@dataclass(frozen=True)
class Problem:
    """Something about a manifest: an error, or a key that is ignored."""

    path: str
    message: str
    is_error: bool = True

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def check_manifest(value: Any) -> list[Problem]:
    """Everything that is wrong with a manifest, in the order of the document."""
    if not isinstance(value, dict):
        return [Problem("", "expected a JSON object")]
    problems = _check_keys(value, "", TOP_KEYS + OPTIONAL_TOP_KEYS, required=TOP_KEYS[:3])
    problems += _check_version(value) + _check_inference_type(value)
    for key in ("original_url", "path_on_disk"):
        problems += _expect(value, "", key, str, "a string")
    problems += _expect(value, "", "leap", dict, "an object")
    load = value.get("load_time_parameters")
    if isinstance(load, dict):
        problems += _check_keys(load, "load_time_parameters", LOAD_KEYS, required=("model",))
        for key in LOAD_KEYS:
            if key != ADAPTERS:
                problems += _expect(load, "load_time_parameters", key, str, "a string")
        problems += _check_files(load, value.get("inference_type")) + _check_adapters(load)
    elif load is not None:
        problems.append(Problem("load_time_parameters", "expected an object"))
    return problems + _check_generation(value)


def _check_generation(value: JsonObject) -> list[Problem]:
    at = "generation_time_parameters"
    problems = _expect(value, "", at, dict, "an object")
    generation = value.get(at)
    if not isinstance(generation, dict):
        return problems
    problems += _check_keys(generation, at, GENERATION_KEYS)
    problems += _expect(generation, at, "number_of_decoding_threads", int, "a whole number")
    problems += _expect(generation, at, "sampling_parameters", dict, "an object")
    sampling = generation.get("sampling_parameters")
    if not isinstance(sampling, dict):
        return problems
    problems += _check_keys(sampling, f"{at}.sampling_parameters", SAMPLING_KEYS)
    for key in SAMPLING_KEYS:
        try:
            SamplingDefaults(**{key: sampling.get(key)})
        except LeapOptionsError as error:
            problems.append(Problem(f"{at}.sampling_parameters.{key}", error.reason))
    return problems


def _check_version(value: JsonObject) -> list[Problem]:
    version = value.get("schema_version")
    if version is None or (isinstance(version, str) and re.fullmatch(r"1(\.\d+){0,2}", version)):
        return []
    return [Problem("schema_version", f'{version!r} is not supported; leap reads 1.x, such as "{SCHEMA_VERSION}"')]


def _check_inference_type(value: JsonObject) -> list[Problem]:
    kind = value.get("inference_type")
    if kind is None or (isinstance(kind, str) and kind in KINDS):
        return []
    near = get_close_matches(str(kind), KINDS, 1)
    likely = f"; did you mean {near[0]!r}?" if near else f"; it is one of {', '.join(KINDS)}"
    return [Problem("inference_type", f"{kind!r} is not supported{likely}")]


def _check_files(load: JsonObject, inference_type: object) -> list[Problem]:
    problems = []
    if load.get("model") == "":
        problems.append(Problem("load_time_parameters.model", "must name a file"))
    for key in FILE_KEYS:
        file = load.get(key)
        if isinstance(file, str) and file.lower().endswith(".bundle"):
            problems.append(
                Problem(f"load_time_parameters.{key}", f"{file!r} is an ExecuTorch bundle, not a GGUF file")
            )
        try:
            urlsplit(file if isinstance(file, str) else "")
        except ValueError as error:
            problems.append(Problem(f"load_time_parameters.{key}", f"{file!r} is no URL: {error}"))
    if inference_type in (IMAGE, AUDIO) and not load.get(PROJECTOR):
        problems.append(Problem(f"load_time_parameters.{PROJECTOR}", f"is missing, and {inference_type} needs it"))
    if inference_type == AUDIO and not load.get(AUDIO_DECODER):
        message = "is missing: without it the model takes audio but cannot speak"
        problems.append(Problem(f"load_time_parameters.{AUDIO_DECODER}", message, is_error=False))
    return problems


def _check_adapters(load: JsonObject) -> list[Problem]:
    at = f"load_time_parameters.{ADAPTERS}"
    adapters = load.get(ADAPTERS)
    if adapters is None:
        return []
    if not isinstance(adapters, list):
        return [Problem(at, f"expected a list of files, not {json.dumps(adapters)[:40]}")]
    problems = []
    for number, adapter in enumerate(adapters):
        try:
            adapters_of([adapter])
            urlsplit(adapter["path"] if isinstance(adapter, dict) else adapter)
        except LeapOptionsError as error:
            problems.append(Problem(f"{at}[{number}]", error.reason))
        except ValueError as error:
            problems.append(Problem(f"{at}[{number}]", f"is no URL: {error}"))
    return problems


def _check_keys(value: JsonObject, at: str, names: tuple[str, ...], required: tuple[str, ...] = ()) -> list[Problem]:
    problems, corrected = [], set()
    for key in value:
        if key in names:
            continue
        likely = likely_key(key, names)
        path = f"{at}.{key}" if at else key
        if likely is None:
            problems.append(Problem(path, "is not a key that leap knows; it is ignored", is_error=False))
        else:
            corrected.add(likely)
            problems.append(Problem(path, f"there is no such key; did you mean {likely!r}?"))
    for key in required:
        if value.get(key) is None and key not in corrected:
            problems.append(Problem(f"{at}.{key}" if at else key, "is missing"))
    return problems


def likely_key(key: str, names: tuple[str, ...]) -> str | None:
    """The known key that ``key`` probably means."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).replace("-", "_").lower()
    if snake in names:
        return snake
    if LIKELY.get(snake) in names:
        return LIKELY[snake]
    return next(iter(get_close_matches(snake, names, 1, 0.75)), None)


def _expect(value: JsonObject, at: str, key: str, kind: type, what: str) -> list[Problem]:
    item = value.get(key)
    if item is None or (isinstance(item, kind) and not (kind is int and isinstance(item, bool))):
        return []
    return [Problem(f"{at}.{key}" if at else key, f"expected {what}, not {json.dumps(item)[:40]}")]


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

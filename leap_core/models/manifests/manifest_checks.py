"""What is wrong with a manifest: every problem by its key, with the key that was probably meant.

Knows the shape of the SDK's JSON (schema 1.x); reads no file.
"""

from __future__ import annotations

from ...json_fields import JsonObject
import json
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from ...errors import LeapOptionsError
from ...options import SamplingDefaults
from ...options.adapters import adapters_of
from ..names.file_names import AUDIO_DECODER, AUDIO_TOKENIZER, PROJECTOR

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
SAMPLING_KEYS = ("temperature", "top_p", "min_p", "repetition_penalty", "top_k")
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
        message = "is missing: without it the model hears but cannot speak"
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

"""A checkpoint made a model of the store, or a file: converted, quantized where that is asked for, tried."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..errors import LeapError, LeapModelLoadingError
from ..load_check.subject import Subject
from ..load_check.trying import error_of, verdict_on
from ..models.installed.model_store import Store
from ..models.manifests.manifest import Manifest, write_manifest
from ..models.manifests.manifest_checks import INFERENCE_TYPES, SAMPLING_KEYS
from ..models.names.file_names import PROJECTOR
from ..models.names.safe_names import directory_name
from ..options import SamplingDefaults
from ..storage.hashing import hash_file
from .converting import FILE_TYPES, convert_projector, convert_text
from .family import read_family
from .quantize_request import QuantizeRequest, mixture
from .quantizing import Making, Quantized, check_target, making_directory, quantize_to_file, settle


def convert_into_store(
    directory: Path, name: str | None, to: str, store: Store, making: Making, *, replace: bool = False
) -> Quantized:
    """Make ``name`` in the type ``to`` of a checkpoint, its projector included. Raises LeapModelLoadingError for what
    cannot be converted or does not run, LeapError where such a model is, and Stopped; then nothing is left."""
    kind = mixture(to)
    family = read_family(directory)
    name = name or directory.resolve().name
    home = store.root / directory_name(name, kind)
    if store.at(home) is not None and not replace:
        raise LeapError(f"there is a model {home.name} already", hint="choose another with --name, or use --replace")
    with making_directory(store, home, f"convert {home.name}") as unfinished:
        model = unfinished / f"{home.name}.gguf"
        convert_to_file(directory, model, kind, making)
        files = {"model": model.name}
        if family.sees:
            files[PROJECTOR] = f"mmproj-{home.name}.gguf"
            convert_projector(directory, unfinished / files[PROJECTOR], kind if kind in FILE_TYPES else "F16", making)
        require_running(model, making)
        settle(unfinished, home)
        _record(home, name, kind, directory, files)
    before = sum(path.stat().st_size for path in directory.rglob("*.safetensors"))
    return Quantized(
        home / files["model"], home.name, before, sum((home / each).stat().st_size for each in files.values())
    )


def convert_to_files(directory: Path, target: Path, to: str, making: Making, *, replace: bool = False) -> list[Path]:
    """Write a checkpoint as a file and, of one that sees, its projector beside it; their paths. Raises
    LeapOptionsError for files that are there already, and what ``convert_to_file`` raises; then nothing is left."""
    projector = target.with_name(f"mmproj-{target.name}") if read_family(directory).sees else None
    for path in filter(None, (target, projector)):
        check_target(path, directory.iterdir(), replace=replace)
    if projector is None:
        convert_to_file(directory, target, to, making)
        return [target]
    kind = mixture(to)
    unfinished = projector.with_name(f".{projector.name}.unfinished")
    try:
        convert_projector(directory, unfinished, kind if kind in FILE_TYPES else "F16", making)
        convert_to_file(directory, target, to, making)
        unfinished.replace(projector)
    finally:
        unfinished.unlink(missing_ok=True)
    return [target, projector]


def convert_to_file(directory: Path, target: Path, to: str, making: Making) -> None:
    """Write the text model of a checkpoint as ``to``: what is no direct type is quantized from the stored one."""
    kind = mixture(to)
    if kind in FILE_TYPES:
        _whole(directory, target, kind, making)
        return
    between = target.with_name(f".{target.name}.whole")
    try:
        _whole(directory, between, "BF16", making)
        quantize_to_file(between, target, QuantizeRequest(kind), making)
    finally:
        between.unlink(missing_ok=True)


def _whole(directory: Path, target: Path, kind: str, making: Making) -> None:
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        convert_text(directory, unfinished, kind, making)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def require_running(model: Path, making: Making) -> None:
    """Raises LeapModelLoadingError for a file that llama.cpp refuses, or does not survive."""
    verdict = verdict_on(Subject(model), variables=making.variables, stop=making.stop)
    if verdict is not None and not verdict.is_sound:
        error = error_of(Subject(model), verdict)
        raise LeapModelLoadingError(f"what became of the checkpoint does not run: {error.message}")


def _record(home: Path, name: str, kind: str, directory: Path, files: dict[str, str]) -> None:
    origin = directory.absolute().as_uri()
    records = {
        file: {"size": (home / file).stat().st_size, "sha256": hash_file(home / file), "url": origin}
        for file in files.values()
    }
    manifest = Manifest(files["model"], sampling=_sampling(directory)).with_files(files)
    manifest = manifest.with_record(
        {"model": name, "quantization": kind, "source": origin, "origin": origin, "files": records},
        inference_type=INFERENCE_TYPES["vision" if PROJECTOR in files else "text"],
        path_on_disk=str(home / files["model"]),
    )
    write_manifest(manifest, home / f"{home.name}.json")


def _sampling(directory: Path) -> SamplingDefaults:
    """What generation_config.json recommends, as far as it makes sense."""
    sampling = SamplingDefaults()
    with suppress(OSError, ValueError, RecursionError):
        value = json.loads((directory / "generation_config.json").read_bytes())
        for key in SAMPLING_KEYS:
            if isinstance(value, dict) and isinstance(value.get(key), (int, float)):
                with suppress(LeapError):
                    sampling = replace(sampling, **{key: value[key]})
    return sampling

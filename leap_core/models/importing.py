"""Models from elsewhere put into the store: files of this machine under a name, with a manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ..errors import LeapError, LeapModelLoadingError
from ..inference.gguf.file_names import AUDIO_DECODER, AUDIO_TOKENIZER, PROJECTOR, directory_name, name_of, parts_of
from ..inference.gguf.header import read_gguf_header
from ..inference.trial.trial_child import CRASH, HANG, Subject
from ..inference.trial.verdicts import error_of, problem_after_fetching, verdict_on
from ..system.files import hash_file, place
from .manifest import INFERENCE_TYPES, Manifest, adapter_key, read_manifest, write_manifest
from .resolving import LocalModel, resolve_local
from .store import InstalledModel, Store


def import_model(
    path: Path,
    store: Store,
    *,
    name: str | None = None,
    quantization: str | None = None,
    mode: str = "auto",
    force: bool = False,
    variables: Mapping[str, str] | None = None,
    on_notice: Callable[[str], object] | None = None,
) -> tuple[InstalledModel, str]:
    """Put a GGUF file, a manifest's files or a directory's into the store as ``<name>-<quantization>``; the installed
    model, and how it was done: "hard link", "reflink" (neither takes space) or "copy".

    Name and quantization come from the file's name, the quantization else from its header. Raises
    LeapModelNotFoundError or LeapModelLoadingError for what is no model, or ends llama.cpp, and LeapError where one of
    that name is. ``on_notice`` is called with what else is wrong with it.
    """
    model_file = resolve_local(str(path.absolute()), variables=variables)
    header = read_gguf_header(model_file.path)
    if header.is_projector:
        raise LeapModelLoadingError(f"{path} is a projector, a model's companion", hint="import the model beside it")
    by_name = name_of(model_file.path.name)
    model = name or by_name.model or header.name or model_file.path.stem
    quantization = (quantization or by_name.quantization or header.quantization).upper()
    directory = store.root / directory_name(model, quantization)
    files = files_of(model_file)
    if any(directory in source.parents for _, source in files):
        raise LeapError(f"{model_file.path} lies in {directory} already")
    there = store.find(directory.name)
    if there is not None and not force:
        raise LeapError(f"there is a model {there.name} already", hint="choose another with --name, or use --replace")
    verdict = verdict_on(Subject(model_file.path), variables=variables)
    if verdict is not None and verdict.outcome in (CRASH, HANG):
        raise error_of(Subject(model_file.path), verdict)
    problem = problem_after_fetching(model_file.path, variables=variables)
    if problem is not None and on_notice is not None:
        on_notice(problem)
    directory.mkdir(parents=True, exist_ok=True)
    how = mode
    with store.writing(directory, f"import {directory.name}"):
        for _, source in files:
            how = place(source.resolve(), directory / source.name, mode=mode)
        record_files(directory, model, quantization, model_file, files)
    installed = store.at(directory)
    assert installed is not None
    return installed, how


def files_of(model: LocalModel) -> list[tuple[str, Path]]:
    """A local model's files by role, all parts of a split one included."""
    companions = {
        PROJECTOR: model.mm_proj_path,
        AUDIO_DECODER: model.audio_decoder_path,
        AUDIO_TOKENIZER: model.audio_tokenizer_path,
    }
    files = [("model", model.path), *((role, path) for role, path in companions.items() if path is not None)]
    files += [(adapter_key(n), adapter.path) for n, adapter in enumerate(model.adapters)]
    beside = [path.name for path in model.path.parent.iterdir()]
    return files + [("part", model.path.parent / part) for part in parts_of(model.path.name, beside)[1:]]


def record_files(
    directory: Path, model: str, quantization: str, model_file: LocalModel, files: list[tuple[str, Path]]
) -> None:
    """Write the manifest of a model of the store: ``files`` by role, as they are called in ``directory``, of which
    those of ``model_file`` came."""
    origin = model_file.path.as_uri()
    base = read_manifest(model_file.manifest_path) if model_file.manifest_path else Manifest(model_file.path.name)
    hashes = {
        source.name: {
            "size": source.stat().st_size,
            "sha256": hash_file(directory / source.name),
            "url": source.as_uri(),
        }
        for _, source in files
    }
    manifest = base.with_files({role: source.name for role, source in files if role != "part"})
    manifest = manifest.with_record(
        {"model": model, "quantization": quantization, "source": origin, "origin": origin, "files": hashes},
        inference_type=INFERENCE_TYPES[model_file.kind],
        path_on_disk=str(directory / files[0][1].name),
    )
    write_manifest(manifest, directory / f"{directory.name}.json")

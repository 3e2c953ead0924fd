"""Turns what a program asks for into jobs: generations, downloads and batches as rows that can be queued.

A job is checked before it is queued, and means the same in any directory: its paths are absolute, its input is kept.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leap_core.errors import LeapSerializationError
from leap_core.messages import ChatMessage, ChatMessageRole
from leap_core.options import GenerationOptions, ModelLoadingOptions
from leap_core.storage.directories import private_directory

from ..configuration import JobsConfiguration
from ..table.job import BATCH, DOWNLOAD, GENERATE, JsonObject
from ..table.table import NewJob
from .variables import DOWNLOAD_VARIABLES, MODEL_VARIABLES, submitted_variables

if TYPE_CHECKING:
    from leap_core.batch.settings import BatchSettings
    from leap_core.functions import LeapFunction

BUILTIN = "builtin"
LABEL_CHARACTERS = 48


def generation_job(
    prompt: str | Sequence[ChatMessage],
    configuration: JobsConfiguration,
    variables: Mapping[str, str],
    *,
    model: str = BUILTIN,
    system: str | None = None,
    options: GenerationOptions | None = None,
    functions: Sequence[LeapFunction] = (),
    loading: Mapping[str, Any] | None = None,
    host: bool = True,
    cwd: Path | None = None,
    speech: Path | None = None,
) -> NewJob:
    """A job that answers a prompt, or a conversation. ``loading``: fields of ModelLoadingOptions. ``host``: use the
    warm model where there is one. ``speech``: the file for what the model says aloud, relative to ``cwd``; it is
    written whole or not at all. Raises LeapModelNotFoundError when this machine has no such model."""
    from leap_core.models.references.resolving import resolve_local

    cwd = cwd or Path.cwd()
    resolve_local(model, variables=variables, cwd=cwd)
    slots = configuration.concurrency[GENERATE]
    settings = {"slots": slots, **{name: value for name, value in (loading or {}).items() if value is not None}}
    ModelLoadingOptions(**settings)
    messages = [ChatMessage(ChatMessageRole.USER, prompt)] if isinstance(prompt, str) else list(prompt)
    if system is not None:
        messages.insert(0, ChatMessage(ChatMessageRole.SYSTEM, system))
    parameters: JsonObject = {
        "label": _label(messages[-1].text if messages else ""),
        "model": _absolute_reference(model, variables, cwd),
        "messages": [message.to_json() for message in messages],
        "options": (options or GenerationOptions()).to_json(),
        "tools": [function.to_json_object() for function in functions],
        "loading": settings,
        "variables": submitted_variables(variables, MODEL_VARIABLES),
        "host": host,
    }
    if speech is not None:
        parameters["speech"] = os.path.abspath(cwd / speech)
    return NewJob(GENERATE, parameters)


def transcription_job(
    data: bytes,
    configuration: JobsConfiguration,
    variables: Mapping[str, str],
    *,
    name: str,
    model: str = BUILTIN,
    prompt: str,
    longest: float,
    max_tokens: int,
    format: str,
    output: str | None = None,
    loading: Mapping[str, Any] | None = None,
    host: bool = True,
    cwd: Path | None = None,
) -> NewJob:
    """A generation that writes down what is said in a sound of any format, which is kept until the job is removed.
    ``output``: the file for the transcript; it is in the job's result in any case. For the rest see
    ``leap_core.transcription``. Raises LeapSerializationError for what is no sound."""
    from leap_core.media.audio import as_wav
    from leap_core.media.conversion import naming_source
    from leap_core.models.references.resolving import resolve_local

    cwd = cwd or Path.cwd()
    resolve_local(model, variables=variables, cwd=cwd)
    slots = configuration.concurrency[GENERATE]
    settings = {"slots": slots, **{key: value for key, value in (loading or {}).items() if value is not None}}
    ModelLoadingOptions(**settings)
    with naming_source(name):
        wav = as_wav(data).data
    parameters: JsonObject = {
        "label": _label(name),
        "model": _absolute_reference(model, variables, cwd),
        "messages": [],
        "transcription": {
            "prompt": prompt,
            "longest": longest,
            "max_tokens": max_tokens,
            "format": format,
            "output": output,
        },
        "kept": _keep([wav], configuration.inputs, ".wav"),
        "loading": settings,
        "variables": submitted_variables(variables, MODEL_VARIABLES),
        "host": host,
    }
    return NewJob(GENERATE, parameters)


def download_job(
    model: str,
    variables: Mapping[str, str],
    *,
    quantization: str | None = None,
    revision: str | None = None,
    options: Mapping[str, Any] | None = None,
    cwd: Path | None = None,
) -> NewJob:
    """A job that downloads a model. ``options``: fields of DownloadOptions."""
    parameters: JsonObject = {
        "label": f"{model}:{quantization}" if quantization else model,
        "model": model,
        "quantization": quantization,
        "revision": revision,
        "options": dict(options or {}),
        "cwd": str(cwd or Path.cwd()),
        "variables": submitted_variables(variables, DOWNLOAD_VARIABLES),
    }
    return NewJob(DOWNLOAD, parameters)


def batch_job(
    settings: BatchSettings,
    configuration: JobsConfiguration,
    variables: Mapping[str, str],
    *,
    rows: Iterable[bytes] | None = None,
    default_model: str | None = None,
    host: bool = True,
    cwd: Path | None = None,
    label: str | None = None,
) -> NewJob:
    """A job that answers the lines of a file, or ``rows``. All lines are checked now, and those of a pipe are kept
    until the job is removed; so is an output that has no name."""
    from leap_core.batch.checking import check_batch
    from leap_core.batch.settings import KEPT

    cwd = cwd or Path.cwd()
    name = Path(settings.source).name if rows is None else "standard input"
    kept = kept_output = None
    if settings.output == KEPT:
        kept_output = _keep((), configuration.inputs, ".out")
        settings = replace(settings, output=kept_output)
    settings = settings.from_anywhere(cwd)
    if rows is not None or not Path(settings.source).is_file():  # a pipe can be read once, and not by the worker
        kept = _keep(_rows_of(settings.source) if rows is None else rows, configuration.inputs, ".jsonl")
        settings = replace(settings, source=kept)
    try:
        with check_batch(settings, default_model=default_model, variables=variables, cwd=cwd) as checked:
            model, digest, embeds = checked.model, checked.input_digest, checked.embeds
    except BaseException:
        for file in filter(None, (kept, kept_output)):
            os.unlink(file)
        raise
    parameters: JsonObject = {
        "label": _label(label) if label is not None else f"{name} -> {Path(settings.output).name}",
        "cwd": str(cwd),
        "variables": submitted_variables(variables, MODEL_VARIABLES),
        "host": host,
    }
    if kept is not None:
        parameters["kept"] = kept
    if kept_output is not None:
        parameters["kept_output"] = kept_output
    if embeds:
        parameters["embeds"] = True
    settings = replace(settings, model=_absolute_reference(model, variables, cwd), input_digest=digest)
    parameters["batch"] = settings.to_json()
    return NewJob(BATCH, parameters)


def discard_input(parameters: Mapping[str, Any]) -> None:
    """Remove the lines that were kept for a job, and its results where they were kept with it."""
    if "kept" in parameters:
        Path(parameters["kept"]).unlink(missing_ok=True)
    if "kept_output" in parameters:
        from leap_core.batch.journal import journal_path

        output = Path(parameters["kept_output"])
        for path in (output, journal_path(output)):
            path.unlink(missing_ok=True)


def _rows_of(path: str) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            yield from file
    except OSError as error:
        raise LeapSerializationError(f"cannot read {path}: {error.strerror}") from None


def _keep(pieces: Iterable[bytes], directory: Path, suffix: str) -> str:
    """Write what a job works on to a file that outlives where it came from; its path."""
    with tempfile.NamedTemporaryFile("wb", dir=private_directory(directory), suffix=suffix, delete=False) as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
    return file.name


def _absolute_reference(model: str, variables: Mapping[str, str], cwd: Path) -> str:
    """A model reference that means the same in any directory."""
    from leap_core.models.references.resolving import path_of

    path = path_of(model, variables=variables, cwd=cwd)
    return model if path is None else str(path.absolute())


def _label(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= LABEL_CHARACTERS else words[: LABEL_CHARACTERS - 1] + "…"

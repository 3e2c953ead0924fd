"""What a row of a table that others write to may have a worker touch: nothing but what a job of its kind may name below
the worker's own directories. Pictures and sound come with the row, the model is named by its SHA-256, and the variables
are the worker's own."""

from __future__ import annotations

from leap_core.json_fields import JsonObject
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from leap_core.errors import LeapError, LeapJobError

from ..configuration import JobsConfiguration
from ..table.job import DOWNLOAD, GENERATE, SHARD, Job

FILES_OF_LOADING = (
    "mm_proj_path",
    "audio_decoder_path",
    "audio_tokenizer_path",
    "adapters",
    "cache_options",
    "extras",
)
"""Fields of ModelLoadingOptions that name files, or hold options which may."""
GENERATION = ("label", "model", "messages", "options", "tools", "loading", "host", "embeds", "transcription", "kept")
FIELDS = {
    GENERATE: GENERATION,
    DOWNLOAD: ("label", "model", "quantization", "revision", "options"),
    SHARD: ("label", "model", "loading", "host", "embeds", "batch", "columns", "first", "last", "count", "shard"),
}
"""The parameters that are read of the row of a job on a server, by kind."""


def confined(job: Job, configuration: JobsConfiguration) -> Job:
    """The job as this worker may do it. Raises LeapJobError that says what its row may not name."""
    if not configuration.is_shared:
        return job
    refuse_files(job.parameters)
    parameters: JsonObject = {name: job.parameters[name] for name in FIELDS[job.kind] if name in job.parameters}
    parameters["variables"] = {}
    if job.kind == DOWNLOAD:
        parameters["cwd"] = str(configuration.directories.data)
    if "kept" in parameters and not configuration.keeps(Path(str(parameters["kept"]))):
        raise _forbidden("the file", parameters["kept"])
    if "batch" in parameters:
        parameters["batch"] = _confined_batch(parameters["batch"])
    if job.kind == DOWNLOAD or job.model is None:
        _check_model(str(parameters.get("model")), configuration)
    return replace(job, parameters=parameters)


def refuse_files(parameters: Mapping[str, Any]) -> None:
    """Raises LeapJobError for parameters of a job on a server that name a file of one machine."""
    transcription = parameters.get("transcription")
    if parameters.get("speech") is not None or (isinstance(transcription, dict) and transcription.get("output")):
        raise LeapJobError(
            "a job on a server cannot write a file of this machine",
            hint="leave out --background, or the file: leap jobs output prints a transcript",
        )
    batch = parameters.get("batch")
    loading = [parameters.get("loading"), batch.get("loading") if isinstance(batch, dict) else None]
    for name in FILES_OF_LOADING:
        if any(isinstance(each, dict) and each.get(name) for each in loading):
            raise LeapJobError(f"a job on a server cannot name files: {name}", hint="leave it out, or --background")


def _confined_batch(batch: Mapping[str, Any]) -> JsonObject:
    from leap_core.media.fetching import UrlAccess

    nowhere = {"source": "-", "output": "-", "journal": None, "errors": None, "speech": None, "directory": ""}
    return {**batch, **nowhere, "urls": int(UrlAccess.DATA), "own_clients": False}


def _check_model(reference: str, configuration: JobsConfiguration) -> None:
    """Refuse a path that leads out of the directory of models."""
    from leap_core.models.references.endpoints import find_endpoint
    from leap_core.models.references.resolving import path_of

    data = configuration.directories.data
    path = None
    with suppress(LeapError):  # an unknown name: the attempt says so
        path = path_of(reference, variables=os.environ, cwd=data)
        endpoint = find_endpoint(reference, configuration.directories)
        if endpoint is not None and endpoint.name is None:  # a row may not send this worker anywhere
            raise _forbidden("the endpoint", reference)
    if path is not None and not path.resolve().is_relative_to(configuration.directories.models.resolve()):
        raise _forbidden("the model", reference)


def _forbidden(what: str, name: object) -> LeapJobError:
    return LeapJobError(
        f"the row of the job names {what} {str(name)!r}, which is none of this worker's",
        hint="somebody else may have written to the table",
    )

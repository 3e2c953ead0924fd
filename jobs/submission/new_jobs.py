"""What a program asks of the job queue, as rows of the table: an answer, a transcript, a download, a batch.

A job is checked before it is queued, and means the same in any directory: its paths are absolute, its input is kept.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urlsplit

from leap_core.conversation.options import ModelLoadingOptions
from leap_core.errors import LeapJobError, LeapSerializationError
from leap_core.schemas.json_values import JsonObject
from leap_core.system.addresses import shown
from leap_core.system.dataclass import dataclass
from leap_core.system.directories import OF_OTHER_PROGRAMS, private_directory

from ..configuration import JobsConfiguration
from ..table.job import BATCH, COMMAND, DOWNLOAD, FOLDER, FUNCTION, GENERATE, TRANSCRIBE, WEBHOOK, NewJob
from ..table.requests import (
    DOWNLOAD_VARIABLES,
    MODEL_VARIABLES,
    PLACE,
    AnswerRequest,
    BatchRequest,
    CommandRequest,
    DownloadRequest,
    FolderRequest,
    FunctionRequest,
    MessageRequest,
    ModelRequest,
    TranscriptRequest,
)


@dataclass(frozen=True)
class Submitter:
    """Who asks: the data directory's settings, and the environment in which references are read."""

    configuration: JobsConfiguration
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Following:
    """What is done when a job has ended. ``command``: for the shell, in ``cwd``. ``notify``: a note on the desktop.
    ``webhook``: an address that gets a message; ``webhook_data``: with the job's label and result in it."""

    command: str | None = None
    notify: bool = False
    webhook: str | None = None
    webhook_data: bool = False
    cwd: Path = field(default_factory=Path.cwd)


COMMAND_VARIABLES = (
    *("PATH", "LANG", "LC_ALL", "DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"),
    *("LEAP_HOME", "HOME"),
)
"""What commands after a job find as its submitter had it."""
MESSAGE_PAUSES = tuple(map(float, (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)))
"""Seconds between the ten times that a message is sent: the table of the Standard Webhooks specification."""
SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
"""How the names of variables end that are never written down."""


def _variables_among(submitter: Submitter, names: Container[str]) -> dict[str, str]:
    return {name: value for name, value in submitter.variables.items() if name in names}


def variables_of_command(submitter: Submitter) -> dict[str, str]:
    """What leap finds as its submitter had it when a job runs it: leap's own variables, too, but no secrets."""
    own = {name for name in submitter.variables if name.startswith("LEAP_") and not name.endswith(SECRETS)}
    submitted = submitted_variables(submitter.variables, MODEL_VARIABLES)
    return {**_variables_among(submitter, {*COMMAND_VARIABLES, *own}), **submitted}


def followers(following: Following, submitter: Submitter) -> tuple[NewJob, ...]:
    """The jobs that notify of the end of another. Raises LeapJobError on a server, where a row that others wrote runs
    nothing on this machine, and LeapSerializationError for an address that is none."""
    if submitter.configuration.is_shared:
        raise LeapJobError("nothing follows a job on a server", hint="leap jobs wait JOB && COMMAND does the same here")
    jobs = []
    for do, label, wanted in (
        ("then", f"then: {following.command}", following.command is not None),
        ("notify", "notify", following.notify),
    ):
        if wanted:
            command = following.command if do == "then" else None
            variables, cwd = _variables_among(submitter, COMMAND_VARIABLES), following.cwd.absolute()
            asked = CommandRequest(label=_label(label), do=do, command=command, cwd=cwd, variables=variables)
            jobs.append(NewJob(COMMAND, asked.to_json(), retries=0))
    if following.webhook is not None:
        try:
            address = urlsplit(following.webhook)
            is_address = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
        except ValueError:  # of a wrong IPv6 address, or a port that is no number
            is_address = False
        if not is_address:
            raise LeapSerializationError(f"{shown(following.webhook)} is no http or https address", path="webhook")
        label = _label(f"webhook: {address.hostname}")
        message = MessageRequest(following.webhook, following.webhook_data, label=label)
        jobs.append(NewJob(WEBHOOK, message.to_json(), retries=len(MESSAGE_PAUSES)))
    return tuple(jobs)


def folder_job(
    directory: Path,
    patterns: Sequence[str],
    arguments: Sequence[str],
    cwd: Path,
    submitter: Submitter,
    outputs: Sequence[int] = (),
) -> NewJob:
    """A job that has leap run with these arguments for each new file of a directory whose name fits one of the
    patterns, or all without any. ``outputs``: which of the arguments name a file that is written, as ``--output=NAME``.
    Raises LeapJobError on a server, where there is no such directory, and for an output that all files would share."""
    if submitter.configuration.is_shared:
        raise LeapJobError("a job on a server watches no folder of this machine")
    place = (cwd / directory).absolute()
    if not place.is_dir():
        raise LeapJobError(f"there is no directory {place}")
    for each in (arguments[n] for n in outputs):
        if PLACE.search(each) is None:
            raise LeapJobError(
                f"all files would be written to {each.partition('=')[2]}",
                hint="{name} or {stem} in its name makes it one for each file",
            )
    asked = FolderRequest(
        label=_label(f"{place.name}: {' '.join(arguments)}"),
        directory=str(place),
        patterns=list(patterns) or ["*"],
        arguments=list(arguments),
        outputs=list(outputs),
        cwd=cwd.absolute(),
        variables=variables_of_command(submitter),
    )
    return NewJob(FOLDER, asked.to_json())


def command_job(
    arguments: Sequence[str],
    label: str,
    cwd: Path,
    submitter: Submitter,
    outputs: Sequence[int] = (),
    standard_input: bytes | None = None,
) -> NewJob:
    """A job that runs leap with these arguments. ``outputs``: which of them name a file that is written. Raises
    LeapJobError on a server."""
    if submitter.configuration.is_shared:
        raise LeapJobError("a job on a server runs no command of this machine")
    kept = None if standard_input is None else _keep([standard_input], submitter.configuration.inputs, ".in")
    asked = CommandRequest(
        label=_label(label),
        arguments=list(arguments),
        outputs=list(outputs),
        cwd=cwd.absolute(),
        variables=variables_of_command(submitter),
        kept=kept,
    )
    return NewJob(COMMAND, asked.to_json(), retries=0)


def submitted_variables(variables: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Those of ``names`` that are set, with absolute paths."""
    values = {name: variables[name] for name in names if variables.get(name)}
    return {name: _absolute(value) if name in OF_OTHER_PROGRAMS else _open(value) for name, value in values.items()}


def _open(address: str) -> str:
    """An address without its user and password; a worker that needs them has them in its own environment."""
    scheme, slashes, rest = address.partition("//")
    server, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{server.rpartition('@')[2]}{slash}{path}"


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


LABEL_CHARACTERS = 500
KEPT_FILES = ("kept", "kept_output")
"""Parameters that name files which live as long as their job."""


def generation_job(request: AnswerRequest, submitter: Submitter) -> NewJob:
    """A job that answers a prompt, or a conversation. Raises LeapModelNotFoundError when this machine has no such
    model."""
    messages = request.request.messages
    request = replace(request, label=_label(messages[-1].text if messages else ""))
    for name in ("speech", "output"):
        if getattr(request, name) is not None:
            request = replace(request, **{name: os.path.abspath(request.cwd / getattr(request, name))})
    return NewJob(GENERATE, _anywhere(request, submitter, GENERATE).to_json())


def transcription_job(request: TranscriptRequest, data: bytes, submitter: Submitter) -> NewJob:
    """A job that writes down what is said in a sound of any format. Raises LeapSerializationError for what is none."""
    from leap_core.conversation.media.audio import as_wav, naming_source

    asked = _anywhere(request, submitter, TRANSCRIBE)
    with naming_source(request.label):
        wav = as_wav(data).data
    kept = _keep([wav], submitter.configuration.inputs, ".wav")
    return NewJob(TRANSCRIBE, replace(asked, label=_label(request.label), kept=kept).to_json())


OfModel = TypeVar("OfModel", bound=ModelRequest)


def _anywhere(request: OfModel, submitter: Submitter, kind: str) -> OfModel:
    """The request with its model found, and loaded in the same way in any directory."""
    from leap_core.models.resolving import Registry

    registry = Registry(submitter.variables, request.cwd)
    (registry.can_answer if request.model_may_come else registry.find)(request.model)
    loading = {name: value for name, value in request.loading.items() if value is not None}
    loading = {"slots": submitter.configuration.concurrency[kind], **_engine_of(submitter), **loading}
    ModelLoadingOptions(**loading)
    model = _absolute_reference(request.model, submitter.variables, request.cwd)
    variables = submitted_variables(submitter.variables, MODEL_VARIABLES)
    return replace(request, model=model, loading=loading, variables=variables)


def _engine_of(submitter: Submitter) -> dict[str, str]:
    """The engine that the submitter's environment names, for a worker may have another one. On a server it is the
    worker's."""
    engine = submitter.variables.get("LEAP_ENGINE")
    return {"engine": engine} if engine and not submitter.configuration.is_shared else {}


def download_job(request: DownloadRequest, variables: Mapping[str, str]) -> NewJob:
    """A job that downloads a model."""
    label = f"{request.model}:{request.quantization}" if request.quantization else request.model
    variables = submitted_variables(variables, DOWNLOAD_VARIABLES)
    return NewJob(DOWNLOAD, replace(request, label=label, variables=variables).to_json())


def function_job(function: str, arguments: JsonObject, label: str, submitter: Submitter) -> NewJob:
    """A job that calls a function of a feature or a plugin. Raises LeapJobError where jobs may run on another
    machine."""
    if submitter.configuration.is_shared:
        raise LeapJobError(
            f"a job on a server cannot {function}: its results stay on one machine", hint="leave out --background"
        )
    variables = submitted_variables(submitter.variables, MODEL_VARIABLES)
    return NewJob(FUNCTION, FunctionRequest(function, arguments, variables=variables, label=_label(label)).to_json())


def batch_job(request: BatchRequest, submitter: Submitter) -> NewJob:
    """A job that answers the lines of a file, or of a pipe. All lines are checked now, and those of a pipe are kept
    until the job is removed; so is an output that has no name."""
    from leap_core.batch.checking import check_batch
    from leap_core.batch.input.remote_files import is_url, name_in
    from leap_core.batch.settings import KEPT

    settings, rows, cwd, variables = request.settings, request.rows, request.cwd, submitter.variables
    inputs, kept, kept_output = submitter.configuration.inputs, None, None
    if settings.output.path == KEPT:
        kept_output = _keep((), inputs, ".out")
        settings = replace(settings, output=replace(settings.output, path=kept_output))
    settings = settings.from_anywhere(cwd)
    settings = replace(settings, loading={**_engine_of(submitter), **settings.loading})
    name = batch_label(request, settings.output.path)
    if rows is not None or not Path(settings.input.source).is_file():  # a pipe can be read once, and not by the worker
        far = rows is None and is_url(settings.input.source)
        suffix = "".join(PurePosixPath(name_in(settings.input.source)).suffixes[-2:]) if far else ".jsonl"
        kept = _keep(_rows_of(settings.input.source) if rows is None else rows, inputs, suffix or ".jsonl")
        settings = replace(settings, input=replace(settings.input, source=kept))
    try:
        with check_batch(
            settings,
            default_model=request.default_model,
            variables=variables,
            cwd=cwd,
            model_may_come=request.model_may_come,
        ) as checked:
            model, digest, embeds = checked.model, checked.input_digest, checked.embeds
    except BaseException:
        for file in filter(None, (kept, kept_output)):
            os.unlink(file)
        raise
    reference = _absolute_reference(model, variables, cwd)
    asked = replace(
        request,
        label=name,
        settings=replace(settings, model=reference, input=replace(settings.input, input_digest=digest)),
        variables=submitted_variables(variables, MODEL_VARIABLES),
        model=reference,
        embeds=embeds,
        kept=kept,
        kept_output=kept_output,
    )
    return NewJob(BATCH, asked.to_json())


def batch_label(request: BatchRequest, output: str) -> str:
    """What lists of jobs say of a batch."""
    source = "standard input" if request.rows is not None else Path(shown(request.settings.input.source)).name
    return _label(request.label or f"{source} -> {Path(shown(output)).name}")


def discard_input(parameters: Mapping[str, Any], configuration: JobsConfiguration) -> None:
    """Remove the lines that were kept for a job, and its results where they were kept with it; nothing outside the
    directory for that, whatever the row says."""
    from leap_core.batch.journal.journal import journal_path

    for name in KEPT_FILES:
        path = Path(str(parameters.get(name, "")))
        if configuration.keeps(path):
            path.unlink(missing_ok=True)
            journal_path(path).unlink(missing_ok=True)


def _rows_of(path: str) -> Iterator[bytes]:
    """The lines of a pipe that has a name, or of a file on another machine."""
    from leap_core.batch.input.remote_files import fetched, is_url

    try:
        with fetched(path) if is_url(path) else open(path, "rb") as file:
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
    from leap_core.models.resolving import Registry

    path = Registry(variables, cwd).path_of(model)
    return model if path is None else str(path.absolute())


def _label(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= LABEL_CHARACTERS else words[: LABEL_CHARACTERS - 1] + "…"

"""What each kind of job is asked for: a class a kind, which writes and reads the parameters of its row."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, asdict, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from leap_core.conversation.answer_forms import AnswerForm
from leap_core.conversation.request import Request
from leap_core.errors import LeapJobError
from leap_core.schemas.json_values import JsonObject
from leap_core.system.dataclass import dataclass
from leap_core.system.directories import OF_OTHER_PROGRAMS

from . import job as kinds
from .job import Job, NewJob

if TYPE_CHECKING:
    from leap_core.batch.settings import BatchSettings

BUILTIN = "builtin"
MODEL_VARIABLES = (*OF_OTHER_PROGRAMS, "LEAP_OTHER_PROGRAMS", "HF_ENDPOINT", "RAY_ADDRESS")
"""They say where models of other programs lie, whose names they have, and which cluster is the usual one."""
DOWNLOAD_VARIABLES = (*MODEL_VARIABLES, "HF_HUB_OFFLINE")
"""A token is never written down, nor a password in an address."""
PLACE = re.compile(r"\{(?:|name|stem)\}")
"""Placeholders for a file of a folder: its path, its name, or its name without the ending."""


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """What a job is asked for. Its fields are the parameters of its row. ``label``: what lists of jobs say.
    ``variables``: those of the environment that matter. ``cwd``: where names of files begin. ``kept``, ``kept_output``:
    files that live as long as the job: what came from a pipe, and results that have no other place."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    NOT_KEPT: ClassVar[tuple[str, ...]] = ()
    """Fields that matter only until a job is submitted, or are written in another way."""

    label: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = field(default_factory=Path.cwd)
    kept: str | None = None
    kept_output: str | None = None

    def to_json(self) -> JsonObject:
        """The parameters."""
        given = {name: value for name, value in vars(self).items() if name not in self.NOT_KEPT}
        given |= {"cwd": str(self.cwd)} if "cwd" in given else {}
        return {name: value for name, value in given.items() if value not in (None, ())}

    @classmethod
    def of(cls: type[Asked], parameters: Mapping[str, Any]) -> Asked:
        """What a job with these parameters is asked for. Raises what MALFORMED lists, or a LeapError."""
        given = {each.name: parameters[each.name] for each in fields(cls) if each.name in parameters}
        return cls(**given | ({"cwd": Path(given["cwd"])} if "cwd" in given else {}))

    def environment(self) -> dict[str, str]:
        """This process's environment, overridden by what the job took along: of its variables only those that jobs
        take."""
        own = {name: value for name, value in os.environ.items() if name not in DOWNLOAD_VARIABLES}
        return {**own, **{name: str(value) for name, value in self.variables.items() if name in DOWNLOAD_VARIABLES}}

    @classmethod
    def repeatable(cls, parameters: JsonObject) -> JsonObject:
        """The parameters of a job that comes again and again. Raises LeapJobError for one that cannot."""
        if "kept" in parameters or "kept_output" in parameters:
            raise LeapJobError("only what reads files and writes to one can be repeated, no pipe and no kept output")
        return parameters

    @classmethod
    def dated(cls, parameters: JsonObject, due: float) -> JsonObject:
        """The parameters of the run that is due then: ``%``-codes in the names of files that are written say when."""
        return parameters


Asked = TypeVar("Asked", bound=JobRequest)


@dataclass(frozen=True, kw_only=True)
class ModelRequest(JobRequest):
    """What a model is asked for. ``loading``: fields of ModelLoadingOptions. ``host``: use the warm model where there
    is one."""

    NOT_KEPT: ClassVar[tuple[str, ...]] = ("request", "cwd", "model_may_come")

    model: str = BUILTIN
    loading: Mapping[str, Any] = field(default_factory=dict)
    host: bool = True
    model_may_come: bool = False
    """Whether the model need not be here yet, because the job comes after another one."""


@dataclass(frozen=True, kw_only=True)
class AnswerRequest(ModelRequest):
    """Answers to a conversation. ``speech``: the file for what the model says aloud; it is written whole or not at
    all. ``output``: a file for the answers, in this ``format``; they are in the job's result in any case. ``logged``:
    what is in the job's log besides, ``reasoning`` and ``stats``."""

    NOT_KEPT = ("request", "form", "cwd", "model_may_come")

    request: Request
    speech: str | None = None
    form: AnswerForm = AnswerForm()
    output: str | None = None
    format: str = "text"
    logged: Sequence[str] = ()

    def to_json(self) -> JsonObject:
        form = {} if self.form == AnswerForm() else {"form": asdict(self.form)}
        return {**super().to_json(), **form, **self.request.to_json()}

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> AnswerRequest:
        form = AnswerForm(**parameters.get("form", {}))
        return super().of({**parameters, "form": form, "request": Request.from_json(parameters)})


@dataclass(frozen=True, kw_only=True)
class TranscriptRequest(ModelRequest):
    """What is said in a sound, which is ``kept``. ``output``: the file for the transcript; it is in the job's result in
    any case. ``longest``: seconds of a piece. ``format``: of the transcript, see ``tasks.transcription.write``."""

    prompt: str
    longest: float
    max_tokens: int
    format: str
    output: str | None = None


@dataclass(frozen=True, kw_only=True)
class BatchRequest(ModelRequest):
    """Answers to the lines of a file, or to ``rows``, which are kept until the job is removed. ``max_workers``: how
    many workers of a server may share the lines. ``columns``: those of a table of lines on a server, of which
    ``total`` were queued and ``reused`` answered before. ``embeds``: the lines get vectors."""

    NOT_KEPT = ("settings", "rows", "default_model", "max_workers", "model_may_come")

    settings: BatchSettings
    rows: Iterable[bytes] | None = None
    default_model: str | None = None
    max_workers: int | None = None
    embeds: bool = False
    columns: Sequence[str] = ()

    def to_json(self) -> JsonObject:
        return {**super().to_json(), "batch": self.settings.to_json()}

    @classmethod
    def of(cls: type[Lines], parameters: Mapping[str, Any]) -> Lines:
        from leap_core.batch.settings import BatchSettings

        return super().of({**parameters, "settings": BatchSettings.from_json(parameters["batch"])})

    @classmethod
    def repeatable(cls, parameters: JsonObject) -> JsonObject:
        batch = super().repeatable(parameters)["batch"]
        if "%" not in str(batch["output"]):
            raise LeapJobError(
                f"each run needs an output of its own, and {batch['output']} is one",
                hint="name it by its time: -o results-%Y-%m-%d.jsonl",
            )
        return {**parameters, "batch": {**batch, "input_digest": None}}

    @classmethod
    def dated(cls, parameters: JsonObject, due: float) -> JsonObject:
        batch = parameters["batch"]
        names = {name: _dated(batch[name], due) for name in ("output", "errors") if batch.get(name)}
        return {**parameters, "batch": {**batch, **names}}


Lines = TypeVar("Lines", bound=BatchRequest)


@dataclass(frozen=True, kw_only=True)
class ShardRequest(BatchRequest):
    """A stretch of the lines of a batch on a server, from the ``first`` number to the ``last``, ``count`` in all. Its
    row has these fields, and the row of the batch what all shards have in common."""

    first: int
    last: int
    count: int
    shard: int

    @staticmethod
    def row(shard: int, first: int, last: int, count: int) -> JsonObject:
        """The parameters of the shard's own row."""
        return {"first": first, "last": last, "count": count, "shard": shard}


@dataclass(frozen=True)
class DownloadRequest(JobRequest):
    """A model for this machine. ``options``: fields of DownloadOptions."""

    model: str
    quantization: str | None = None
    revision: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FunctionRequest(JobRequest):
    """The call of a function of a feature or a plugin, which finds ``arguments`` in its FunctionJob."""

    NOT_KEPT = ("cwd",)

    function: str
    arguments: JsonObject


@dataclass(frozen=True, kw_only=True)
class CommandRequest(JobRequest):
    """leap run with these ``arguments``, of which ``outputs`` name a file that is written: for a command that was
    typed, or for a ``file`` of a ``folder``, where it ``writes`` these files. Or what is done when the job ``about``
    has ended: the ``command``, for the shell, or where that is None a note on the desktop."""

    do: str = "leap"
    arguments: Sequence[str] = ()
    outputs: Sequence[int] = ()
    folder: str | None = None
    file: str | None = None
    writes: Sequence[str] = ()
    command: str | Sequence[str] | None = None
    about: str | None = None

    @classmethod
    def dated(cls, parameters: JsonObject, due: float) -> JsonObject:
        asked = cls.of(parameters)
        names = [_dated(each, due) if n in asked.outputs else each for n, each in enumerate(asked.arguments)]
        return {**parameters, "arguments": names}


@dataclass(frozen=True, kw_only=True)
class FolderRequest(JobRequest):
    """leap run with these ``arguments`` for each file of a ``directory`` whose name fits one of the ``patterns``;
    ``outputs`` of them name a file that is written, as ``--output=NAME``."""

    directory: str
    patterns: Sequence[str]
    arguments: Sequence[str]
    outputs: Sequence[int] = ()


@dataclass(frozen=True)
class MessageRequest(JobRequest):
    """A message to ``url`` about the job ``about``, which is known once it is queued; ``with_data``: with its label and
    result in it."""

    NOT_KEPT = ("cwd",)

    url: str
    with_data: bool
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class ScheduleRequest(JobRequest):
    """A ``job`` that comes again and again. ``every``: when, see ``Every``; intervals count from ``begun``. ``missed``,
    ``overlap``: see ``Policy``."""

    NOT_KEPT = ("cwd", "variables")

    every: str
    begun: float
    missed: str
    overlap: str
    job: NewJob

    def to_json(self) -> JsonObject:
        return {**super().to_json(), "job": self.job.to_json()}

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> ScheduleRequest:
        return super().of({**parameters, "job": NewJob.from_json(parameters["job"])})

    def run(self, schedule: str, due: float) -> NewJob:
        """The run that is due then."""
        parameters = REQUESTS[self.job.kind].dated(dict(self.job.parameters), due)
        return replace(self.job, parameters={**parameters, "schedule": schedule, "due": due})


REQUESTS: dict[str, type[JobRequest]] = {
    kinds.GENERATE: AnswerRequest,
    kinds.TRANSCRIBE: TranscriptRequest,
    kinds.BATCH: BatchRequest,
    kinds.SHARD: ShardRequest,
    kinds.DOWNLOAD: DownloadRequest,
    kinds.FUNCTION: FunctionRequest,
    kinds.COMMAND: CommandRequest,
    kinds.FOLDER: FolderRequest,
    kinds.WEBHOOK: MessageRequest,
    kinds.SCHEDULE: ScheduleRequest,
}
"""By kind of job."""


def request_of(job: Job | NewJob) -> Any:
    """What a job is asked for, an object of its kind's class. Raises what MALFORMED lists, or a LeapError."""
    return REQUESTS[job.kind].of(job.parameters)


def _dated(name: str, due: float) -> str:
    return time.strftime(name, time.localtime(due))

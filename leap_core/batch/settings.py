"""Everything that a batch was asked to be, as plain data: where it reads and writes, its part, its model."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, field, fields, replace
from pathlib import Path, PurePath
from typing import Any

from ..conversation.media.fetching import UrlAccess
from ..conversation.options import GenerationOptions, ModelLoadingOptions
from ..errors import LeapOptionsError, LeapSerializationError
from ..inference.speech.voices import CONVERSATION_PROMPT
from ..models.aliases_and_endpoints import Endpoint
from ..models.manifest import SAMPLING_KEYS
from ..models.resolving import Registry
from ..protocols.openai.fields import functions_of
from ..schemas.json_values import JsonObject
from ..system.addresses import shown
from ..system.dataclass import dataclass
from ..system.files import NOT_WRITTEN, descriptor_of, digest_samples
from .input.line_parts import LineTemplate
from .input.lines import RequestReader
from .input.remote_files import check_writable, exists, is_url, name_in
from .input.rows import (
    DELIMITERS,
    INPUT_FORMATS,
    JSON_ARRAY,
    JSONL,
    PARQUET,
    TABLES,
    ZSTD,
    compression_of,
    format_of,
    pyarrow,
)
from .journal.journal import Journal, is_journal_of, journal_path
from .journal.line_result import AUTO, FORMATS, NPY, OPENAI, PLAIN, TEXT
from .options import BatchEscalation, BatchLimits
from .output.file_formats import CompressedFile, LinesFile, ParquetFile, VectorFile
from .output.output_file import OutputFile, OutputStream, Sink

MOST_PARTS = 100_000


@dataclass(frozen=True)
class Part:
    """The part ``number``, from 1, of ``count``. A line is always in the same part, whatever lines come or go."""

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_PARTS:
            raise LeapOptionsError("shard", f"{self.count} parts are not between 1 and {MOST_PARTS}")
        if not 1 <= self.number <= self.count:
            raise LeapOptionsError("shard", f"{self.number}/{self.count}: parts are counted from 1 to {self.count}")

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @staticmethod
    def of_line(digest: str, count: int) -> int:
        """The number of the part that has the line with this digest."""
        return int(digest, 16) % count + 1

    def has(self, digest: str) -> bool:
        """Whether the line with this digest (32 hexadecimal digits) is in the part."""
        return self.of_line(digest, self.count) == self.number

    def path(self, whole: str) -> str:
        """The part's own file in place of one of the whole batch: ``out.jsonl`` becomes ``out.3-of-7.jsonl``."""
        path = PurePath(whole)
        if is_url(whole):
            directory, _, name = whole.rpartition("/")
            return f"{directory}/{self.path(name)}"
        compression = path.suffix if compression_of(whole) else ""
        inner = PurePath(path.name.removesuffix(compression))
        return str(path.with_name(f"{inner.stem}.{self.number}-of-{self.count}{inner.suffix}{compression}"))


STANDARD = "-"
KEPT = ""
"""The output of a batch whose results are kept with its job."""
NPY_ENDING = ".npy"
OF_ONE_PROCESS = re.compile(r"/proc/|/dev/(?!shm/)")
"""The start of a path that is no file, or that names another one in each process."""


@dataclass(frozen=True, kw_only=True)
class BatchInput:
    """Where the lines of a batch come from, and how a line becomes a request."""

    source: str = field(kw_only=False)
    """A path, a URL, or "-" for standard input."""
    input_format: str | None = None
    """One of INPUT_FORMATS; None: by the source's extension."""
    input_digest: str | None = None
    """What ``CheckedBatch.input_digest`` was; another input is refused. None accepts any."""
    skip_invalid: bool = False
    """Leave out lines that cannot be used, instead of refusing all."""
    directory: str = ""
    """Where relative names of images and audio in lines begin, and where the journal of an output on another machine
    is; empty for the current directory."""
    system: str | None = None
    """System prompt of lines that have none."""
    template: str | None = None
    """Text with ``{field}`` for fields of a line, which makes its prompt; None: ``{prompt}`` for tables."""
    variables: JsonObject | None = None
    """Values of the template's variables that a line's fields override; None where it is no saved prompt."""
    tools: list[JsonObject] = field(default_factory=list)
    """OpenAI's declarations of the tools of lines that declare none."""
    recipes: JsonObject = field(default_factory=dict)
    """The texts of the user's own recipes of tasks, by name."""
    urls: UrlAccess = UrlAccess.FILES
    """What the images and audio of lines may be fetched from."""
    own_clients: bool = True
    """Whether lines may name files of this machine as adapters."""
    answers_to: tuple[str, ...] | None = None
    """The names of the model; lines that name another fail. None: it answers whatever they name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "urls", UrlAccess(self.urls))
        if self.input_format not in (None, *INPUT_FORMATS):
            raise LeapSerializationError(
                f"{self.input_format!r} is not one of {', '.join(INPUT_FORMATS)}", path="input format"
            )

    @property
    def source_format(self) -> str:
        """The form of the input: as given, or by the source's extension."""
        return self.input_format or format_of(self.source)


@dataclass(frozen=True, kw_only=True)
class BatchOutput:
    """Where the results of a batch are written, and in which form."""

    path: str = field(kw_only=False)
    """A path, a URL, or "-" for standard output."""
    format: str = AUTO
    """One of FORMATS; AUTO: by the output's extension and the input's format."""
    ordered: bool = True
    """Write results in the order of the input, not as they are ready."""
    keep_fields: bool | None = None
    """Copy the fields of a line into its result; None: those of tables."""
    header: str | None = None
    """The first line of an output that is text."""
    errors: str | None = None
    """A file for the failed lines, which are then left out of the output."""
    speech: str | None = None
    """The directory for the WAV files of models that speak."""
    journal: str | None = None
    """The file of the journal; None: beside the output, and none for a stream."""
    overwrite: bool = False
    """Start over and replace the output."""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise LeapSerializationError(f"{self.format!r} is not one of {', '.join(FORMATS)}", path="output format")

    def from_anywhere(self, cwd: Path) -> BatchOutput:
        """The same with paths that mean the same in any directory. Raises LeapSerializationError for an output that is
        no file."""
        if self.path == STANDARD:
            raise LeapSerializationError("a job needs a file for its results", path="output")
        path = self.path if is_url(self.path) else os.path.normpath(cwd / self.path)
        if OF_ONE_PROCESS.match(path) and path != "/dev/null":
            raise LeapSerializationError(f"{path} is not the same for the worker", path="output", hint="give a file")
        others = {name: getattr(self, name) for name in ("journal", "errors", "speech")}
        others = {name: None if value is None else str(cwd / value) for name, value in others.items()}
        return replace(self, path=self.path if is_url(self.path) else str(cwd / self.path), **others)

    def of_part(self, part: Part) -> BatchOutput:
        """The same for one part of the lines, with files of its own."""
        journal = None if self.journal is None else part.path(self.journal)
        errors = None if self.errors is None else part.path(self.errors)
        return replace(self, path=part.path(self.path), journal=journal, errors=errors)

    @property
    def place(self) -> Path | str:
        """The output: a file, or a URL."""
        return self.path if is_url(self.path) else Path(self.path)

    @property
    def is_regular(self) -> bool:
        """Whether the output is a file that can be read again, and not a device or a named pipe."""
        if is_url(self.path):
            return True
        if self.path == STANDARD or OF_ONE_PROCESS.match(self.path) or descriptor_of(self.path) is not None:
            return False  # /dev/stdout may lead to a file
        return not Path(self.path).exists() or Path(self.path).is_file()

    @property
    def has_content(self) -> bool:
        """Whether there is something in the output."""
        if is_url(self.path):
            return exists(self.path)
        return Path(self.path).exists() and Path(self.path).stat().st_size > 0


@dataclass(frozen=True, kw_only=True)
class BatchCluster:
    """Which machines and processes answer the lines."""

    part: Part | None = None
    """The part of the lines that is answered; the files are that part's own."""
    on: str | None = None
    """The cluster whose models answer: ``ray``, or ``ray://HOST:PORT``; None is this process."""
    workers: str | None = None
    """Processes of the cluster that have the model: a number, or ``2..8``; None is what there is space for."""


@dataclass(frozen=True)
class BatchSettings:
    """A batch: input, output, limits, cluster and escalation, and the model with its options. Its parts raise
    LeapSerializationError or LeapOptionsError for values outside their ranges."""

    input: BatchInput
    output: BatchOutput
    limits: BatchLimits = field(default_factory=BatchLimits)
    cluster: BatchCluster = field(default_factory=BatchCluster)
    escalation: BatchEscalation = field(default_factory=BatchEscalation)
    model: str | None = None
    """The model; None takes the one that the lines name, else the built-in one."""
    options: JsonObject = field(default_factory=dict)
    """A GenerationOptions as JSON."""
    loading: JsonObject = field(default_factory=dict)
    """Fields of ModelLoadingOptions other than slots."""

    @classmethod
    def of(cls, source: str, output: str, **given: Any) -> BatchSettings:
        """The settings with these fields of the parts and of its own. Raises TypeError for one that is not there."""
        given |= {"source": source, "path": output}
        parts: dict[str, Any] = {}
        for name, part in PARTS.items():
            parts[name] = part(**{each.name: given.pop(each.name) for each in fields(part) if each.name in given})
        return cls(**parts, **given)

    def to_json(self) -> JsonObject:
        """All fields in one object."""
        value = asdict(self)
        for name in PARTS:
            value |= value.pop(name)
        value["output"] = value.pop("path")
        return value

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> BatchSettings:
        """Read what ``to_json`` writes; other names are left out."""
        known = {each.name for part in (BatchSettings, *PARTS.values()) for each in fields(part)} - {*PARTS, "path"}
        return BatchSettings.of(**{name: item for name, item in value.items() if name in known or name == "output"})

    def from_anywhere(self, cwd: Path) -> BatchSettings:
        """The same with paths that mean the same in any directory, and in the worker. Raises LeapSerializationError
        for an output that is no file."""
        output, given = self.output.from_anywhere(cwd), self.input
        source = given.source if is_url(given.source) else cwd / given.source
        if isinstance(source, Path) and source.is_file():
            source = source.resolve()  # /dev/stdin may lead to a file, and to another one for the worker
        found = replace(
            given, source=str(source), input_format=given.source_format, directory=str(cwd / given.directory)
        )
        return replace(self, input=found, output=output)

    def of_no_machine(self) -> BatchSettings:
        """The same for a row that any machine may read: no name of a file, and lines that name none."""
        nowhere = replace(
            self.input, source=STANDARD, directory="", input_digest=None, urls=UrlAccess.DATA, own_clients=False
        )
        output = replace(self.output, path=STANDARD, journal=None, errors=None, speech=None)
        return replace(self, input=nowhere, output=output)

    def of_part(self, part: Part) -> BatchSettings:
        """The same for one part of the lines, with files of its own."""
        return replace(self, output=self.output.of_part(part), cluster=replace(self.cluster, part=part))

    @property
    def output_format(self) -> str:
        """The form of the results: as given, by the output's extension, or plain where the input is plain."""
        if self.output.format != AUTO:
            return self.output.format
        if self.output.path.lower().endswith(NPY_ENDING):
            return NPY
        by_name = format_of(self.output.path)
        if by_name in TABLES:
            return by_name
        return OPENAI if self.input.source_format in (JSONL, JSON_ARRAY) else PLAIN

    def reader(self) -> RequestReader:
        """Raises LeapSerializationError or LeapOptionsError for settings that no line could be read with."""
        given, output = self.input, self.output
        is_table = given.source_format in TABLES
        template = "{prompt}" if given.template is None and is_table else given.template
        return RequestReader(
            options=GenerationOptions.from_json(self.options),
            functions=tuple(functions_of(given.tools)),
            system=CONVERSATION_PROMPT if given.system is None and output.speech is not None else given.system,
            template=None if template is None else LineTemplate(template, given.variables),
            keep_fields=is_table if output.keep_fields is None else output.keep_fields,
            directory=Path(given.directory),
            recipes=given.recipes,
            urls=given.urls,
            own_clients=given.own_clients,
            answers_to=None if given.answers_to is None else tuple(name.lower() for name in given.answers_to),
        )

    def loading_options(self) -> ModelLoadingOptions:
        return ModelLoadingOptions.from_json({**self.loading, "slots": self.limits.concurrency})

    def check_places(self) -> None:
        """Find out before any work that output and journal can be written. Raises LeapSerializationError."""
        output = self.output
        self._check_format()
        for place in (output.journal, output.errors, output.speech):
            if place is not None and is_url(place):
                raise LeapSerializationError(f"{shown(place)} cannot be written to", hint="give a file of this machine")
        if is_url(output.path):
            self._check_url()
        elif output.path != STANDARD:
            self._check_output(Path(output.path))
        if output.errors is not None:
            self._check_output(Path(output.errors))
            if Path(output.errors).resolve() in (Path(output.path).resolve(), self.journal_path):
                raise LeapSerializationError(
                    f"{output.errors} cannot take the failed lines too", hint="give another file"
                )
        if self.journal_path is not None:
            self._check_journal(self.journal_path)

    def _check_format(self) -> None:
        output, source = self.output, self.input.source
        if self.output_format == NPY and not (output.is_regular and output.ordered):
            raise LeapSerializationError("an array needs a file (-o FILE.npy), and the order of the input")
        if self.output_format == PARQUET and not output.is_regular:
            raise LeapSerializationError("Parquet needs a file (-o FILE.parquet)")
        compressions = [compression_of(source), compression_of(output.path)]
        if PARQUET in (self.output_format, self.input.source_format) or ZSTD in compressions:
            pyarrow("Parquet and zstd")
        at_once = self.output_format == PARQUET or compressions[1] is not None or is_url(output.path)
        if at_once and (output.errors is not None or self.output_format == TEXT):
            raise LeapSerializationError(
                f"{shown(output.path)} gets a line for each line of the input: leave --errors and --format text out"
            )

    def _check_journal(self, journal: Path) -> None:
        output = self.output
        if journal.exists() and not journal.is_file():
            raise LeapSerializationError(f"{journal} is no file that can be a journal", hint="give another journal")
        if journal in (Path(output.path).resolve(), Path(self.input.source).resolve()):
            raise LeapSerializationError(f"{journal} cannot be the journal too", hint="give another journal")
        if output.is_regular and not output.overwrite:
            self._check_account(journal)

    def _check_url(self) -> None:
        _check_ending(PurePath(name_in(self.output.path)))
        if self.output.path == self.input.source:
            raise LeapSerializationError(
                f"{shown(self.output.path)} is input and output at once", hint="give another output"
            )
        check_writable(self.output.path)

    def _check_output(self, path: Path) -> None:
        source = self.input.source
        _check_ending(path)
        if path.is_dir():
            raise LeapSerializationError(f"{path} is a directory, not a file to write to")
        if not path.parent.is_dir():
            raise LeapSerializationError(f"there is no directory {path.parent} to write to")
        if path.exists() and not os.access(path, os.W_OK):
            raise LeapSerializationError(f"{path} cannot be written to")
        if source != STANDARD and path.exists() and Path(source).exists() and path.samefile(source):
            raise LeapSerializationError(f"{path} is input and output at once", hint="give another output")

    def _check_account(self, journal: Path) -> None:
        """See to it that what is in the output is known from the journal, and that this is the journal of no other."""
        its_own = is_journal_of(journal, self.output.place)
        if its_own is False:
            raise LeapSerializationError(
                f"{journal} is the journal of another output",
                hint="give another journal, or --replace to begin it anew",
            )
        if its_own is None and self.output.has_content:
            raise LeapSerializationError(
                f"{shown(self.output.path)} exists and no journal of a batch lies beside it",
                hint="give another output, or --replace to replace it",
            )

    @property
    def journal_path(self) -> Path | None:
        """Where the journal is; None where there is nothing to resume."""
        if self.output.journal is not None:
            return Path(self.output.journal).resolve()
        if is_url(self.output.path):
            return Path(self.input.directory, f"{name_in(self.output.path)}.journal").resolve()
        return journal_path(Path(self.output.path)) if self.output.is_regular else None

    def open_journal(self, while_waiting: Callable[[], object] | None = None) -> Journal | None:
        """The journal, locked; None where there is nothing to resume. The caller closes it. ``while_waiting``: wait for
        another batch that has it, calling this a few times a second; without it that is LeapUnavailableError."""
        path = self.journal_path
        output = self.output.place if self.output.is_regular else None
        return None if path is None else Journal(path, output, while_waiting=while_waiting)

    def sink(
        self, write: Callable[[str], object], count: int, while_waiting: Callable[[], object] | None = None
    ) -> Sink:
        """The output for ``count`` lines; ``write`` is standard output's."""
        path, url = Path(self.output.path), None
        if is_url(self.output.path):
            assert self.journal_path is not None
            path, url = self.journal_path.with_suffix(".sent"), self.output.path
        if self.output_format == NPY:
            return VectorFile(path, count, url)
        if self.output_format == PARQUET:
            return ParquetFile(path, count, url)
        if self.output.is_regular and (url is not None or compression_of(self.output.path)):
            lines = count + (self.output.header is not None) + (self.output_format in DELIMITERS)
            ending = compression_of(self.output.path)
            return LinesFile(path, lines, url) if ending is None else CompressedFile(path, lines, ending, url)
        if self.output.is_regular:
            return OutputFile(Path(self.output.path), while_waiting=while_waiting)
        if self.output.path == STANDARD:
            return OutputStream(write)
        return OutputStream.of_device(self.output.path)


PARTS: dict[str, type] = {
    "input": BatchInput,
    "output": BatchOutput,
    "limits": BatchLimits,
    "cluster": BatchCluster,
    "escalation": BatchEscalation,
}


def _check_ending(path: PurePath) -> None:
    if path.suffix.lower() in NOT_WRITTEN:
        raise LeapSerializationError(
            f"{path} would be no {path.suffix} file: leap writes .jsonl, .csv, .tsv, .parquet, .npy and text",
            hint="give a file that ends so; spreadsheets read .csv",
        )


def fingerprint_of(reference: str, loading: ModelLoadingOptions, *, variables: Mapping[str, str], cwd: Path) -> str:
    """A text that is equal when model and loading are. Raises LeapModelLoadingError when there is no such model."""
    model = Registry(variables, cwd).find(reference)
    if isinstance(model, Endpoint):
        return json.dumps({"endpoint": model.url, "model": model.model}, sort_keys=True)
    if model.opener is not None:
        return json.dumps({"opener": model.opener.value, "model": model.model_id}, sort_keys=True)
    value: dict[str, object] = {
        "model": _sampled(model.path),
        "sampling": {name: getattr(model.sampling, name) for name in SAMPLING_KEYS},
        "chat_template": loading.chat_template or model.chat_template,
        "parser": model.parser_name,
        "context_size": loading.context_size,
        "kv": [loading.kv_type_k or "f16", loading.kv_type_v or "f16"],  # as the keys of old journals have it
        "seed": loading.random_seed,
    }
    projector = loading.mm_proj_path or model.mm_proj_path
    if projector is not None:
        value["projector"] = _sampled(projector)
    adapters = loading.adapters or model.adapters
    if adapters:  # without any, the keys of old journals stay
        value["adapters"] = [[_sampled(adapter.path), adapter.scale] for adapter in adapters]
    return json.dumps(value, sort_keys=True)


def _sampled(path: Path) -> str:
    """Distinguishes files by size and pieces spread over them, in a few milliseconds."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest_samples(digest, file, size, 16, 64 * 1024)
    return digest.hexdigest()

"""A model as a function over columns, for every engine of data frames."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY
from typing import Any

from ...conversation.options import GenerationOptions, ModelLoadingOptions
from ...conversation.runner import ModelRunner
from ...errors import LeapError, LeapOptionsError, LeapSerializationError
from ...opening import HostUse, open_runner
from ...protocols.openai.replies import usage
from ...schemas.json_values import JsonObject
from ...schemas.shorthand import schema_from_shorthand
from ...system.dataclass import dataclass
from ..answering import Answers, answering
from ..input.line_index import GivenLines
from ..input.line_parts import MEDIA_FIELDS, LineTemplate, of_column
from ..input.lines import LineRequest, RequestReader
from ..journal.line_result import NO_STATS
from .line_answerer import runner_of_process


def columns_of(table: Any) -> dict[str, list[Any]]:
    """The columns as lists of plain values. Raises LeapSerializationError for what is no table."""
    if hasattr(table, "to_pydict"):  # Arrow
        return dict(table.to_pydict())
    if hasattr(table, "iloc"):  # pandas
        return {str(name): [_plain(value) for value in table[name].tolist()] for name in table.columns}
    if isinstance(table, Mapping):
        return {str(name): [_plain(value) for value in _listed(values)] for name, values in table.items()}
    raise LeapSerializationError(
        f"a {type(table).__name__} is no table: give a dict of columns, or a pandas or Arrow one"
    )


def with_columns(table: Any, columns: Mapping[str, list[Any]]) -> Any:
    """The table with these columns beside its own, in its own form. Columns of the same name are replaced."""
    if hasattr(table, "to_pydict"):
        return _arrow_with(table, columns)
    if hasattr(table, "iloc"):
        import pandas

        own = {name: pandas.Series(values, index=table.index, dtype=object) for name, values in columns.items()}
        return table.assign(**own)
    return {**table, **columns}


def _arrow_with(table: Any, columns: Mapping[str, list[Any]]) -> Any:
    import pyarrow

    is_batch = isinstance(table, pyarrow.RecordBatch)
    if is_batch:
        table = pyarrow.Table.from_batches([table])
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        array = pyarrow.array(values)
        table = table.append_column(name, array) if place < 0 else table.set_column(place, name, array)
    return table.combine_chunks().to_batches()[0] if is_batch and len(table) else table


def _listed(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _plain(value: Any) -> Any:
    """A value as JSON has it; a missing one of pandas is None."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return None if isinstance(value, float) and value != value else value


def media_field(name: str, value: Any) -> Any:
    """A picture or sound of a table as a line of a batch has it: the name of a file, or its content. Raises
    LeapSerializationError for bytes that are neither."""
    if isinstance(value, Mapping) and "bytes" in value:  # as datasets keep them
        value = value["bytes"] if value["bytes"] is not None else value.get("path")
    if isinstance(value, (bytes, bytearray)):
        return of_column(name, bytes(value))
    return value


ANSWER, ERROR, USAGE = "answer", "error", "usage"


@dataclass(eq=False)
class Mapper:
    """Called with columns, gives them back with three more: ``answer``, ``error`` and ``usage``.

        mapper = Mapper("LFM2.5-350M", prompt="Translate to French: {text}")
        mapper({"text": ["one", "two"]})["answer"]

    ``prompt`` and the texts of ``messages`` name columns in braces; ``{{`` and ``}}`` are braces. The columns ``image``
    and ``audio``, unless the prompt has them, are the model's images and audio: names of files, or bytes. ``schema``:
    a JSON schema, or its short form, that each answer satisfies. ``task``: a task with its parameters, such as
    ``{"task": "classify", "labels": ["a", "b"]}``, done to what ``prompt`` gives (``{text}`` by default).
    ``concurrency`` rows are answered at once. ``loading`` and ``host`` are those of ``Leap.load``.

    ``error`` is empty where there is an answer, and ``answer`` where there is an error; ``usage`` has ``prompt_tokens``
    and ``completion_tokens``. An iterator of tables gives an iterator of tables. The model is loaded at the first call,
    once in a process. Raises LeapOptionsError or LeapSerializationError for what no row could be asked with.
    """

    model: str
    _: KW_ONLY
    prompt: str | None = None
    messages: Sequence[Mapping[str, str]] | None = None
    schema: Mapping[str, Any] | str | None = None
    task: Mapping[str, Any] | None = None
    options: GenerationOptions | None = None
    concurrency: int = 16
    loading: ModelLoadingOptions | None = None
    host: HostUse | str = HostUse.NEVER

    def __post_init__(self) -> None:
        if self.task is not None and (self.messages is not None or self.schema is not None):
            raise LeapOptionsError("task", "it has no messages and no schema beside it")
        if self.task is None and (self.prompt is None) == (self.messages is None):
            raise LeapOptionsError("prompt", "give either a prompt or messages")
        if self.task is not None and self.prompt is None:
            self.prompt = "{text}"
        if isinstance(self.schema, str):
            self.schema = schema_from_shorthand(self.schema)
        self.host = HostUse(self.host)
        self._load: Callable[..., ModelRunner] = open_runner
        texts = (
            [str(self.prompt)] if self.messages is None else [str(each.get("content", "")) for each in self.messages]
        )
        self._templates = [_template(text) for text in texts]
        self._names = {name for each in self._templates if not isinstance(each, str) for name in each.names}
        if not self._names:
            raise LeapOptionsError("prompt", "it names no column, so every row would ask the same: write {column}")

    def __call__(self, table: Any) -> Any:
        """The table with the answers. Raises what loading raises, and LeapUnavailableError when the model is lost."""
        if isinstance(table, Iterator):
            return map(self, table)
        columns = columns_of(table)
        missing = sorted(self._names - columns.keys())
        if missing:
            raise LeapSerializationError(
                f"the table has no column {', '.join(missing)}; it has {', '.join(columns) or 'none'}"
            )
        count = len(next(iter(columns.values()), []))
        rows = [{name: values[n] for name, values in columns.items()} for n in range(count)]
        answers: list[str] = [""] * count
        errors: list[str] = [""] * count
        used = [_usage(None)] * count
        for n, outcome in self._outcomes(rows):
            if isinstance(outcome, LeapError):
                errors[n] = outcome.message
            else:
                answers[n], used[n] = outcome[0].full_message.text, _usage(outcome)
        return with_columns(table, {ANSWER: answers, ERROR: errors, USAGE: used})

    def _outcomes(self, rows: Sequence[JsonObject]) -> Iterator[tuple[int, Answers | LeapError]]:
        reader = RequestReader(options=self.options or GenerationOptions())
        lines, places = GivenLines(), []
        for n, row in enumerate(rows):
            name = f"row-{n + 1}"
            try:
                raw = json.dumps({"custom_id": name, **self._line(row)}, ensure_ascii=False).encode()
                request = reader.read(raw)
                if not isinstance(request, LineRequest):
                    raise LeapSerializationError("a row asks for an answer, not for vectors")
                lines.give(n + 1, raw, request.digest(name))
                places.append(n)
            except (LeapError, UnicodeError, TypeError, ValueError) as error:
                yield n, error if isinstance(error, LeapError) else LeapSerializationError(str(error))
        if not places:
            return
        work = ((at, lines) for at in range(len(places)))
        with answering(self._runner(), reader, self.concurrency, threading.Event()) as threads:
            for at, _, outcome in threads.answers(work, len(places)):
                assert isinstance(outcome, (list, LeapError))
                yield places[at], outcome

    def _runner(self) -> ModelRunner:
        loading = self.loading or ModelLoadingOptions(slots=self.concurrency)
        name = f"{self.model} {loading} {HostUse(self.host).value}"
        return runner_of_process(name, lambda: self._load(self.model, loading, host=self.host))

    def _line(self, row: JsonObject) -> JsonObject:
        """The line of a batch that asks what a row asks."""
        named = {name: row[name] for name in self._names}
        texts = [each if isinstance(each, str) else each.fill(named) for each in self._templates]
        media = {
            name: [media_field(name, row[name])] for name in MEDIA_FIELDS if row.get(name) and name not in self._names
        }
        if self.task is not None:
            return {**self.task, "text": texts[0]}
        schema = {} if self.schema is None else {"schema": self.schema}
        if self.messages is None:
            return {"prompt": texts[0], **media, **schema}
        filled = [{**message, "content": text} for message, text in zip(self.messages, texts, strict=True)]
        return {"messages": filled, **schema}


def _template(text: str) -> LineTemplate | str:
    """A text that is filled for each row, or the same for all, such as a system prompt."""
    constant = LineTemplate(text, {})
    return LineTemplate(text) if constant.names else constant.fill({})


def _usage(answers: Answers | None) -> dict[str, int]:
    counts = [usage(answer.stats or NO_STATS) or {} for answer in answers or []]
    return {name: sum(int(each[name]) for each in counts) for name in ("prompt_tokens", "completion_tokens")}

"""A model as a function over columns, for every engine of data frames."""

from __future__ import annotations

from ..json_fields import JsonObject
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..batch.answering import answering
from ..batch.concurrent_answers import Answers
from ..batch.input.line_index import GivenLines
from ..batch.input.line_media import MEDIA_FIELDS
from ..batch.input.line_template import LineTemplate
from ..batch.input.lines import Request, RequestReader
from ..batch.journal.line_result import NO_STATS
from ..errors import LeapError, LeapOptionsError, LeapSerializationError
from ..openai.replies import usage
from ..opening import HostUse, open_runner
from ..options import GenerationOptions, ModelLoadingOptions
from ..runner.contract import ModelRunner
from ..schemas.shorthand import schema_from_shorthand
from .runners import runner_of_process
from .tables import columns_of, media_field, with_columns

ANSWER, ERROR, USAGE = "answer", "error", "usage"


class Mapper:
    """Called with columns, gives them back with three more: ``answer``, ``error`` and ``usage``.

        mapper = Mapper("LFM2.5-350M", prompt="Translate to French: {text}")
        mapper({"text": ["one", "two"]})["answer"]

    ``prompt`` and the texts of ``messages`` name columns in braces; ``{{`` and ``}}`` are braces. The columns ``image``
    and ``audio``, unless the prompt has them, are what the model sees and hears: names of files, or bytes. ``schema``:
    a JSON schema, or its short form, that each answer satisfies. ``task``: a task with its parameters, such as
    ``{"task": "classify", "labels": ["a", "b"]}``, done to what ``prompt`` gives (``{text}`` by default).
    ``concurrency`` rows are answered at once. ``loading`` and ``host`` are those of ``Leap.load``.

    ``error`` is empty where there is an answer, and ``answer`` where there is an error; ``usage`` has ``prompt_tokens``
    and ``completion_tokens``. An iterator of tables gives an iterator of tables. The model is loaded at the first call,
    once in a process. Raises LeapOptionsError or LeapSerializationError for what no row could be asked with.
    """

    def __init__(
        self,
        model: str,
        *,
        prompt: str | None = None,
        messages: Sequence[Mapping[str, str]] | None = None,
        schema: Mapping[str, Any] | str | None = None,
        task: Mapping[str, Any] | None = None,
        options: GenerationOptions | None = None,
        concurrency: int = 16,
        loading: ModelLoadingOptions | None = None,
        host: HostUse | str = HostUse.NEVER,
    ) -> None:
        if task is not None and (messages is not None or schema is not None):
            raise LeapOptionsError("task", "it has no messages and no schema beside it")
        if task is None and (prompt is None) == (messages is None):
            raise LeapOptionsError("prompt", "give either a prompt or messages")
        self._model, self._task = model, None if task is None else dict(task)
        self._prompt = "{text}" if task is not None and prompt is None else prompt
        self._messages = None if messages is None else [dict(message) for message in messages]
        self._schema = schema_from_shorthand(schema) if isinstance(schema, str) else schema
        self._options = options or GenerationOptions()
        self._concurrency = concurrency
        self._loading, self._host = loading, HostUse(host)
        self._load: Callable[..., ModelRunner] = open_runner
        texts = [str(self._prompt)] if messages is None else [str(each.get("content", "")) for each in messages]
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
        reader = RequestReader(options=self._options)
        lines, places = GivenLines(), []
        for n, row in enumerate(rows):
            name = f"row-{n + 1}"
            try:
                raw = json.dumps({"custom_id": name, **self._line(row)}, ensure_ascii=False).encode()
                request = reader.read(raw)
                if not isinstance(request, Request):
                    raise LeapSerializationError("a row asks for an answer, not for vectors")
                lines.give(n + 1, raw, request.digest(name))
                places.append(n)
            except (LeapError, UnicodeError, TypeError, ValueError) as error:
                yield n, error if isinstance(error, LeapError) else LeapSerializationError(str(error))
        if not places:
            return
        work = ((at, lines) for at in range(len(places)))
        with answering(self._runner(), reader, self._concurrency, threading.Event()) as threads:
            for at, _, outcome in threads.answers(work, len(places)):
                assert isinstance(outcome, (list, LeapError))
                yield places[at], outcome

    def _runner(self) -> ModelRunner:
        loading = self._loading or ModelLoadingOptions(slots=self._concurrency)
        name = f"{self._model} {loading} {self._host.value}"
        return runner_of_process(name, lambda: self._load(self._model, loading, host=self._host))

    def _line(self, row: JsonObject) -> JsonObject:
        """The line of a batch that asks what a row asks."""
        named = {name: row[name] for name in self._names}
        texts = [each if isinstance(each, str) else each.fill(named) for each in self._templates]
        media = {
            name: [media_field(name, row[name])] for name in MEDIA_FIELDS if row.get(name) and name not in self._names
        }
        if self._task is not None:
            return {**self._task, "text": texts[0]}
        schema = {} if self._schema is None else {"schema": self._schema}
        if self._messages is None:
            return {"prompt": texts[0], **media, **schema}
        filled = [{**message, "content": text} for message, text in zip(self._messages, texts, strict=True)]
        return {"messages": filled, **schema}


def _template(text: str) -> LineTemplate | str:
    """A text that is filled for each row, or the same for all, such as a system prompt."""
    constant = LineTemplate(text, {})
    return LineTemplate(text) if constant.names else constant.fill({})


def _usage(answers: Answers | None) -> dict[str, int]:
    counts = [usage(answer.stats or NO_STATS) or {} for answer in answers or []]
    return {name: sum(int(each[name]) for each in counts) for name in ("prompt_tokens", "completion_tokens")}

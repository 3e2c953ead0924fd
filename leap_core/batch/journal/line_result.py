"""The result of one line: kept as what happened, and given its shape when it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ...conversation.responses import Complete
from ...errors import GenerationStats
from ...protocols.anthropic import batch_answer, batch_error
from ...protocols.openai.embeddings import decoded, embedding_reply, encoded, numbers_of
from ...protocols.openai.replies import finish_reason, joined, message_body, usage, whole_chat
from ...schemas.json_values import JsonObject
from ...system.dataclass import dataclass
from ...tasks.evidence.evidence import row_of as evidence_row
from ...tasks.task import TaskReply
from ...tasks.task import table_row as row_of
from ..input.rows import DELIMITERS, PARQUET

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


OPENAI, PLAIN, TEXT, NPY, ANTHROPIC = "openai", "plain", "text", "npy", "anthropic"
AUTO = "auto"
FORMATS = (AUTO, OPENAI, PLAIN, TEXT, *DELIMITERS, PARQUET, NPY, ANTHROPIC)
OWN_NAMES = {
    "custom_id",
    "answer",
    "answers",
    "tool_calls",
    "reasoning",
    "speech",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "warnings",
    "error",
    "embedding",
    "embeddings",
}
"""Fields of a plain result: a field of the input that is called so gets another name."""
TABLE_NAMES = ("answer", "error", "evidence", "source_text")
"""Columns of a table of results with types."""
NO_STATS = GenerationStats(0, 0, 0, 0.0)


@dataclass(frozen=True)
class Embedded:
    """The answer to one line. ``vectors``: shape [texts, dimensions]; ``tokens``: that were read."""

    vectors: NDArray[float32]
    tokens: int
    as_base64: bool


@dataclass(frozen=True)
class Row:
    """What is carried over from a line: its ``fields``, and the ``columns`` that all lines have in a table."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    columns: Sequence[str] = ()


@dataclass(frozen=True)
class LineResult:
    """``response`` is the JSON of Complete, or ``embedding`` has ``vectors`` in base64, the ``tokens`` that were read,
    and whether ``base64`` was asked for, or ``error`` has a code, a message and perhaps a hint. ``more``: further
    answers like it, where the line asks for several. ``created`` is in seconds since 1970.
    """

    key: str
    custom_id: str
    model: str
    created: int
    response: JsonObject | None = None
    error: JsonObject | None = None
    speech: str | None = None
    """The file with what was said aloud."""
    more: list[JsonObject] | None = None
    details: JsonObject | None = None
    """What a task knows beside its text."""

    @staticmethod
    def of_answers(
        head: tuple[str, str, str, int], completes: Sequence[Complete], speech: str | None = None
    ) -> LineResult:
        """The result of a line that was answered; ``head``: key, name, model, time."""
        first, *others = [complete.to_json() for complete in completes]
        details = completes[0].details if isinstance(completes[0], TaskReply) else None
        return LineResult(*head, response=first, speech=speech, more=others or None, details=details)

    embedding: JsonObject | None = None

    @property
    def succeeded(self) -> bool:
        return self.error is None

    @property
    def engine(self) -> str | None:
        """The engine that answered; None for the default one, and where it is not known."""
        engine: str | None = ((self.response or {}).get("stats") or {}).get("engine")
        return engine

    @property
    def completion_tokens(self) -> int:
        """Tokens of the answers; of a vector those that were read."""
        if self.embedding is not None:
            return int(self.embedding["tokens"])
        stats = [(answer or {}).get("stats") or {} for answer in (self.response, *(self.more or ()))]
        return sum(int(each.get("completion_tokens", 0)) for each in stats)

    def to_json(self) -> JsonObject:
        """What the journal keeps."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> LineResult:
        """Read what ``to_json`` made; anything else raises KeyError, TypeError or ValueError."""
        result = LineResult(**value)
        if [result.response, result.embedding, result.error].count(None) != 2:
            raise ValueError("a result has a response, an embedding, or an error")
        if result.response is not None:
            _ = result._completes
        if result.embedding is not None:
            for vector in result.embedding["vectors"]:
                decoded(vector)
        return result

    @staticmethod
    def embedding_of(answer: Embedded) -> JsonObject:
        """An answer as ``embedding`` has it."""
        vectors = [encoded(row) for row in answer.vectors]
        return {"vectors": vectors, "tokens": answer.tokens, "base64": answer.as_base64}

    def render(self, form: str, row: Row) -> str:
        """The line of the output, without its line end; of the text alone it may have several lines."""
        if form == TEXT:
            return "\n".join(self._texts)
        if form == NPY:
            return " ".join(self.embedding["vectors"] if self.embedding else [])
        if form in DELIMITERS:
            return self._table_row(form, row)
        if form == PARQUET:
            return json.dumps(self._row_of_table(row), ensure_ascii=False, separators=(",", ":"))
        shapes = {OPENAI: self._openai, ANTHROPIC: self._anthropic}
        value = shapes[form]() if form in shapes else self._plain(row)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def _plain(self, row: Row) -> JsonObject:
        kept = {f"input_{name}" if name in OWN_NAMES else name: value for name, value in row.fields.items()}
        if self.embedding is not None:
            return {"custom_id": self.custom_id, **kept, **self._vectors(), "prompt_tokens": self.embedding["tokens"]}
        answer = "answer" if row.fields else "text"
        if self.response is None:
            return {"custom_id": self.custom_id, **kept, "error": self.error}
        complete = self._completes[0]
        message = complete.full_message
        value: JsonObject = {"custom_id": self.custom_id, **kept, answer: message.text}
        if self.more:
            value["answers"] = self._texts
        if message.function_calls:
            value["tool_calls"] = message_body(message)["tool_calls"]
        if self.speech is not None:
            value["speech"] = self.speech
        if message.reasoning_content:
            value["reasoning"] = message.reasoning_content
        value |= self.details or {}
        value["finish_reason"] = finish_reason(complete)
        counts = usage(complete.stats or NO_STATS) or {}
        value |= {name: counts[name] for name in ("prompt_tokens", "completion_tokens")}
        warnings = [*complete.left_out, *complete.warnings]
        return value | ({"warnings": warnings} if warnings else {})

    def _row_of_table(self, row: Row) -> JsonObject:
        """Columns as in CSV, with values of their own types."""
        own = {name: row.fields.get(name) for name in row.columns} if row.columns else {"custom_id": self.custom_id}
        kept = {f"input_{name}" if name in TABLE_NAMES else name: value for name, value in own.items()}
        texts = self._texts
        answer: object = texts if self.more else "".join(texts)
        if self.embedding is not None:
            (answer,) = self._vectors().values()
        details = self.details or {}
        more = {"evidence": list(map(evidence_row, details["evidence"]))} if "evidence" in details else {}
        more |= {"source_text": details["source_text"]} if "source_text" in details else {}
        return {**kept, "answer": answer, "error": None if self.error is None else self.error.get("message"), **more}

    def _table_row(self, form: str, row: Row) -> str:
        fields = {"custom_id": self.custom_id, **row.fields}
        columns = [fields.get(name, "") for name in row.columns or ("custom_id",)]
        texts = self._texts
        answer: object = texts if self.more else "".join(texts)
        if self.embedding is not None:
            (answer,) = self._vectors().values()
        return table_row(form, [*columns, answer, "" if self.error is None else str(self.error.get("message", ""))])

    def _vectors(self) -> JsonObject:
        """``embedding`` of one text, ``embeddings`` of several."""
        assert self.embedding is not None
        vectors = self.embedding["vectors"]
        plain = vectors if self.embedding["base64"] else [numbers_of(decoded(vector)) for vector in vectors]
        return {"embedding": plain[0]} if len(plain) == 1 else {"embeddings": plain}

    def _openai(self) -> JsonObject:
        head = {"id": f"batch_req_{self.key}", "custom_id": self.custom_id}
        if self.embedding is not None:
            tokens, as_base64 = self.embedding["tokens"], self.embedding["base64"]
            body = embedding_reply(map(decoded, self.embedding["vectors"]), as_base64, self.model, tokens)
            return {**head, "response": {"status_code": 200, "request_id": self.key, "body": body}, "error": None}
        if self.response is None:
            return {**head, "response": None, "error": self.error}
        about = {"id": f"chatcmpl-{self.key}", "created": self.created, "model": self.model}
        completes = self._completes
        bodies = [whole_chat(about, complete) for complete in completes]
        body = joined(bodies, completes) if self.more else bodies[0]
        if self.speech is not None:
            body["choices"][0]["message"]["audio"] = {"file": self.speech}
        if self.details:
            body["leap"] = self.details
        return {**head, "response": {"status_code": 200, "request_id": self.key, "body": body}, "error": None}

    def _anthropic(self) -> JsonObject:
        if self.error is not None:
            return batch_error(self.custom_id, str(self.error.get("code")), str(self.error.get("message")))
        return batch_answer(self.custom_id, self._completes[0], self.model, f"msg_{self.key}")

    @property
    def _texts(self) -> list[str]:
        return [complete.full_message.text for complete in self._completes]

    @property
    def _completes(self) -> list[Complete]:
        answers = [] if self.response is None else [self.response, *(self.more or ())]
        read = [Complete.from_json(answer) for answer in answers]
        return [answer for answer in read if isinstance(answer, Complete)]


def table_row(form: str, values: Sequence[object]) -> str:
    """A row of a table, without its line end."""
    return row_of(values, DELIMITERS[form])


def table_header(form: str, columns: Sequence[str]) -> str:
    """The first row of a table of results."""
    return table_row(form, [*(columns or ("custom_id",)), "answer", "error"])

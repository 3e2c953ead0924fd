"""The answers of a batch as training data: from its journal, or from the files of its lines and its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..batch.batch_settings import BatchSettings
from ..batch.checking import check_batch
from ..batch.input.line_digests import key_of
from ..batch.input.line_index import read_again
from ..batch.input.lines import Line, Request, RequestReader, identifier_of
from ..batch.journal.journal import JournalView, journal_path
from ..batch.journal.journal_index import NOWHERE
from ..errors import LeapError, LeapSerializationError
from ..evaluation.formats.rows import read_rows
from ..messages import ChatMessage
from ..responses import Complete
from ..sessions.marks import Mark
from .conversations import ALL, TrainingConversation, Wanted, of_answer
from .rendering import UnfitError

Reading = Callable[[], TrainingConversation]
"""Makes a conversation, or raises UnfitError."""
FINISHES = {"stop": "stop", "tool_calls": "stop"}
"""OpenAI's words for an answer that came to its own end, and leap's."""


def of_journal(
    settings: BatchSettings, variables: Mapping[str, str], cwd: Path, wanted: Wanted = ALL
) -> Iterator[Reading]:
    """The answered lines of a batch, by its journal. Raises LeapError where its input or its journal is gone."""
    path = Path(settings.journal) if settings.journal else journal_path(Path(settings.output))
    try:
        journal = JournalView(path)
    except OSError as error:
        raise LeapSerializationError(f"cannot read {path}: {error.strerror}") from None
    try:
        with check_batch(settings, default_model=None, variables=variables, cwd=cwd) as checked:
            lines = checked.lines
            keys = [key_of(lines.digest(n), checked.fingerprint) for n in range(len(lines))]
            for n, place in enumerate(journal.index.places_of(bytes.fromhex("".join(keys)))):
                if place == NOWHERE:
                    continue
                _, line = read_again(checked.reader, lines, n)
                result = journal.result_at(place)
                for answer in filter(None, (result.response, *(result.more or ()))):
                    complete = Complete.from_json(answer)
                    assert isinstance(complete, Complete)
                    yield _reading(line, complete.full_message, complete.finish_reason.value, wanted)
    finally:
        journal.close()


def of_files(lines: Path, results: Path, wanted: Wanted = ALL) -> Iterator[Reading]:
    """The answered lines of a batch, by the files of its lines and of its results. Raises LeapSerializationError."""
    reader = RequestReader(keep_fields=True, directory=lines.parent)
    order = "give the lines first, then the results, as --format plain or openai writes them"
    asked: dict[str, Any] = {}
    for place, row in read_rows(lines)[1]:
        value = row if isinstance(row, dict) else {"prompt": row}
        identifier = identifier_of(value) or place.replace(" ", "-")
        if identifier in asked:
            raise LeapSerializationError(f"{place} has the id {identifier!r} of an earlier line", path=lines.name)
        asked[identifier] = value
    for place, row in read_rows(results)[1]:
        if not isinstance(row, dict) or str(row.get("custom_id")) not in asked:
            raise LeapSerializationError(
                f"{place} is no result of a line of {lines.name}",
                path=results.name,
                hint=order,
            )
        if row.get("error"):
            continue
        try:
            line = reader.read_value(asked[str(row["custom_id"])])
        except LeapError as error:
            raise LeapSerializationError(f"{row['custom_id']}: {error.message}", path=lines.name, hint=order) from None
        try:
            answer, finish = _answer(row)
        except (KeyError, IndexError, TypeError, LeapError):
            raise LeapSerializationError(f"{place} has no answer in a known form", path=results.name) from None
        yield _reading(line, answer, FINISHES.get(finish, finish), wanted)


def _reading(line: Line, answer: ChatMessage, finish: str, wanted: Wanted) -> Reading:
    def read() -> TrainingConversation:
        if not isinstance(line, Request) or line.task is not None:
            raise UnfitError("the line asks for no answer to a conversation")
        return of_answer(line.messages, line.options, answer, Mark(finish), wanted, line.functions)

    return read


def _answer(result: Mapping[str, Any]) -> tuple[ChatMessage, str]:
    """The answer of a result of OpenAI's form or a plain one, and why it ended."""
    if result.get("response"):
        choice = result["response"]["body"]["choices"][0]
        message, finish = {**choice["message"], "content": choice["message"].get("content") or ""}, choice
    else:
        text = result["answer"] if "answer" in result else result["text"]
        message = {"role": "assistant", "content": text, "reasoning_content": result.get("reasoning")}
        message, finish = {**message, "tool_calls": result.get("tool_calls")}, result
    return ChatMessage.from_json(message), str(finish["finish_reason"])

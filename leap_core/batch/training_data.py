"""Conversations as training data: text by the model's template, what the loss counts, the split.

The prompt of every answer is exactly the one that the model would get. A conversation is one text where the template
shows earlier answers as the model wrote them; where it does not, as with reasoning that it leaves out of the past,
another text begins.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..conversation.messages import ChatMessage, ChatMessageRole, LeapFunctionCall, Text
from ..conversation.prompt_log import FINISHED
from ..conversation.responses import Complete
from ..conversation.sessions import UNMARKED, Mark
from ..errors import LeapError, LeapGenerationError, LeapSerializationError
from ..inference.template.chat_template import SEAMS, ChatTemplate, deeply
from ..system.dataclass import dataclass
from ..tasks.personal_patterns import found_by_pattern
from ..tasks.redaction import mask
from .checking import check_batch
from .input.line_index import read_again
from .input.lines import Line, LineRequest, RequestReader, identifier_of, key_of
from .input.small_files import read_rows
from .journal.journal import NOWHERE, JournalView, journal_path
from .settings import BatchSettings

if TYPE_CHECKING:
    from ..conversation.calls import LeapFunction
    from ..conversation.options import FunctionCallParser
    from ..conversation.prompt_log import Entry
    from ..conversation.request import Request
    from ..inference.llama.model import LlamaModel


class UnfitError(Exception):
    """A conversation that cannot be trained on; the text is the reason."""


@dataclass
class Rendered:
    """``prompt`` and ``completion`` follow each other. ``loss``: spans of characters of both together, from the first
    to before the last, which the model wrote: answers, each with the token that ends its turn."""

    prompt: str
    completion: str
    loss: list[tuple[int, int]]

    @property
    def text(self) -> str:
        return self.prompt + self.completion

    def to_json(self) -> dict[str, Any]:
        return {"prompt": self.prompt, "completion": self.completion, "loss": [list(span) for span in self.loss]}


@dataclass(frozen=True)
class TrainingTemplate:
    """``opening``: the text that every prompt begins with, empty for none. ``endings``: the tokens that end a turn, as
    text."""

    template: ChatTemplate
    parser: FunctionCallParser
    opening: str
    endings: tuple[str, ...]

    @staticmethod
    def of_model(model: LlamaModel, template: str | None, parser_name: str) -> TrainingTemplate:
        """That of a model. Raises LeapGenerationError where it has no chat template."""
        from ..inference.prompt_maker import format_of_model, read_template

        read = read_template(model, template)
        if read is None:
            raise LeapGenerationError(f"{model.path.name} has no chat template, which training data needs")
        endings = tuple(text for text, token in model.special_tokens.items() if token in model.eog_tokens)
        opening = model.bos_text if model.bos_token is not None else ""
        return TrainingTemplate(read, format_of_model(model, parser_name, template, read).parser, opening, endings)

    def rendered(
        self, history: Sequence[ChatMessage], functions: Sequence[LeapFunction] = (), passed_over: Collection[int] = ()
    ) -> list[Rendered]:
        """The texts of a conversation; answers that are ``passed_over``, by number, are context alone. Raises
        UnfitError."""
        texts: list[Rendered] = []
        for n, message in enumerate(history):
            if message.role is not ChatMessageRole.ASSISTANT or n in passed_over:
                continue
            prompt = self._spelled(history[:n], functions, bool(message.reasoning_content), ended=False)
            answer = self._answer(history[: n + 1], functions, prompt)
            span = (len(prompt), len(prompt) + len(answer))
            if texts and prompt.startswith(texts[-1].text):
                texts[-1].completion = (prompt + answer)[len(texts[-1].prompt) :]
                texts[-1].loss.append(span)
            else:
                texts.append(Rendered(prompt, answer, [span]))
        if not texts:
            raise UnfitError("there is no answer in it")
        return texts

    def _answer(self, history: Sequence[ChatMessage], functions: Sequence[LeapFunction], prompt: str) -> str:
        """What the model wrote as the last message, with the token that ended it."""
        thinking = bool(history[-1].reasoning_content)
        whole = self._without_rest(self._spelled(history, functions, thinking, ended=True))
        if whole.startswith(prompt):
            answer = whole[len(prompt) :]
        else:  # with this answer the template shows what came before it in another way
            before = self._spelled(history[:-1], functions, thinking, ended=True)
            opening = prompt.removeprefix(before)
            answer = whole.rpartition(opening)[2] if opening and len(opening) < len(prompt) else ""
        if not answer or history[-1].text.strip() not in answer:
            raise UnfitError("the template shows an answer in another way than the model writes it")
        return answer

    def messages(
        self, history: Sequence[ChatMessage], functions: Sequence[LeapFunction] = (), passed_over: Collection[int] = ()
    ) -> dict[str, Any]:
        """``messages`` and, where there are any, ``tools`` as the template takes them; answers that are ``passed_over``
        have OpenAI's ``weight`` 0. Raises UnfitError."""
        try:
            value = self.template.variables(history, functions, self.parser)
        except LeapError as error:
            raise UnfitError(error.message) from None
        answers = [n for n, message in enumerate(history) if message.role is ChatMessageRole.ASSISTANT]
        shaped = [message for message in value["messages"] if message["role"] == "assistant"]
        for n, message in zip(answers, shaped, strict=True):
            if n in passed_over:
                message["weight"] = 0
        return {name: each for name, each in value.items() if each is not None}

    def _spelled(
        self, history: Sequence[ChatMessage], functions: Sequence[LeapFunction], thinking: bool, *, ended: bool
    ) -> str:
        try:
            pieces = self.template.render(history, functions, parser=self.parser, enable_thinking=thinking, ended=ended)
        except LeapError as error:
            raise UnfitError(error.message) from None
        texts = [piece for piece in pieces if isinstance(piece, str)]
        if len(texts) < len(pieces):
            raise UnfitError("it has pictures or sound")
        if len(texts) > 1:  # as text it would be read as the token
            raise UnfitError("a message spells out a special token of the model")
        text = "".join(texts)
        return text if text.startswith(self.opening) else self.opening + text

    def _without_rest(self, text: str) -> str:
        """The text up to the token that ends its last turn: what follows is the template's and not the model's."""
        shorter = text.rstrip()
        return shorter if shorter.endswith(self.endings) else text


@dataclass(frozen=True)
class Wanted:
    """Which answers are trained on. ``rating``: only those of this rating; None: all but bad ones. ``unedited``: only
    those that a model is known to have written as they are."""

    rating: str | None = None
    unedited: bool = False

    def reason_against(self, mark: Mark) -> str | None:
        """Why an answer is not trained on; None where it is."""
        if mark.finish is not None and mark.finish not in FINISHED:
            return "its answer did not come to its own end"
        if mark.finish is None and self.unedited:
            return "it is not known that its answer is as a model wrote it"
        if self.rating is None:
            return "its answer is rated bad" if mark.rating == "bad" else None
        return None if mark.rating == self.rating else f"its answer is not rated {self.rating}"


ALL = Wanted()


@dataclass(frozen=True)
class TrainingConversation:
    """``history`` ends with an answer. ``functions``: those that the model could call. ``passed_over``: the numbers of
    earlier answers that are context alone, and not trained on."""

    history: Sequence[ChatMessage]
    functions: Sequence[LeapFunction] = field(default=())
    passed_over: frozenset[int] = frozenset()

    def is_test(self, share: float) -> bool:
        """Whether this is one of the ``share`` that the trained model is tested with. What is asked first decides, so
        that a conversation is always on the same side, and with it all that begin like it."""
        first = next((n for n, each in enumerate(self.history) if each.role is ChatMessageRole.USER), 0)
        text = json.dumps([message.to_json() for message in self.history[: first + 1]], sort_keys=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") < share * 2**64


def of_history(
    history: Sequence[ChatMessage],
    functions: Sequence[LeapFunction] = (),
    marks: Sequence[Mark] = (),
    wanted: Wanted = ALL,
) -> TrainingConversation:
    """A conversation up to its last answer that is wanted, without questions that got none. ``marks``: of each message,
    or none of any. Raises UnfitError for one without such an answer, with an empty one, or with a call of a function
    that is not declared."""
    from ..conversation.session_recorder import answered

    of_message = {id(message): mark for message, mark in zip(history, marks, strict=False)}
    kept = list(answered(history))
    reasons = {
        n: wanted.reason_against(of_message.get(id(message), UNMARKED))
        for n, message in enumerate(kept)
        if message.role is ChatMessageRole.ASSISTANT
    }
    if not reasons:
        raise UnfitError("there is no answer in it")
    last = max((n for n, reason in reasons.items() if reason is None), default=-1)
    if last < 0:
        raise UnfitError(str(reasons[max(reasons)]))
    kept = kept[: last + 1]
    names = {function.name for function in functions}
    for message in kept:
        if message.role is ChatMessageRole.ASSISTANT and not (message.text.strip() or message.function_calls):
            raise UnfitError("an answer in it is empty")
        for call in message.function_calls or ():
            if call.name not in names:
                raise UnfitError(f"it calls {call.name!r}, which no tool declares")
    calls = any(message.function_calls for message in kept)
    passed_over = frozenset(n for n, reason in reasons.items() if reason is not None and n < last)
    return TrainingConversation(kept, functions if calls else (), passed_over)


def of_answer(asked: Request, answer: ChatMessage, mark: Mark, wanted: Wanted = ALL) -> TrainingConversation:
    """One answer and what was asked for it, of the log, a job or a batch. Raises UnfitError, also where the answer is
    not whole, or not the document that it was to be."""
    messages, functions, options = asked.messages, asked.functions, asked.options
    if options.stop:
        raise UnfitError("its answer did not come to its own end")
    if options.tool_choice == "none":  # the model was not shown them
        functions = ()
    schema = options.json_schema_constraint
    if schema is not None:
        from ..inference.constraints import inject_schema
        from ..schemas.json_schema import read_schema

        try:
            if options.inject_schema_into_prompt:
                messages = inject_schema(list(messages), schema)
            problems = read_schema(schema).problems(answer.text)
        except LeapError as error:
            raise UnfitError(error.message) from None
        if problems and mark.finish in FINISHED:
            raise UnfitError("its answer is not a document of its schema")
    marks = [*[UNMARKED] * len(messages), mark]
    conversation = of_history([*messages, answer], functions, marks, wanted)
    earlier = [n for n, each in enumerate(conversation.history[:-1]) if each.role is ChatMessageRole.ASSISTANT]
    return replace(conversation, functions=functions, passed_over=frozenset(earlier))


def of_entry(entry: Entry, wanted: Wanted = ALL) -> TrainingConversation:
    """An entry of the log of prompts. Raises UnfitError, also where the log does not hold all of it."""
    from ..conversation.prompt_log import request_of

    if entry.is_trial:
        raise UnfitError(f"leap {entry.command} asked it")
    try:
        asked = request_of(entry)
    except LeapError as error:
        raise UnfitError(error.message) from None
    answer = ChatMessage("assistant", entry.answer, entry.reasoning)
    return of_answer(asked, answer, Mark(entry.finish or "", entry.rating), wanted)


def redacted(history: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages with one mask for each item, the same in all of them, calls' arguments included. Raises
    UnfitError."""
    texts: list[str] = []

    def collect(text: str) -> str:
        texts.append(text)
        return text

    for message in history:
        _changed(message, collect)
    between = next((each for each in SEAMS if not any(each in text for text in texts)), None)
    if between is None:
        raise UnfitError("its texts contain all of Unicode's noncharacters U+FDD0 to U+FDD7")
    entities: dict[str, list[str]] = {}
    for text in texts:
        for category, items in found_by_pattern(text).items():
            entities.setdefault(category, []).extend(items)
    masked = iter(mask(between.join(texts), entities)[0].split(between))
    return [_changed(message, lambda _: next(masked)) for message in history]


def _changed(message: ChatMessage, change: Callable[[str], str]) -> ChatMessage:
    """The message with each of its texts changed, in an order that is always the same."""
    parts = [Text(change(part.text)) if isinstance(part, Text) else part for part in message.content]
    reasoning = message.reasoning_content
    calls = [
        LeapFunctionCall(call.name, deeply(dict(call.arguments), change), call.id)
        for call in message.function_calls or ()
    ]
    return ChatMessage(
        message.role, parts, None if reasoning is None else change(reasoning), calls, message.tool_call_id
    )


Reading = Callable[[], TrainingConversation]
"""Makes a conversation, or raises UnfitError."""
FINISHES = {"stop": "stop", "tool_calls": "stop"}
"""OpenAI's words for an answer that came to its own end, and leap's."""


def of_journal(
    settings: BatchSettings, variables: Mapping[str, str], cwd: Path, wanted: Wanted = ALL
) -> Iterator[Reading]:
    """The answered lines of a batch, by its journal. Raises LeapError where its input or its journal is gone."""
    output = settings.output
    path = Path(output.journal) if output.journal else journal_path(Path(output.path))
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
                f"{place} is no result of a line of {lines.name}", path=results.name, hint=order
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
        if not isinstance(line, LineRequest) or line.task is not None:
            raise UnfitError("the line asks for no answer to a conversation")
        return of_answer(line, answer, Mark(finish), wanted)

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

"""One line of the log: what was asked of a model, and what came of it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import LeapError
from ..messages import ChatMessage, ChatMessageRole, Text
from ..options import GenerationOptions
from ..responses import Complete

if TYPE_CHECKING:
    from ..runner.generator import Generator


@dataclass
class Entry:
    """``asked`` is seconds since 1970, ``seconds`` how long the answer took. ``command``: who asked, such as
    ``generate``. ``prompt``: what was said since the last answer; pictures and sound are named, not kept. ``turns``:
    messages before that. ``options``: those that differ from the model's own, without the shape. ``schema``: the JSON
    schema that the answer was held to, as text. ``finish``: why the answer ended; None where ``error`` says why there
    is none. ``rating``: good, bad, or None. ``made_by``: what the same answer depends on besides the request, see
    ``made_by``. ``id``: its number in the log, 0 before it is in one."""

    command: str
    model: str
    prompt: str
    system: str | None = None
    turns: int = 0
    answer: str = ""
    reasoning: str | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    schema: str | None = None
    finish: str | None = None
    error: str | None = None
    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    asked: float = field(default_factory=time.time)
    seconds: float = 0.0
    rating: str | None = None
    made_by: dict[str, Any] = field(default_factory=dict)
    id: int = 0

    def end(self, complete: Complete, seconds: float) -> None:
        """Take note of the answer."""
        message, stats = complete.full_message, complete.stats
        self.answer, self.reasoning = message.text, message.reasoning_content
        self.calls = [call.to_json()["function"] for call in message.function_calls or ()]
        self.finish, self.seconds = complete.finish_reason.value, seconds
        if stats is not None:
            self.prompt_tokens, self.answer_tokens = stats.prompt_tokens, stats.completion_tokens

    def fail(self, error: LeapError, seconds: float) -> None:
        """Take note that there is none."""
        self.error, self.seconds = error.message, seconds

    def to_json(self) -> dict[str, Any]:
        """All of it; ``schema`` as the document that it is."""
        schema = None if self.schema is None else json.loads(self.schema)
        return {"id": self.id, **asdict(self), "schema": schema}


def entry_of(command: str, model: str, messages: Sequence[ChatMessage], options: GenerationOptions | None) -> Entry:
    """The beginning of an entry: what is asked."""
    system = next((each.text for each in messages if each.role is ChatMessageRole.SYSTEM), None)
    talk = [each for each in messages if each.role is not ChatMessageRole.SYSTEM]
    ends = [n for n, each in enumerate(talk, 1) if each.role is ChatMessageRole.ASSISTANT]
    turns = ends[-1] if ends else 0
    prompt = "\n\n".join(described(each) for each in talk[turns:])
    return Entry(command, model, prompt, system=system, turns=turns, **_options(options))


def text_entry(command: str, model: str, text: str, options: GenerationOptions | None) -> Entry:
    """The beginning of an entry of a text that the model goes on from."""
    return Entry(command, model, text, **_options(options))


def made_by(runner: Generator) -> dict[str, Any]:
    """The version of leap, which brings its llama.cpp, and in hexadecimal the weights, where the runner knows them."""
    weights = runner.decision_model.fingerprint
    return {"leap": __version__, **({"weights": weights} if weights else {})}


def described(message: ChatMessage) -> str:
    """A message's text, with a mark where a picture or a sound stood."""
    parts = (part.text if isinstance(part, Text) else f"[{type(part).__name__.lower()}]" for part in message.content)
    return "\n".join(parts)


def canonical(schema: object) -> str:
    """A text that is equal for equal schemas."""
    return json.dumps(schema, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _options(options: GenerationOptions | None) -> dict[str, Any]:
    if options is None:
        return {}
    plain = GenerationOptions().to_json()
    values = {name: value for name, value in options.to_json().items() if value != plain.get(name)}
    schema = values.pop("json_schema_constraint", None)
    try:
        text = None if schema is None else canonical(json.loads(schema))
    except ValueError:  # the generation says what is wrong with it
        text = None
    return {"options": values, "schema": text}

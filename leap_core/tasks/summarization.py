"""Summaries, piece by piece where a text is too long for the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..conversation.messages import ChatMessage
from ..errors import LeapOptionsError
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from .task import Prompt, Task, TaskAnswer, TaskModel, head_of, pieces_that_fit, text_of

DEEPEST = 20


@dataclass(frozen=True)
class Summarize(Task):
    """``kind``: what to write. ``instructions``: the words for each kind."""

    kind: str
    instructions: Mapping[str, str]

    name = "summarize"
    places = frozenset({"text", "kind"})

    def __post_init__(self) -> None:
        if self.kind not in self.instructions:
            raise LeapOptionsError("kind", f"{self.kind!r} is not one of {', '.join(self.instructions)}")

    def to_json(self) -> JsonObject:
        return {"task": self.name, "kind": self.kind}

    def prompts(self, model: TaskModel, message: ChatMessage) -> Iterator[Prompt]:
        options = model.options()
        return ((self._messages(model, piece), options) for piece in self._pieces(model, text_of(message)))

    def answer(self, model: TaskModel, message: ChatMessage, name: str) -> TaskAnswer:
        return TaskAnswer(self._summary(model, text_of(message), 0))

    def _summary(self, model: TaskModel, text: str, level: int) -> str:
        pieces = self._pieces(model, text)
        if len(pieces) == 1:
            model.tell(f"{'  ' * level}1 piece of {len(text)} characters: its summary is the result")
            return model.stripped_text(self._messages(model, pieces[0]), model.options())
        model.tell(f"{'  ' * level}{len(pieces)} pieces of {len(text)} characters")
        summaries = []
        for number, piece in enumerate(pieces, 1):
            summaries.append(model.text(self._messages(model, piece), model.options()).strip())
            model.tell(
                f"{'  ' * level}  {number} of {len(pieces)}: {len(piece)} characters, summary of {len(summaries[-1])}"
            )
        head = head_of(text)[0]
        joined = head + "\n\n".join(summary for summary in summaries if summary)
        if level == DEEPEST or len(joined) >= len(text):
            model.tell(f"{'  ' * level}the summaries together are not shorter: they are listed one after another")
            joined = joined[len(head) :]
            model.put(joined)
            return joined
        return self._summary(model, joined, level + 1)

    def _messages(self, model: TaskModel, text: str) -> list[ChatMessage]:
        return model.wording.messages({"kind": self.instructions[self.kind], "text": text})

    def _pieces(self, model: TaskModel, text: str) -> list[str]:
        """Pieces that fit; each piece of a transcript has its head."""
        head, body = head_of(text)
        pieces = pieces_that_fit(
            body, lambda piece: model.fits(self._messages(model, head + piece)), model.most_characters
        )
        return [head + piece for piece in pieces if piece.strip()] or [text]

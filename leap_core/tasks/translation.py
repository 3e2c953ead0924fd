"""Translation, piece by piece where a text is too long for the model."""

from __future__ import annotations

from ..json_fields import JsonObject
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import LeapOptionsError
from ..messages import ChatMessage
from ..options import GenerationOptions
from .languages import language_of
from .pieces import pieces_that_fit
from .task import Prompt, Task, TaskAnswer, TaskModel, text_of


@dataclass(frozen=True)
class Translate(Task):
    """``to`` and ``source`` are codes or names of languages; without ``source`` the model finds out. Raises
    LeapOptionsError for what is no language."""

    to: str
    source: str | None = None

    name = "translate"
    places = frozenset({"text", "language", "from"})

    def __post_init__(self) -> None:
        if self.source is not None and language_of(self.source, "from") == language_of(self.to):
            raise LeapOptionsError("from", f"{language_of(self.to)} is the language of the text and of its translation")
        language_of(self.to)

    def to_json(self) -> JsonObject:
        return {"task": self.name, "to": self.to, **({"from": self.source} if self.source is not None else {})}

    def prompts(self, model: TaskModel, message: ChatMessage) -> Iterator[Prompt]:
        options = self._options(model)
        return ((self._messages(model, piece.strip()), options) for piece in self._pieces(model, message))

    def answer(self, model: TaskModel, message: ChatMessage, name: str) -> TaskAnswer:
        options = self._options(model)
        pieces = list(self._pieces(model, message))
        translated = ""
        for number, piece in enumerate(pieces, 1):
            if len(pieces) > 1:
                model.tell(f"piece {number} of {len(pieces)}")
            translated += model.stripped_text(self._messages(model, piece.strip()), options)
            if number < len(pieces):  # the white space that was between them
                space = piece[len(piece.rstrip()) :] or " "
                translated += space
                model.put(space)
        return TaskAnswer(translated)

    def _options(self, model: TaskModel) -> GenerationOptions:
        languages = [language_of(self.to), *([language_of(self.source, "from")] if self.source is not None else [])]
        only = model.wording.only
        if only is not None and not set(languages) <= set(only):
            raise LeapOptionsError("to", f"{model.runner.model_id} knows {' and '.join(only)} only")
        return model.options()

    def _messages(self, model: TaskModel, text: str) -> list[ChatMessage]:
        source = f" from {language_of(self.source, 'from')}" if self.source is not None else ""
        return model.wording.messages({"language": language_of(self.to), "from": source, "text": text})

    def _pieces(self, model: TaskModel, message: ChatMessage) -> Iterator[str]:
        text = text_of(message).strip()
        pieces = pieces_that_fit(text, lambda piece: model.fits(self._messages(model, piece)), model.most_characters)
        whole = ""
        for piece in pieces:  # a piece of white space alone goes with the one before it
            if piece.strip() and whole.strip():
                yield whole
                whole = piece
            else:
                whole += piece
        yield whole

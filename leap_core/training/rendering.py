"""A conversation as a model is trained on it: text by the chat template that serves it, and what the loss counts.

The prompt of every answer is exactly the one that the model would get. A conversation is one text where the template
shows earlier answers as the model wrote them; where it does not, as with reasoning that it leaves out of the past,
another text begins.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..chat_format.chat_template import ChatTemplate
from ..errors import LeapError, LeapGenerationError
from ..messages import ChatMessage, ChatMessageRole

if TYPE_CHECKING:
    from ..functions import LeapFunction
    from ..llama.model import LlamaModel
    from ..options import FunctionCallParser


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
        from ..in_process.prompt_maker import parser_of_model, read_template

        read = read_template(model, template)
        if read is None:
            raise LeapGenerationError(f"{model.path.name} has no chat template, which training data needs")
        endings = tuple(text for text, token in model.special_tokens.items() if token in model.eog_tokens)
        opening = model.bos_text if model.bos_token is not None else ""
        return TrainingTemplate(read, parser_of_model(model, parser_name), opening, endings)

    def rendered(
        self,
        history: Sequence[ChatMessage],
        functions: Sequence[LeapFunction] = (),
        passed_over: Collection[int] = (),
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
        self,
        history: Sequence[ChatMessage],
        functions: Sequence[LeapFunction] = (),
        passed_over: Collection[int] = (),
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

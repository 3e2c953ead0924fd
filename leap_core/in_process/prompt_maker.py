"""From messages or plain text to the prompt of a request: chat template, call parser, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..chat_format.chat_template import THINK_START, ChatTemplate
from ..chat_format.reply_tokens import ReplyMemory
from ..engine.prompt import Prompt, boundaries_of
from ..errors import LeapGenerationError
from ..llama.model import LlamaModel
from ..messages import ChatMessage
from ..options import AUTO, FunctionCallParser, GenerationOptions
from .voice import as_text

if TYPE_CHECKING:
    from ..functions import LeapFunction


@dataclass(frozen=True)
class MadePrompt:
    """``pieces`` of text, cut where a special token that a user typed must stay text, and what the engine makes of
    them."""

    pieces: tuple[str, ...]
    prompt: Prompt

    @property
    def opens_reasoning(self) -> bool:
        """Whether the prompt ends within reasoning, as the templates of some models make it."""
        return bool(self.pieces) and self.pieces[-1].rstrip().endswith(THINK_START)


class PromptMaker:
    """Makes the prompts of one model. ``template``: Jinja text in the place of the model's own. ``parser_name``: how
    the model writes calls, "auto" to tell by its vocabulary. Any thread may call."""

    def __init__(self, model: LlamaModel, template: str | None, parser_name: str = AUTO) -> None:
        self._model = model
        self._template = _read_template(model, template)
        self._parser = _parser_of_model(model, parser_name)
        self._replies = ReplyMemory(model.special_tokens)

    def of_messages(
        self,
        messages: Sequence[ChatMessage],
        functions: Sequence[LeapFunction],
        options: GenerationOptions,
    ) -> MadePrompt:
        """The prompt for the reply to ``messages``. Raises LeapGenerationError when the model has no chat template."""
        if self._template is None:
            raise LeapGenerationError(
                f"{self._model.path.name} has no chat template, so it can only go on from raw text",
                hint="give a template with --chat-template (the chat_template option), or the prompt as raw text",
            )
        parser = self.parser_for(options) or self._parser
        pieces = self._template.render(
            _with_schema(as_text(messages), options), functions, parser=parser, enable_thinking=options.enable_thinking
        )
        return self._made(pieces)

    def of_text(self, text: str) -> MadePrompt:
        """The prompt that ``text`` is, special tokens read where it spells them."""
        return self._made([text])

    def text_of(self, made: MadePrompt) -> str:
        """The whole text of a prompt, special tokens spelled out."""
        model, text = self._model, "".join(made.pieces)
        if model.bos_token is not None and not (made.pieces and made.pieces[0].startswith(model.bos_text)):
            text = model.bos_text + text
        return text

    def size(self, made: MadePrompt, *, with_bos: bool = True) -> int:
        """Tokens of a prompt; ``with_bos`` counts the one that opens it."""
        bos = self._model.bos_token
        return len(made.prompt) - (bos is not None and made.prompt.keys[:1] == [bos] and not with_bos)

    def keep_reply(self, made: MadePrompt, target: Sequence[int]) -> None:
        """Remember the tokens of a prompt and its reply, so that the next turn begins with exactly these."""
        reply = self._model.text_of(target[len(made.prompt) :])
        self._replies.keep(made.pieces, reply, target)

    def parser_for(self, options: GenerationOptions) -> FunctionCallParser | None:
        """The parser that the options name; None for raw text."""
        chosen = options.function_call_parser
        if chosen == AUTO:
            return self._parser
        if isinstance(chosen, str):
            from ..functions import parser_named

            return parser_named(chosen)
        return chosen

    def warnings(self, functions: Sequence[LeapFunction]) -> tuple[str, ...]:
        """What the user should know about functions that the template has no place for."""
        if not functions or self._template is None or self._template.renders_functions:
            return ()
        return ("the model's chat template has no place for functions, so the model does not know of them",)

    def _made(self, pieces: Sequence[str]) -> MadePrompt:
        model = self._model
        start, rest = self._replies.beginning(pieces)
        ids = [*start, *(token for piece in rest for token in model.tokenize(piece, parse_special=True))]
        if model.bos_token is not None and ids[:1] != [model.bos_token]:
            ids.insert(0, model.bos_token)
        boundaries = boundaries_of(ids, model.eog_tokens, model.control_tokens)
        return MadePrompt(tuple(pieces), Prompt.of_tokens(ids, boundaries))


def _with_schema(messages: Sequence[ChatMessage], options: GenerationOptions) -> Sequence[ChatMessage]:
    """The messages as the model sees them: with the schema of its answer, unless the options keep it out."""
    if options.json_schema_constraint is None or not options.inject_schema_into_prompt:
        return messages
    from ..constraints import inject_schema

    return inject_schema(messages, options.json_schema_constraint)


def _read_template(model: LlamaModel, override: str | None) -> ChatTemplate | None:
    source = override or model.chat_template
    if not source:
        return None
    return ChatTemplate(source, bos_text=model.bos_text, eos_text=model.eos_text, special_texts=model.special_tokens)


def _parser_of_model(model: LlamaModel, name: str) -> FunctionCallParser:
    from ..functions import parser_named

    if name != AUTO:
        return parser_named(name)
    hermes, lfm = parser_named("hermes"), parser_named("lfm")
    tokens = model.special_tokens
    return hermes if hermes.start_marker in tokens and lfm.start_marker not in tokens else lfm

"""From messages or plain text to the prompt of a request: chat template, call parser, tokens.

Its kind is in ``<architecture>.decision.type``, its temperatures in ``<architecture>.decision.temperature.…``, by kind
of question (``choice``) and number of options (``choice.3_5``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ..conversation.generator import DecisionModel, check_wanted
from ..conversation.messages import Audio, ChatMessage, ChatMessageContent, ChatMessageRole, Image, Speech, Text
from ..conversation.options import AUTO, FunctionCallParser, GenerationOptions
from ..conversation.page_pictures import RefusedPart, naming_media, without_pages
from ..errors import (
    LeapGenerationError,
    LeapGenerationPromptExceedContextLengthError,
    LeapModelLoadingError,
    LeapOptionsError,
    LeapUnsupportedMediaError,
)
from ..schemas.grammar_matcher import REASONING_TAGS
from ..system.dataclass import dataclass
from .engine.request import Embeddings, PromptTokens, Segment, Tokens, boundaries_of
from .llama.model import LlamaModel
from .media import MediaSegments, ReadsMedia, check_count
from .template.chat_template import ChatTemplate
from .template.reply import Piece, ReplyMemory

if TYPE_CHECKING:
    from ..conversation.calls import LeapFunction
    from .template.learning import ReplyFormat
    from .voice import ModelVoice


@dataclass(frozen=True)
class MadePrompt:
    """``pieces`` of text, cut where a special token that a user typed must stay text, with the keys of media among
    them, and what the engine makes of them. ``media`` are the segments by key; ``warnings`` are for the user."""

    pieces: tuple[Piece, ...]
    prompt: PromptTokens
    media: Mapping[bytes, MediaSegments] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    """Of the messages that it was made of."""
    left_out: tuple[str, ...] = ()
    """Pages of documents that the model does not see."""
    reasoning_starts: tuple[str, ...] = tuple(start for start, _ in REASONING_TAGS)
    """What begins reasoning in the replies of the model."""

    @property
    def opens_reasoning(self) -> bool:
        """Whether the prompt ends within reasoning, as the templates of some models make it."""
        last = self.pieces[-1] if self.pieces else b""
        return isinstance(last, str) and last.rstrip().endswith(self.reasoning_starts)


class PromptMaker:
    """Makes the prompts of one model. ``template``: Jinja text in the place of the model's own. ``parser_name``: how
    the model writes calls, "auto" to decide by its template and vocabulary. ``media`` gives what reads pictures and
    sound. Any thread may call."""

    def __init__(
        self, model: LlamaModel, template: str | None, parser_name: str = AUTO, *, media: Callable[[], SpokenHistory]
    ) -> None:
        self._model = model
        self._open_media = media
        self._template = read_template(model, template)
        self._format = format_of_model(model, parser_name, template, self._template)
        self._parser = self._format.parser
        self._replies = ReplyMemory(model.special_tokens)
        self._special = frozenset(model.special_tokens.values())

    @cached_property
    def _media(self) -> SpokenHistory:
        return self._open_media()

    @cached_property
    def _decisions(self) -> DecisionPrompts:

        return DecisionPrompts(self._model)

    def of_messages(
        self,
        messages: Sequence[ChatMessage],
        functions: Sequence[LeapFunction],
        options: GenerationOptions,
        within: int | None = None,
    ) -> MadePrompt:
        """The prompt for the reply to ``messages``. Raises LeapGenerationError when the model has no chat template, and
        for one that is much longer than ``within`` tokens without making it."""
        if options.decision is not None:
            return self._made(self._decisions.pieces(options.decision, messages), options, within)
        if self._template is None:
            raise LeapGenerationError(
                f"{self._model.path.name} has no chat template, so it can only complete raw text",
                hint="give a template with --chat-template (the chat_template option), or the prompt as raw text",
            )
        if within is not None:  # what the model said a template may leave out
            texts = [message.text for message in messages if message.role is not ChatMessageRole.ASSISTANT]
            check_length(self._model, texts, within)
        parser = self.parser_for(options) or self._parser
        left_out: tuple[str, ...] = ()
        if not all(isinstance(part, Text) for message in messages for part in message.content):
            messages = self._media.readable(messages)
            if not self._media.sees:
                messages, left_out = without_pages(messages)
        if options.tool_choice == "none":  # a model that is shown functions writes calls as text
            functions = ()
        pieces = self._template.render(
            self._with_schema(messages, options),
            [function for function in functions if not function.deferred],
            parser=parser,
            enable_thinking=options.enable_thinking,
            kwargs=options.chat_template_kwargs,
        )
        roles = tuple(message.role.value for message in messages)
        with naming_media(messages):
            return replace(self._made(pieces, options, within), roles=roles, left_out=left_out)

    def of_text(self, text: str | Sequence[int], within: int | None = None) -> MadePrompt:
        """The prompt that ``text`` is, special tokens read where it spells them; token ids are taken as they are."""
        if isinstance(text, str):
            return self._made([text], GenerationOptions(), within)
        self._model.check_tokens(text)
        ids = tuple(text)
        ends = boundaries_of(ids, self._model.eog_tokens, self._model.control_tokens)
        return MadePrompt((), PromptTokens((Tokens(ids),), tuple(sorted(set(ends)))))

    def text_of(self, made: MadePrompt) -> str:
        """The whole text of a prompt, special tokens spelled out; a medium is shown by what it costs."""
        model = self._model
        text = "".join(piece if isinstance(piece, str) else _shown(made.media[piece], model) for piece in made.pieces)
        if model.bos_token is not None and not text.startswith(model.bos_text):
            text = model.bos_text + text
        return text

    def size(self, made: MadePrompt, *, with_bos: bool = True) -> int:
        """Tokens of a prompt; ``with_bos`` counts the one that opens it."""
        bos = self._model.bos_token
        return len(made.prompt) - (bos is not None and made.prompt.keys[:1] == [bos] and not with_bos)

    def keep_reply(self, made: MadePrompt, target: Sequence[int]) -> None:
        """Remember the tokens of a prompt and its reply, so that the next turn begins with exactly these."""
        if not made.pieces:
            return  # it was given as tokens, which need not be those of its text
        ids = target[len(made.prompt) :]
        special = sum(token in self._special for token in ids)
        self._replies.keep(made.pieces, self._model.text_of(ids), target, special)

    def parser_for(self, options: GenerationOptions) -> FunctionCallParser | None:
        """The parser that the options name; None for raw text."""
        chosen = options.function_call_parser
        if chosen == AUTO:
            return self._parser
        if isinstance(chosen, str):
            from ..conversation.calls import parser_named

            return parser_named(chosen)
        return chosen

    def warnings(self, functions: Sequence[LeapFunction], options: GenerationOptions) -> tuple[str, ...]:
        """What the user should know about functions that the template has no place for, and calls that may not be
        read."""
        if not functions or self._template is None or options.tool_choice == "none":
            return ()
        if not self._template.renders_functions:
            return ("the model's chat template has no place for functions, so the model does not know of them",)
        is_guessed = not self._format.is_known and self.parser_for(options) is self._parser
        return (UNKNOWN_CALLS,) if is_guessed else ()

    def _made(
        self, pieces: Sequence[str | ChatMessageContent], options: GenerationOptions, within: int | None = None
    ) -> MadePrompt:
        media: dict[bytes, MediaSegments] = {}
        texts: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, str):
                texts.append(piece)
            else:
                if not media:
                    check_count([other for other in pieces if not isinstance(other, (str, Speech))])
                try:
                    medium = self._media.read(piece, options)
                except LeapUnsupportedMediaError as error:
                    error.__cause__ = RefusedPart(piece)
                    raise
                media[medium.key] = medium
                texts.append(medium.key)
        if within is not None:
            check_length(self._model, [text for text in texts if isinstance(text, str)], within)
        warnings = tuple(dict.fromkeys(warning for medium in media.values() for warning in medium.warnings))
        made = MadePrompt(tuple(texts), self._prompt(texts, media), media, warnings)
        own: tuple[str, ...] = getattr(self.parser_for(options) or self._parser, "reasoning", ())[:1]
        return replace(made, reasoning_starts=(*made.reasoning_starts, *own))

    def _prompt(self, pieces: Sequence[Piece], media: Mapping[bytes, MediaSegments]) -> PromptTokens:
        model = self._model
        start, rest = self._replies.beginning(pieces)
        run = _SegmentList()
        read_before = [piece for piece in pieces if isinstance(piece, bytes)]
        read_before = read_before[: len(read_before) - sum(isinstance(piece, bytes) for piece in rest)]
        run.add_keys(start, [media[key] for key in read_before])
        for piece in rest:
            if isinstance(piece, bytes):
                run.add_medium(media[piece])
            else:
                run.add_tokens(model.tokenize(piece, parse_special=True))
        prompt = PromptTokens(run.segments())
        if model.bos_token is not None and prompt.keys[:1] != [model.bos_token]:
            run.open_with(model.bos_token)
            prompt = PromptTokens(run.segments())
        ends = boundaries_of(prompt.keys, model.eog_tokens, model.control_tokens)
        boundaries = sorted({*ends, *(end for end in run.media_ends if end < len(prompt))})
        return PromptTokens(prompt.segments, tuple(boundaries))

    def _with_schema(self, messages: Sequence[ChatMessage], options: GenerationOptions) -> Sequence[ChatMessage]:
        """The messages as the model sees them: with the schema of its answer, unless the options keep it out."""
        schema = options.json_schema_constraint
        if schema is None or not options.inject_schema_into_prompt:
            return messages
        from .constraints import inject_schema
        from .constraints.shape_prompts import ask_for_fields, extracts_from_pictures

        extraction = ask_for_fields(messages, schema) if extracts_from_pictures(self._model.path.name) else None
        return inject_schema(messages, schema) if extraction is None else extraction


class _SegmentList:
    """Segments of a prompt in the making: tokens that follow each other become one."""

    def __init__(self) -> None:
        self._segments: list[list[int] | Embeddings] = []
        self._length = 0
        self.media_ends: list[int] = []
        """Where another question about the same medium begins to differ: after its last row."""

    def add_tokens(self, ids: Sequence[int]) -> None:
        if ids and self._segments and isinstance(self._segments[-1], list):
            self._segments[-1].extend(ids)
        elif ids:
            self._segments.append(list(ids))
        self._length += len(ids)

    def add_medium(self, medium: MediaSegments) -> None:
        for segment in medium.segments:
            if isinstance(segment, Tokens):
                self.add_tokens(segment.ids)
            else:
                self._segments.append(segment)
                self._length += segment.length
                end = self._length
        self.media_ends.append(end)

    def add_keys(self, keys: Sequence[int], media: Sequence[MediaSegments]) -> None:
        """Keys of an earlier prompt and its reply, in which the rows of ``media`` are negative numbers."""
        at = 0
        for medium in media:
            first = next(n for n, segment in enumerate(medium.segments) if isinstance(segment, Embeddings))
            row = next(n for n in range(at, len(keys)) if keys[n] < 0)
            before = sum(len(segment.ids) for segment in medium.segments[:first] if isinstance(segment, Tokens))
            self.add_tokens(keys[at : row - before])
            start = self._length
            self.add_medium(medium)
            at = row - before + self._length - start
        self.add_tokens(keys[at:])

    def open_with(self, token: int) -> None:
        self._segments.insert(0, [token])
        self.media_ends = [end + 1 for end in self.media_ends]

    def segments(self) -> tuple[Segment, ...]:
        return tuple(Tokens(tuple(part)) if isinstance(part, list) else part for part in self._segments)


def _shown(medium: MediaSegments, model: LlamaModel) -> str:
    """A medium in a prompt that is printed."""
    return "".join(
        model.text_of(segment.ids) if isinstance(segment, Tokens) else f"[{segment.length} tokens]"
        for segment in medium.segments
    )


def read_template(model: LlamaModel, override: str | None) -> ChatTemplate | None:
    """The model's chat template, or the one in its place; None for a model without any."""
    source = override or model.chat_template
    if not source:
        return None
    return ChatTemplate(source, bos_text=model.bos_text, eos_text=model.eos_text, special_texts=model.special_tokens)


def format_of_model(
    model: LlamaModel, name: str, template: str | None = None, compiled: ChatTemplate | None = None
) -> ReplyFormat:
    """How the model writes calls: as ``name`` says, or with "auto" as its chat template and its vocabulary show."""
    from ..conversation.calls.parsers import parser_named
    from .template.learning import ReplyFormat, format_of_template

    if name != AUTO:
        return ReplyFormat(parser_named(name))
    return format_of_template(compiled, template or model.chat_template or "", model.special_tokens)


UNKNOWN_CALLS = (
    "the model's chat template does not show how it writes function calls: only JSON calls that are the whole reply are"
    " read, other calls stay text (--option tool-call-parser, function_call_parser, names a format)"
)
USUAL_BYTES = 6
"""Texts of more bytes for each token of the context are counted before anything else; languages have three to five."""
PIECE = 32 * 1024
"""Characters that are tokenized in one call: some hundredths of a second, then the client may have left."""
SURELY_LONGER = 2
"""Tokens of pieces are more than those of the whole text, by a few a cut: so many contexts of them never fit."""


def check_length(model: LlamaModel, texts: Sequence[str], context_size: int) -> None:
    """Raises LeapGenerationPromptExceedContextLengthError for texts that together are much longer than the context.

    The work is bounded by the context, whatever the length of the texts: it ends with the piece that shows it."""
    characters = sum(map(len, texts))
    if characters <= context_size * USUAL_BYTES:
        return
    tokens = 0
    for text in texts:
        for start in range(0, len(text), PIECE):
            check_wanted()
            tokens += len(model.tokenize(text[start : start + PIECE], parse_special=True))
            if tokens > SURELY_LONGER * context_size:
                trained = model.trained_context
                raise LeapGenerationPromptExceedContextLengthError(tokens, context_size, at_least=True, trained=trained)


TEMPLATE = "systemone"
TYPES = ("choice", "score", "noul")
SIZES = ("2", "3_5", "6_10", "11")
"""Groups of numbers of options: up to two, and so on."""


def decision_model_of(model: LlamaModel, kind: str) -> DecisionModel:
    """What a file that was made for decisions of this ``kind`` is, without its fingerprint. Raises
    LeapModelLoadingError for one that llama.cpp would refuse: it has no template, or temperatures that are none."""
    if model.template_named(TEMPLATE) is None:
        raise LeapModelLoadingError(
            f"{model.path.name} is made for decisions and has no template {TEMPLATE}", hint="download it again"
        )
    names = [name for each in TYPES for name in (each, *(f"{each}.{size}" for size in SIZES))]
    read = {name: model.metadata(f"ARCH.decision.temperature.{name}") for name in names}
    temperatures = {name: _temperature(name, text, model) for name, text in read.items() if text is not None}
    return DecisionModel(kind, temperatures)


class DecisionPrompts:
    """The prompts of a file's template for decisions, which is compiled when it is first wanted."""

    def __init__(self, model: LlamaModel) -> None:
        self._model = model
        self._template: ChatTemplate | None = None

    def pieces(self, variables: str, messages: Sequence[ChatMessage]) -> list[str | ChatMessageContent]:
        """The prompt in pieces, with the pictures of the messages. Raises LeapOptionsError where the model has no such
        template."""
        if self._template is None:
            source = self._model.template_named(TEMPLATE)
            if source is None:
                raise LeapOptionsError("decision", f"{self._model.path.name} is not made for decisions")
            special = self._model.special_tokens
            self._template = ChatTemplate(source, bos_text="", eos_text="", special_texts=special)
        pictures = [part for message in messages for part in message.content if isinstance(part, Image)]
        return self._template.render_values(json.loads(variables), pictures)


def _temperature(name: str, text: str, model: LlamaModel) -> float:
    value = 0.0
    with suppress(ValueError):
        value = float(text)
    if not value > 0.0:
        raise LeapModelLoadingError(f"{model.path.name} has the temperature {text} of {name}; it must be above 0")
    return value


class SpokenHistory:
    """Reads the parts of messages for a model with ``voice``, or with none; ``media`` reads what is no speech."""

    def __init__(self, voice: ModelVoice | None, media: ReadsMedia) -> None:
        self._voice = voice
        self._media = media
        self.sees = media.sees

    def readable(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """The messages with speech only where this model has said it. Such a message is nothing else: the tokens of its
        text are in the speech. What another model said is its text, and what a user said is sound."""
        return [self._readable(message) for message in messages]

    def read(self, part: ChatMessageContent, options: GenerationOptions) -> MediaSegments:
        """The segments of a part that is no text."""
        if self._voice is not None and isinstance(part, Speech):
            return self._voice.segments(part)
        return self._media.read(part, options)

    def _readable(self, message: ChatMessage) -> ChatMessage:
        speech = [part for part in message.content if isinstance(part, Speech)]
        if not speech:
            return message
        if message.role is not ChatMessageRole.ASSISTANT:
            parts = (Audio(part.data) if isinstance(part, Speech) else part for part in message.content)
            return replace(message, content=tuple(parts))
        if self._voice is not None and all(map(self._voice.can_read, speech)):
            return replace(message, content=tuple(speech))
        return replace(message, content=tuple(part for part in message.content if not isinstance(part, Speech)))

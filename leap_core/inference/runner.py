"""The ModelRunner in this process: prompts in, requests to the scheduler, replies out."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..conversation.conversation import messages_of
from ..conversation.generator import (
    Activity,
    DecisionModel,
    Functions,
    Generation,
    HiddenStates,
    MaybeOptions,
    Messages,
    OnGpu,
    PromptProgress,
    RenderedPrompt,
    TokenizerInfo,
)
from ..conversation.loading_options import LoraAdapter, adapters_of
from ..conversation.messages import ChatMessageRole
from ..conversation.options import (
    AUTO,
    CONSTRAINTS,
    FunctionCallParser,
    GenerationOptions,
    ModelLoadingOptions,
    SamplingDefaults,
    check_options,
    with_source,
)
from ..conversation.priority import INTERACTIVE
from ..conversation.request_facts import RequestFacts
from ..conversation.responses import Chunk, Complete, GenerationFinishReason, MessageResponse, ReasoningChunk
from ..conversation.runner import ModelRunner
from ..conversation.streams import CheckedGeneration
from ..errors import LeapModelLoadingError, LeapOptionsError
from ..schemas.grammar_matcher import reasoning_tags
from .constraints.delayed_end import DelayedEnd
from .engine.repetition import PromptLookup, RepetitionWatch
from .engine.request import Request, SequenceEnd
from .engine.sampler import RUNTIME_DEFAULTS, Sampler, ScoreRecorder
from .engine.thinking import ThinkingLimit
from .gguf.file_names import names_in
from .model_parts import Closing, EarlyOpening, ModelParts, context_size_for, open_scheduler
from .prompt_maker import MadePrompt, PromptMaker
from .speech.voices import asks_to_speak, is_interleaved
from .template.reply import ReplyBuilder

if TYPE_CHECKING:
    from .constraints import CompiledConstraint
    from .embedding_runner import HiddenStateReader
    from .engine.sampler import TokenScore
    from .media import ReadsMedia
    from .model_parts import ModelAdapters
    from .prompt_maker import SpokenHistory
    from .voice import Listener, ModelVoice


class InProcessGeneration(Generation):
    """Reads a submitted ``request`` and builds its ``reply``. ``remember`` is called once that has ended well, and
    ``facts`` at the end. ``listener``: for a request that speaks."""

    def __init__(
        self,
        request: Request,
        reply: ReplyBuilder,
        remember: Callable[[], None],
        listener: Listener | None = None,
        *,
        facts: Callable[[], RequestFacts],
    ) -> None:
        self._sequence = request
        self._facts = facts
        self.prompt_tokens = len(request.prompt)
        self._reply = reply
        self._remember = remember
        self._listener = listener
        self._ready: deque[MessageResponse] = deque()
        self._ended = False
        self._stopped = False
        self._met_stop_string = False
        self._read = 0
        """Tokens and frames that belong to the answer: what the engine made after a stop string does not."""

    @property
    def progress(self) -> PromptProgress:
        return self._sequence.progress

    def __next__(self) -> MessageResponse:
        while not self._ready:
            if self._ended:
                raise StopIteration
            self._receive()
        return self._ready.popleft()

    def _receive(self) -> None:
        event = self._sequence.events.get()
        if isinstance(event, SequenceEnd):
            self._ended = True
            if event.error is not None:
                raise event.error
            self._remember()
            if self._listener is not None:
                self._ready.extend(self._listener.end())
                self._reply.add_speech(self._listener.speech)
            stats, (scores, prompt_scores) = event.stats, self._scores()
            if self._met_stop_string:
                total = stats.prompt_tokens + self._read
                stats, scores = replace(stats, completion_tokens=self._read, total_tokens=total), scores[: self._read]
            for response in self._reply.finish(self._reason(event), stats, scores, prompt_scores):
                if isinstance(response, Complete):
                    response = replace(response, facts=self._facts())
                self._ready.append(response)
        elif self._stopped or self._met_stop_string:
            return
        elif isinstance(event, tuple):
            self._read += 1
            assert self._listener is not None
            self._ready.extend(self._listener.take_frame(event))
        elif self._listener is None and (responses := self._reply.feed_run(event)) is not None:
            self._read += len(event)
            self._ready.extend(responses)
        else:
            for token in event:
                self._take_token(token)

    def _take_token(self, token: int) -> None:
        """Responses of the tokens that came together are joined, where they are pieces of one text."""
        if self._met_stop_string:
            return
        self._read += 1
        if self._listener is not None:
            self._listener.take_token(token)
        for response in self._reply.feed(token):
            last = self._ready[-1] if self._ready else None
            if isinstance(response, Chunk) and isinstance(last, Chunk):
                self._ready[-1] = Chunk(last.text + response.text)
            elif isinstance(response, ReasoningChunk) and isinstance(last, ReasoningChunk):
                self._ready[-1] = ReasoningChunk(last.reasoning + response.reasoning)
            else:
                self._ready.append(response)
        if self._reply.met_stop_string:
            self._met_stop_string = True
            self._sequence.cancel()

    def _scores(self) -> tuple[Sequence[TokenScore], Sequence[TokenScore]]:
        recorder = self._sequence.prompt_recorder
        return self._sequence.scores, recorder.scores if recorder is not None else ()

    def _reason(self, event: SequenceEnd) -> GenerationFinishReason:
        if self._met_stop_string:
            return GenerationFinishReason.STOP
        if self._stopped:
            return GenerationFinishReason.INTERRUPTED
        constraint, watch = self._sequence.constraint, self._sequence.watch
        if isinstance(constraint, DelayedEnd):
            constraint = constraint.inner
        if event.reason is GenerationFinishReason.REPETITION and watch is not None:
            self._reply.warn(
                f"the answer repeats {watch.period} tokens and was stopped (--option repetition-detection=false)"
            )
        if constraint is None:
            return event.reason
        from .constraints.compiling import FinishingConstraint

        if not isinstance(constraint, FinishingConstraint) or not constraint.cut:
            return event.reason
        self._reply.warn(f"the JSON was completed early to fit the last {constraint.room} tokens")
        by_option = self._sequence.max_tokens == constraint.room
        return GenerationFinishReason.MAX_TOKENS if by_option else GenerationFinishReason.EXCEED_CONTEXT

    def stop(self) -> None:
        self._stopped = True  # tokens that were generated ahead of the reader are dropped: the answer ends here
        self._sequence.cancel()

    def __del__(self) -> None:
        self._sequence.cancel()

    def close(self) -> None:
        self._sequence.cancel()
        while not self._ended:  # nothing goes on behind the caller's back
            self._ended = isinstance(self._sequence.events.get(), SequenceEnd)
        self._ready.clear()
        if self._listener is not None:
            self._listener.close()


TEXT_DEFAULTS = SamplingDefaults(temperature=0.0)
"""A speaking model's text is the likeliest; only its sound is drawn."""


class InProcessRunner(ModelRunner):
    """A model loaded into this process, with a scheduler over its context.

    ``path``: a GGUF that ``gguf.header.read_gguf_header`` found sound. ``defaults``: sampling that the manifest or the
    catalogue recommends. ``parser_name``: how the model writes calls, "auto" to decide by its vocabulary. ``hold`` is
    closed with the model: what keeps the file from being removed meanwhile. The options' ``mm_proj_path`` names the
    projector of a model that sees or hears. ``mute``: why the model has no voice although one is beside it.
    ``opening``: of the same file, where it has begun. Raises LeapModelLoadingError.
    """

    def __init__(
        self,
        path: Path,
        model_id: str,
        options: ModelLoadingOptions,
        *,
        defaults: SamplingDefaults | None = None,
        parser_name: str = AUTO,
        hold: Closing | None = None,
        mute: str | None = None,
        opening: EarlyOpening | None = None,
    ) -> None:
        self._model_id = model_id
        self._guard = threading.Lock()
        self._options = options = options.with_extras()
        own = TEXT_DEFAULTS if options.audio_decoder_path else SamplingDefaults()
        self._defaults = (defaults or SamplingDefaults()).over(own).over(RUNTIME_DEFAULTS)
        opening = opening or EarlyOpening(path, options)
        self.model = opening.take()
        parts: list[Closing] = [self.model]
        self.media: ReadsMedia | None = None
        self._voice: ModelVoice | None = None
        self._mute = mute
        try:
            if not self.model.can_generate:
                raise LeapModelLoadingError(
                    f"{path.name} makes embeddings and cannot answer a prompt",
                    hint="give another model with -m; `leap embed` uses this one",
                )
            self._header_names = names_in(self.model.metadata)
            self._decisions = DecisionModel()
            if kind := self.model.metadata("ARCH.decision.type"):
                from .prompt_maker import decision_model_of

                self._decisions = decision_model_of(self.model, kind)
            if options.mm_proj_path is not None:
                from .media import open_projector

                projector, self.media = open_projector(options.mm_proj_path, self.model, options)
                parts.insert(0, projector)
            if options.audio_decoder_path is not None:
                from .voice import open_voice

                self._voice = open_voice(options.audio_decoder_path, options.audio_tokenizer_path, self.model)
                parts.insert(0, self._voice)
            reader = partial(_media_reader, self._voice, self.media, model_id, path)
            self._prompts = PromptMaker(self.model, options.chat_template, parser_name, media=reader)
            self._context_size = context_size_for(self.model, model_id, options.context_size)
            self._set_adapters = self._adapters.load(options.adapters) if options.adapters else ()
            context = opening.take_context(self._context_size)
        except BaseException:
            opening.close()
            for part in parts:
                part.close()
            raise
        self.scheduler = open_scheduler(context, options, self._context_size)
        self._hidden: HiddenStateReader | None = None
        self._loaded = ModelParts(self.scheduler, context, *parts, *([hold] if hold else []))
        self._loaded.unload_with(self)

    @property
    def model_id(self) -> str:
        return self._model_id

    @property
    def header_names(self) -> tuple[str, ...]:
        return self._header_names

    @property
    def context_size(self) -> int:
        return self._context_size

    @property
    def speaks(self) -> bool:
        return self._voice is not None

    @property
    def on_gpu(self) -> OnGpu:
        return self.model.share_on_gpu

    def activity(self) -> Activity:
        return self.scheduler.activity()

    @cached_property
    def _adapters(self) -> ModelAdapters:
        from .model_parts import ModelAdapters

        return ModelAdapters(self.model)

    @cached_property
    def decision_model(self) -> DecisionModel:
        return replace(self._decisions, fingerprint=self.model.fingerprint.hex())

    def start(self, messages: Messages, functions: Functions = (), options: MaybeOptions = None) -> Generation:
        complete = with_source(self._complete(options), messages)

        def make(more: Messages) -> MadePrompt:
            return self._prompts.of_messages([*messages, *more], functions, complete, self._context_size)

        system = "\n".join(message.text for message in messages if message.role is ChatMessageRole.SYSTEM)
        return self._start(make, functions, complete, instruction=system)

    def start_text(self, text: str | Sequence[int], options: MaybeOptions = None) -> Generation:
        def make(_: Messages) -> MadePrompt:
            return self._prompts.of_text(text, self._context_size)

        instruction = text if isinstance(text, str) else ""
        return self._start(make, (), self._complete(options), instruction=instruction)

    def _complete(self, options: MaybeOptions) -> GenerationOptions:
        """The options with nothing left open that generation needs."""
        check_options(options)
        options = (options or GenerationOptions()).with_extras().with_defaults(self._defaults)
        if options.rng_seed is None and self._options.random_seed is not None:
            options.rng_seed = self._options.random_seed
        return options

    def _start(
        self,
        make: Callable[[Messages], MadePrompt],
        functions: Functions,
        options: GenerationOptions,
        *,
        instruction: str,
    ) -> Generation:
        """``make`` gives the prompt; it gets further messages when an answer has to be repaired. ``instruction``: the
        text that says how the model is to speak."""
        parser = self._prompts.parser_for(options)

        def begin(more: Messages = ()) -> tuple[Generation, CompiledConstraint | None]:
            with self._loaded.in_use():
                return self._submit(make(more), functions, parser, options, instruction)

        generation, constraint = begin()
        if constraint is None:
            return generation
        return CheckedGeneration(generation, constraint, lambda more: begin(more)[0], options.repairs)

    def _submit(
        self,
        made: MadePrompt,
        functions: Functions,
        parser: FunctionCallParser | None,
        options: GenerationOptions,
        instruction: str,
    ) -> tuple[Generation, CompiledConstraint | None]:
        constraint = self._compile_constraint(made, functions, parser, options)
        voice = self._voice if constraint is None else None  # what has a shape is text
        begun = voice.begin(options, interleaved=is_interleaved(instruction)) if voice is not None else (None, None)
        speech, listener = begun
        is_plain = speech is None and options.think_budget is None and not options.stop_token_ids
        eog, stops, least = self.model.eog_tokens, frozenset(options.stop_token_ids), options.min_tokens or 0
        enforced = constraint.constraint if constraint else None
        if options.ignore_eos or least:
            known = {token for token in stops if token < self.model.n_tokens}
            enforced = DelayedEnd(enforced, eog, known, least=least, endless=options.ignore_eos)
        request = Request(
            made.prompt,
            Sampler(options, made.prompt.token_ids),
            max_tokens=options.max_tokens,
            constraint=enforced,
            adapters=self._set_adapters if options.adapters is None else self._adapters.load(options.adapters),
            speech=speech,
            lookup=PromptLookup() if self._options.prompt_lookup and constraint is None and is_plain else None,
            prompt_recorder=_prompt_recorder(made, options),
            watch=RepetitionWatch(self.model.piece, shaped=_has_shape(options), least=least)
            if options.repetition_detection and not options.ignore_eos
            else None,
            stop_tokens=stops,
            thinking=self._thinking_limit(options, inside=made.opens_reasoning),
            priority=options.priority or INTERACTIVE,
        )
        reply = ReplyBuilder(
            self.model,
            options,
            parser,
            functions=() if options.tool_choice == "none" else functions,
            inside_reasoning=made.opens_reasoning,
            warnings=(
                *(constraint.warnings if constraint else ()),
                *made.warnings,
                *self._prompts.warnings(functions, options),
                *self._speech_warnings(instruction),
            ),
            left_out=made.left_out,
        )
        self.scheduler.submit(request)

        def keep_reply() -> None:
            if speech is None or not speech.rows:  # what was spoken is read back from its message
                self._prompts.keep_reply(made, request.target)

        def facts() -> RequestFacts:
            names = [function.name for function in functions]
            from .engine.prompt_comparison import Words, facts_of

            model = self.model
            words = Words(model.text_of, model.eog_tokens, model.control_tokens, names, made.roles)
            found = facts_of(request, words, self.context_size)
            return replace(found, trained_context=model.trained_context, by_states=model.is_hybrid)

        # keep_reply keeps this runner loaded
        return InProcessGeneration(request, reply, keep_reply, listener, facts=facts), constraint

    def _speech_warnings(self, instruction: str) -> tuple[str, ...]:
        warning = self._voice.warning if self._voice is not None else self._mute
        if not warning or not asks_to_speak(instruction):
            return ()
        return (warning if self._voice is not None else f"the model does not speak: {warning}",)

    def _thinking_limit(self, options: GenerationOptions, *, inside: bool) -> ThinkingLimit | None:
        """None for a model without tokens around its reasoning."""
        tags, special = reasoning_tags(self.model), self.model.special_tokens
        if not tags:
            return None
        starts, ends = ([special[pair[side]] for pair in tags] for side in (0, 1))
        message = options.think_budget_message
        said = self.model.tokenize(message, parse_special=False) if message else []
        return ThinkingLimit(options.think_budget, starts, ends, [*said, ends[0]], inside=inside)

    def _compile_constraint(
        self, made: MadePrompt, functions: Functions, parser: FunctionCallParser | None, options: GenerationOptions
    ) -> CompiledConstraint | None:
        if not (_has_shape(options) or options.tool_choice is not None or functions):
            return None
        from .constraints.compiling import compile_constraint

        room = self.context_size - len(made.prompt)
        return compile_constraint(
            options,
            functions,
            self.model,
            parser=parser,
            reasoning_open=made.opens_reasoning,
            room=room if options.max_tokens is None else min(options.max_tokens, room),
        )

    def get_prompt_tokens_size(
        self, messages: Messages, add_bos_token: bool = True, functions: Functions = (), options: MaybeOptions = None
    ) -> int:
        check_options(options)
        options = options or GenerationOptions()
        with self._loaded.in_use():
            made = self._prompts.of_messages(messages_of(messages), functions, options.with_extras())
        return self._prompts.size(made, with_bos=add_bos_token)

    def render(self, prompt: Messages | str, functions: Functions = (), options: MaybeOptions = None) -> RenderedPrompt:
        options = (options or GenerationOptions()).with_extras()
        with self._loaded.in_use():
            if isinstance(prompt, str):
                made = self._prompts.of_text(prompt)
            else:
                made = self._prompts.of_messages(prompt, functions, options)
            return RenderedPrompt(self._prompts.text_of(made), len(made.prompt))

    def set_adapters(self, adapters: Sequence[LoraAdapter]) -> None:
        with self._loaded.in_use():
            self._set_adapters = self._adapters.load(adapters_of(adapters))

    def hidden_states(self, text: str, adapters: Sequence[LoraAdapter] | None = None) -> HiddenStates:
        with self._loaded.in_use():
            chosen = self._set_adapters if adapters is None else self._adapters.load(adapters_of(adapters))
            return self._hidden_reader().of_text(text, chosen)

    def _hidden_reader(self) -> HiddenStateReader:
        from .embedding_runner import HiddenStateReader

        with self._guard:
            if self._hidden is None:
                self._hidden = HiddenStateReader(self.model, self._context_size, self._options)
                self._loaded.add(self._hidden)
            return self._hidden

    def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        with self._loaded.in_use():
            return self.model.tokenize(text, parse_special=parse_special)

    def detokenize(self, tokens: Sequence[int]) -> str:
        with self._loaded.in_use():
            self.model.check_tokens(tokens)
            return self.model.text_of(tokens)

    def tokenizer_info(self) -> TokenizerInfo:
        with self._loaded.in_use():
            model = self.model
            template = self._options.chat_template or model.chat_template
            return TokenizerInfo(model.bos_text, model.eos_text, model.bos_token is not None, template)

    def infill_prompt(self, before: str, after: str) -> str:
        with self._loaded.in_use():
            markers = self.model.infill_markers
        if markers is None:
            raise LeapOptionsError("suffix", f"{self._model_id} has no tokens for filling in a text")
        prefix, suffix, middle = markers
        return f"{prefix}{before}{suffix}{after}{middle}"

    def unload(self) -> None:
        self._loaded.unload()


def _media_reader(voice: ModelVoice | None, media: ReadsMedia | None, model_id: str, path: Path) -> SpokenHistory:
    """What reads the parts of messages that are no text. Texts alone need none of it."""
    from .media import NoProjector
    from .prompt_maker import SpokenHistory

    return SpokenHistory(voice, media or NoProjector(model_id, path))


def _prompt_recorder(made: MadePrompt, options: GenerationOptions) -> ScoreRecorder | None:
    """What notes how likely the prompt's tokens are, where the options ask for it. Raises LeapOptionsError."""
    if not options.prompt_logprobs:
        return None
    if made.prompt.embedding_ranges:
        raise LeapOptionsError("prompt_logprobs", "a picture or a sound in a prompt has no tokens")
    return ScoreRecorder(options.top_logprobs or 0)


def _has_shape(options: GenerationOptions) -> bool:
    return any(getattr(options, name) is not None for name in CONSTRAINTS)

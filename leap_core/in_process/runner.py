"""The ModelRunner in this process: template, scheduler and the way from tokens to responses."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from collections.abc import Sequence as Items
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from ..chat_format.chat_template import THINK_START, ChatTemplate
from ..chat_format.reply_builder import Reply
from ..chat_format.reply_tokens import ReplyMemory
from ..engine.prompt import Prompt, boundaries_of
from ..engine.request import Sequence
from ..engine.sampler import RUNTIME_DEFAULTS, Sampler
from ..engine.scheduler import Scheduler
from ..engine.snapshots import SnapshotStore
from ..engine.threads import usable_cores
from ..errors import LeapGenerationError, LeapModelLoadingError
from ..llama.context import LlamaContext
from ..llama.library import state_version
from ..llama.model import LlamaModel
from ..messages import ChatMessage
from ..options import AUTO, FunctionCallParser, GenerationOptions, ModelLoadingOptions, SamplingDefaults
from ..runner.contract import Generation, ModelRunner, RenderedPrompt
from .generation import InProcessGeneration
from .validated_generation import CheckedGeneration

if TYPE_CHECKING:
    from ..constraints import CompiledConstraint
    from ..functions import LeapFunction

LARGEST_DEFAULT_CONTEXT = 8192
CELLS_PER_SLOT = 2048
"""Slots share their positions: by default each brings this many, and one may use all of them."""


class InProcessRunner(ModelRunner):
    """A model loaded into this process, with a scheduler over its context.

    ``path``: a GGUF that ``models.gguf.read_gguf_header`` found sound. ``defaults``: sampling that the manifest or the
    catalogue recommends. ``parser_name``: how the model writes calls, "auto" to tell by its vocabulary.
    Raises LeapModelLoadingError.
    """

    def __init__(
        self,
        path: Path,
        model_id: str,
        options: ModelLoadingOptions,
        *,
        defaults: SamplingDefaults | None = None,
        parser_name: str = AUTO,
    ) -> None:
        self._model_id = model_id
        self._options = options = options.with_extras()
        if options.mm_proj_path or options.audio_decoder_path or options.audio_tokenizer_path:
            raise LeapModelLoadingError("pictures and sound are not supported yet", hint="load the text model alone")
        self._defaults = (defaults or SamplingDefaults()).over(RUNTIME_DEFAULTS)
        self._changed = threading.Condition()
        self._loaded = True
        self._users = 0
        self.model = LlamaModel(path, n_gpu_layers=options.n_gpu_layers, use_mmap=options.use_mmap)
        try:
            self._template = self._read_template(options.chat_template)
            self._parser = self._choose_parser(parser_name)
            self._replies = ReplyMemory(self.model.special_tokens)
            self._context_size = self._choose_context_size(options.context_size)
            threads = options.cpu_threads or usable_cores()
            self._context = LlamaContext(
                self.model,
                cells=max(self._context_size, options.slots * min(CELLS_PER_SLOT, self._context_size)),
                slots=options.slots,
                batch_size=options.batch_size,
                threads=threads,
                flash_attention=options.flash_attention,
                kv_type_k=options.kv_type_k,
                kv_type_v=options.kv_type_v,
            )
        except BaseException:
            self.model.close()
            raise
        store = SnapshotStore(options.cache_options, self._snapshot_scope() if options.cache_options.enabled else b"")
        self.scheduler = Scheduler(self._context, store, context_size=self._context_size, threads=threads)
        self._free = weakref.finalize(self, _free, self.scheduler, self._context, self.model)
        self._free.atexit = False  # then the memory goes with the process

    @property
    def model_id(self) -> str:
        return self._model_id

    @property
    def context_size(self) -> int:
        return self._context_size

    def start(
        self,
        messages: Items[ChatMessage],
        functions: Items[LeapFunction] = (),
        options: GenerationOptions | None = None,
    ) -> Generation:
        options = (options or GenerationOptions()).with_extras().with_defaults(self._defaults)
        if options.rng_seed is None and self._options.random_seed is not None:
            options.rng_seed = self._options.random_seed
        parser = self._parser_for(options)
        messages = _with_schema(messages, options)
        generation, constraint = self._begin(messages, functions, parser, options)
        if constraint is None:
            return generation
        return CheckedGeneration(
            generation, constraint, lambda more: self._begin([*messages, *more], functions, parser, options)[0]
        )

    def start_text(self, text: str, options: GenerationOptions | None = None) -> Generation:
        options = (options or GenerationOptions()).with_extras().with_defaults(self._defaults)
        if options.rng_seed is None and self._options.random_seed is not None:
            options.rng_seed = self._options.random_seed
        parser = self._parser_for(options)

        def begin() -> tuple[Generation, CompiledConstraint | None]:
            with self._in_use():
                return self._generate([text], (), parser, options, opens_reasoning=_opens_reasoning([text]))

        generation, constraint = begin()
        if constraint is None:
            return generation

        def again(_: Items[ChatMessage]) -> Generation:
            return begin()[0]

        return CheckedGeneration(generation, constraint, again)

    def _begin(
        self,
        messages: Items[ChatMessage],
        functions: Items[LeapFunction],
        parser: FunctionCallParser | None,
        options: GenerationOptions,
    ) -> tuple[Generation, CompiledConstraint | None]:
        with self._in_use():
            pieces = self._pieces(messages, functions, parser, options)
            return self._generate(pieces, functions, parser, options, opens_reasoning=_opens_reasoning(pieces))

    def _generate(
        self,
        pieces: Items[str],
        functions: Items[LeapFunction],
        parser: FunctionCallParser | None,
        options: GenerationOptions,
        *,
        opens_reasoning: bool = False,
    ) -> tuple[Generation, CompiledConstraint | None]:
        """``opens_reasoning``: the prompt ends within reasoning that the template has opened."""
        prompt = self._prompt_of(pieces)
        constraint = self._compile_constraint(options, functions, parser, reasoning_open=opens_reasoning)
        sequence = Sequence(
            prompt,
            Sampler(options, prompt.keys),
            max_tokens=options.max_tokens,
            constraint=constraint.constraint if constraint else None,
        )
        reply = Reply(
            self.model,
            options,
            parser,
            functions=() if options.tool_choice == "none" else functions,
            inside_reasoning=opens_reasoning,
            warnings=(*(constraint.warnings if constraint else ()), *self._unheard(functions)),
        )
        with self._changed:
            self._check_loaded()
            self.scheduler.submit(sequence)

        def remember() -> None:
            said = b"".join(map(self.model.piece, sequence.target[len(prompt) :]))
            self._replies.keep(pieces, said.decode(errors="replace"), sequence.target)

        return InProcessGeneration(sequence, reply, remember), constraint  # `remember` keeps this runner loaded

    def get_prompt_tokens_size(
        self,
        messages: Items[ChatMessage],
        add_bos_token: bool = True,
        functions: Items[LeapFunction] = (),
    ) -> int:
        options = GenerationOptions()
        with self._in_use():
            prompt = self._prompt_of(self._pieces(messages, functions, self._parser, options))
        opened = self.model.bos_token is not None and prompt.keys[:1] == [self.model.bos_token]
        return len(prompt) - (opened and not add_bos_token)

    def render(
        self,
        prompt: Items[ChatMessage] | str,
        functions: Items[LeapFunction] = (),
        options: GenerationOptions | None = None,
    ) -> RenderedPrompt:
        options = (options or GenerationOptions()).with_extras()
        with self._in_use():
            if isinstance(prompt, str):
                pieces = [prompt]
            else:
                pieces = self._pieces(_with_schema(prompt, options), functions, self._parser_for(options), options)
            text = "".join(pieces)
            if self.model.bos_token is not None and not (pieces and pieces[0].startswith(self.model.bos_text)):
                text = self.model.bos_text + text
            return RenderedPrompt(text, len(self._prompt_of(pieces)))

    def unload(self) -> None:
        with self._changed:
            if not self._loaded:
                return
            self._loaded = False
        self._free.detach()
        self.scheduler.close()
        with self._changed:
            self._changed.wait_for(lambda: not self._users)
        self._context.close()
        self.model.close()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Within, the model's memory is not freed: a long prompt takes a while to be cut into tokens."""
        with self._changed:
            self._check_loaded()
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def _check_loaded(self) -> None:
        if not self._loaded:
            raise LeapGenerationError("the model is unloaded", hint="load it again")

    def _pieces(
        self,
        messages: Items[ChatMessage],
        functions: Items[LeapFunction],
        parser: FunctionCallParser | None,
        options: GenerationOptions,
    ) -> list[str]:
        return self._template.render(
            messages, functions, parser=parser or self._parser, enable_thinking=options.enable_thinking
        )

    def _unheard(self, functions: Items[LeapFunction]) -> tuple[str, ...]:
        if not functions or self._template.renders_functions:
            return ()
        return ("the model's chat template has no place for functions, so the model does not know of them",)

    def _prompt_of(self, pieces: Items[str]) -> Prompt:
        known, rest = self._replies.beginning(pieces)
        ids = [*known, *(token for piece in rest for token in self.model.tokenize(piece, parse_special=True))]
        bos = self.model.bos_token
        if bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        return Prompt.of_tokens(ids, boundaries_of(ids, self.model.eog_tokens, self.model.control_tokens))

    def _compile_constraint(
        self,
        options: GenerationOptions,
        functions: Items[LeapFunction],
        parser: FunctionCallParser | None,
        *,
        reasoning_open: bool,
    ) -> CompiledConstraint | None:
        if not _wants_constraint(options, functions):
            return None
        from ..constraints import compile_constraint

        return compile_constraint(options, functions, self.model, parser=parser, reasoning_open=reasoning_open)

    def _read_template(self, override: str | None) -> ChatTemplate:
        source = override or self.model.chat_template
        if not source:
            raise LeapModelLoadingError(
                f"{self.model.path.name} has no chat template", hint="give one with the chat_template option"
            )
        if not self.model.can_decode:
            raise LeapModelLoadingError(f"{self.model.path.name} is an encoder and cannot generate text")
        return ChatTemplate(
            source,
            bos_text=self.model.bos_text,
            eos_text=self.model.eos_text,
            special_texts=self.model.special_tokens,
        )

    def _choose_parser(self, name: str) -> FunctionCallParser:
        from ..functions import parser_named

        if name != AUTO:
            return parser_named(name)
        hermes = parser_named("hermes")
        lfm = parser_named("lfm")
        tokens = self.model.special_tokens
        return hermes if hermes.start_marker in tokens and lfm.start_marker not in tokens else lfm

    def _parser_for(self, options: GenerationOptions) -> FunctionCallParser | None:
        chosen = options.function_call_parser
        if chosen == AUTO:
            return self._parser
        if isinstance(chosen, str):
            from ..functions import parser_named

            return parser_named(chosen)
        return chosen

    def _choose_context_size(self, wanted: int | None) -> int:
        trained = self.model.trained_context
        if wanted is None:
            return min(trained, LARGEST_DEFAULT_CONTEXT) if trained > 0 else LARGEST_DEFAULT_CONTEXT
        if trained > 0 and wanted > trained:
            raise LeapModelLoadingError(
                f"a context of {wanted} tokens is more than the {trained} that {self.model_id} was trained for",
                hint=f"use {trained} or less",
            )
        return wanted

    def _snapshot_scope(self) -> bytes:
        options = self._options
        layout = f"{options.kv_type_k} {options.kv_type_v} {options.flash_attention} {options.n_gpu_layers} unified"
        parts = b"\0".join([self.model.fingerprint, state_version().encode(), layout.encode()])
        return blake2b(parts, digest_size=16).digest()


def _free(scheduler: Scheduler, context: LlamaContext, model: LlamaModel) -> None:
    """What ``unload`` does, for a runner that nobody holds any more. In a thread of its own, because the one that finds
    this out may be the one that has to finish a step first."""

    def close() -> None:
        scheduler.close()
        context.close()
        model.close()

    threading.Thread(target=close, name="leap-free", daemon=True).start()


def _opens_reasoning(pieces: Items[str]) -> bool:
    """Whether a prompt ends within reasoning."""
    return bool(pieces) and pieces[-1].rstrip().endswith(THINK_START)


def _with_schema(messages: Items[ChatMessage], options: GenerationOptions) -> Items[ChatMessage]:
    """The messages that the model is shown: with the schema of its answer, if it is to know that."""
    if options.json_schema_constraint is None or not options.inject_schema_into_prompt:
        return messages
    from ..constraints import inject_schema

    return inject_schema(messages, options.json_schema_constraint)


def _wants_constraint(options: GenerationOptions, functions: Items[LeapFunction]) -> bool:
    shapes = (
        options.json_schema_constraint,
        options.regex_constraint,
        options.grammar_constraint,
        options.choices_constraint,
        options.tool_choice,
    )
    return any(shape is not None for shape in shapes) or bool(functions)

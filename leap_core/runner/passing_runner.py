"""A runner that passes everything on to another one; subclasses change or note some of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..options.adapters import LoraAdapter
from .contract import Generation, ModelRunner, RenderedPrompt
from .generator import DecisionModel, Functions, MaybeOptions, Messages, TokenizerInfo

if TYPE_CHECKING:
    from .hidden_states import HiddenStates


class PassingRunner(ModelRunner):
    """``runner`` answers."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner

    @property
    def model_id(self) -> str:
        return self._runner.model_id

    @property
    def context_size(self) -> int:
        return self._runner.context_size

    @property
    def decision_model(self) -> DecisionModel:
        return self._runner.decision_model

    @property
    def reads_ahead(self) -> bool:
        return self._runner.reads_ahead

    @property
    def speaks(self) -> bool:
        return self._runner.speaks

    def start(self, messages: Messages, functions: Functions = (), options: MaybeOptions = None) -> Generation:
        return self._runner.start(messages, functions, options)

    def start_text(self, text: str | Sequence[int], options: MaybeOptions = None) -> Generation:
        return self._runner.start_text(text, options)

    def render(self, prompt: Messages | str, functions: Functions = (), options: MaybeOptions = None) -> RenderedPrompt:
        return self._runner.render(prompt, functions, options)

    def get_prompt_tokens_size(
        self, messages: Messages, add_bos_token: bool = True, functions: Functions = (), options: MaybeOptions = None
    ) -> int:
        return self._runner.get_prompt_tokens_size(messages, add_bos_token, functions, options)

    def set_adapters(self, adapters: Sequence[LoraAdapter]) -> None:
        self._runner.set_adapters(adapters)

    def hidden_states(self, text: str, adapters: Sequence[LoraAdapter] | None = None) -> HiddenStates:
        return self._runner.hidden_states(text, adapters)

    def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        return self._runner.tokenize(text, parse_special=parse_special)

    def detokenize(self, tokens: Sequence[int]) -> str:
        return self._runner.detokenize(tokens)

    def tokenizer_info(self) -> TokenizerInfo:
        return self._runner.tokenizer_info()

    def infill_prompt(self, before: str, after: str) -> str:
        return self._runner.infill_prompt(before, after)

    def unload(self) -> None:
        self._runner.unload()

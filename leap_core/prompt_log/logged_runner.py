"""A runner whose prompts and answers are logged; in all else it is the runner within."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import LeapError, LeapGenerationError
from ..messages import ChatMessage
from ..options import GenerationOptions
from ..options.adapters import LoraAdapter
from ..responses import Chunk, Complete, MessageResponse
from ..runner.contract import Generation, ModelRunner, RenderedPrompt
from ..runner.generator import DecisionModel, TokenizerInfo
from .entry import Entry, entry_of, text_entry
from .writer import LogWriter

if TYPE_CHECKING:
    from ..functions import LeapFunction
    from ..runner.hidden_states import HiddenStates


class LoggedRunner(ModelRunner):
    """``runner``, each of whose generations becomes an entry of ``log`` when it has ended. ``command``: who asks."""

    def __init__(self, runner: ModelRunner, log: LogWriter, command: str) -> None:
        self._runner, self._log, self._command = runner, log, command

    def start(
        self,
        messages: Sequence[ChatMessage],
        functions: Sequence[LeapFunction] = (),
        options: GenerationOptions | None = None,
    ) -> Generation:
        return self._logged(
            lambda: self._runner.start(messages, functions, options),
            lambda: entry_of(self._command, self.model_id, messages, options),
        )

    def start_text(self, text: str | Sequence[int], options: GenerationOptions | None = None) -> Generation:
        return self._logged(
            lambda: self._runner.start_text(text, options),
            lambda: text_entry(self._command, self.model_id, self._text(text), options),
        )

    def _text(self, text: str | Sequence[int]) -> str:
        return text if isinstance(text, str) else self._runner.detokenize(text)

    def _logged(self, start: Callable[[], Generation], describe: Callable[[], Entry]) -> Generation:
        if not self._log.is_on():
            return start()
        entry, began = describe(), time.monotonic()
        try:
            generation = start()
        except LeapError as error:
            entry.fail(error, time.monotonic() - began)
            self._log.add(entry)
            raise
        return _LoggedGeneration(generation, entry, self._log)

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

    def render(
        self,
        prompt: Sequence[ChatMessage] | str,
        functions: Sequence[LeapFunction] = (),
        options: GenerationOptions | None = None,
    ) -> RenderedPrompt:
        return self._runner.render(prompt, functions, options)

    def get_prompt_tokens_size(
        self,
        messages: Sequence[ChatMessage],
        add_bos_token: bool = True,
        functions: Sequence[LeapFunction] = (),
        options: GenerationOptions | None = None,
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
        try:
            self._runner.unload()
        finally:
            self._log.close()


class _LoggedGeneration(Generation):
    """Logs how a generation ended; of one that was given up, what had come by then."""

    def __init__(self, generation: Generation, entry: Entry, log: LogWriter) -> None:
        self._generation, self._log = generation, log
        self._entry: Entry | None = entry
        self._began = time.monotonic()
        self._pieces: list[str] = []

    def __next__(self) -> MessageResponse:
        try:
            response = self._generation.__next__()
        except LeapError as error:
            if self._entry is not None:
                self._entry.fail(error, time.monotonic() - self._began)
            self._write()
            raise
        if isinstance(response, Chunk):
            self._pieces.append(response.text)
        elif isinstance(response, Complete):
            if self._entry is not None:
                self._entry.end(response, time.monotonic() - self._began)
            self._write()
        return response

    def stop(self) -> None:
        self._generation.stop()

    def close(self) -> None:
        self._generation.close()
        if self._entry is not None:
            self._entry.answer = "".join(self._pieces)
            self._entry.fail(LeapGenerationError("given up before its end"), time.monotonic() - self._began)
        self._write()

    def _write(self) -> None:
        entry, self._entry = self._entry, None
        if entry is not None:
            self._log.add(entry)

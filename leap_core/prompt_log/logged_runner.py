"""A runner whose prompts and answers are logged; in all else it is the runner within."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..errors import LeapError, LeapGenerationError
from ..responses import Chunk, Complete, MessageResponse
from ..runner.contract import Generation, ModelRunner
from ..runner.generator import Functions, MaybeOptions, Messages
from ..runner.passing_runner import PassingRunner
from .entry import Entry, entry_of, made_by, text_entry
from .writer import LogWriter


class LoggedRunner(PassingRunner):
    """``runner``, each of whose generations becomes an entry of ``log`` when it has ended. ``command``: who asks."""

    def __init__(self, runner: ModelRunner, log: LogWriter, command: str) -> None:
        super().__init__(runner)
        self._log, self._command = log, command

    def start(self, messages: Messages, functions: Functions = (), options: MaybeOptions = None) -> Generation:
        return self._logged(
            lambda: self._runner.start(messages, functions, options),
            lambda: entry_of(self._command, self.model_id, messages, options),
        )

    def start_text(self, text: str | Sequence[int], options: MaybeOptions = None) -> Generation:
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
        entry.made_by = made_by(self._runner)
        try:
            generation = start()
        except LeapError as error:
            entry.fail(error, time.monotonic() - began)
            self._log.add(entry)
            raise
        return _LoggedGeneration(generation, entry, self._log)

    def unload(self) -> None:
        try:
            super().unload()
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

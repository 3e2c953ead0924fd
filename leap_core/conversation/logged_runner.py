"""A runner whose prompts and answers are logged, if the user set that: written beside the answers.

A process that ends in order waits for the entries that are on their way; one that is killed loses those alone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..errors import LeapError, LeapGenerationError
from ..system.configuration import log_file, log_is_on
from ..system.directories import Directories
from .generator import Functions, Generation, MaybeOptions, Messages, PassingGeneration
from .options import GenerationOptions
from .prompt_log import Entry, entry_of, made_by, text_entry
from .request import Request
from .responses import Chunk, Complete, MessageResponse
from .runner import ModelRunner, PassingRunner


class LogWriter:
    """Entries into the log at ``path``. ``is_on`` says whether anything is logged now; ``on_warning`` is called at the
    end what could not be written."""

    def __init__(self, path: Path, is_on: Callable[[], bool], on_warning: Callable[[str], object]) -> None:
        self._path, self.is_on, self._on_warning = path, is_on, on_warning
        self._entries: deque[Entry] = deque()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self._lost = 0

    def add(self, entry: Entry) -> None:
        """Have an entry written."""
        with self._guard:
            self._entries.append(entry)
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name="leap-prompt-log")
                self._thread.start()

    def close(self) -> None:
        """Wait until everything is written, and say what could not be."""
        thread = self._thread
        if thread is not None:
            thread.join()
        with self._guard:
            failure, lost = self._failure, self._lost
            self._failure, self._lost = None, 0
        if failure is not None:
            prompts = "this prompt is" if lost == 1 else f"{lost} prompts are"
            self._on_warning(f"{prompts} not in the log: {failure}")

    def _write_all(self) -> None:
        from .prompt_log import PromptLog

        log: PromptLog | None = None
        try:
            while (entry := self._next()) is not None:
                try:
                    log = log or PromptLog(self._path)
                    log.add(entry)
                except Exception as error:  # the entries after it are still written
                    with self._guard:
                        self._failure, self._lost = error, self._lost + 1
        finally:
            if log is not None:
                log.close()

    def _next(self) -> Entry | None:
        """The next entry; None where there is none, and then another thread writes the one after."""
        with self._guard:
            if self._entries:
                return self._entries.popleft()
            self._thread = None
            return None


class LoggedRunner(PassingRunner):
    """``runner``, each of whose generations becomes an entry of ``log`` when it has ended. ``command``: who asks.
    ``loading``: seconds until the model was there, which the first generation waited for."""

    def __init__(self, runner: ModelRunner, log: LogWriter, command: str, loading: float = 0.0) -> None:
        super().__init__(runner)
        self._log, self._command, self._loading = log, command, loading

    def start(self, messages: Messages, functions: Functions = (), options: MaybeOptions = None) -> Generation:
        return self._logged(
            lambda: self._runner.start(messages, functions, options),
            lambda: entry_of(
                self._command, self.model_id, Request(messages, functions, options or GenerationOptions())
            ),
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
        loading, self._loading = self._loading, 0.0
        if loading:
            entry.facts |= {"loading": round(loading, 3)}
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


class _LoggedGeneration(PassingGeneration):
    """Logs how a generation ended; of one that was given up, what had come by then."""

    def __init__(self, generation: Generation, entry: Entry, log: LogWriter) -> None:
        super().__init__(generation)
        self._log = log
        self._entry: Entry | None = entry
        self._began = time.monotonic()
        self._pieces: list[str] = []

    def _read(self) -> MessageResponse:
        try:
            response = super()._read()
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

    def close(self) -> None:
        super().close()
        if self._entry is not None:
            self._entry.answer = "".join(self._pieces)
            self._entry.fail(LeapGenerationError("given up before its end"), time.monotonic() - self._began)
        self._write()

    def _write(self) -> None:
        entry, self._entry = self._entry, None
        if entry is not None:
            self._log.add(entry)


def logged(
    runner: ModelRunner,
    command: str,
    directories: Directories,
    variables: Mapping[str, str],
    on_warning: Callable[[str], object],
    *,
    loading: float = 0.0,
) -> ModelRunner:
    """The runner, with everything that is asked of it in the log while that is on."""

    writer = LogWriter(log_file(directories), lambda: log_is_on(directories, variables), on_warning)
    return LoggedRunner(runner, writer, command, loading)

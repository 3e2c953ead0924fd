"""Writes entries beside the answers: in a thread that ends when it has nothing to do, so that no answer waits for it.

A process that ends in order waits for the entries that are on their way; one that is killed loses those alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from .entry import Entry


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
        from .log_database import PromptLog

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

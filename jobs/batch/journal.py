"""What a batch has done so far, kept beside its output: one JSON line a result, appended as the results come.

A result counts once its line is whole. What the end of the process, or of the machine, tore is cut off when the
journal is opened again. The file is locked while a batch runs, and the lock goes with its process.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from leap_core.errors import LeapError, LeapSerializationError
from leap_core.models.locks import Busy, locked

from .results import Result
from .whole_lines import append_whole

HEADER = b'{"leap_batch_journal":1}\n'
BEGUN = "begun_by"
"""The field of a line that names the run which began the journal anew."""
SYNC_SECONDS = 1.0
"""Most work, in seconds, that the loss of power can undo."""


def journal_path(output: Path) -> Path:
    """Where the journal of this output lies."""
    return output.with_name(output.name + ".journal")


class Journal:
    """The open journal of one batch. Raises LeapError when another process has it, or the file is something else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begun_by: str | None = None
        self._resources = ExitStack()
        try:
            with suppress(FileExistsError, FileNotFoundError):  # prompts and answers are nobody else's business
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            self._resources.enter_context(locked(path, wait=False))
        except Busy:
            raise LeapError(
                f"another batch is writing to {path.with_suffix('')}", hint="wait for it, or give another output"
            ) from None
        try:
            self.results = self._read()
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
            self._resources.callback(os.close, self._file)
        except BaseException:
            self._resources.close()
            raise
        self._synced = time.monotonic()

    def append(self, result: Result) -> None:
        """Keep a result. OSError means that it was not kept, and the journal is as before."""
        line = json.dumps(result.to_json(), ensure_ascii=False, separators=(",", ":"))
        append_whole(self._file, line.encode() + b"\n")
        if time.monotonic() - self._synced >= SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Bring what was appended to the disk."""
        os.fsync(self._file)
        self._synced = time.monotonic()

    def begin(self, run_id: str | None = None) -> None:
        """Start over: nothing is known any more but who has begun."""
        os.ftruncate(self._file, len(HEADER))
        self.results, self._begun_by = {}, run_id
        if run_id is not None:
            append_whole(self._file, json.dumps({BEGUN: run_id}).encode() + b"\n")

    def was_begun_by(self, run_id: str | None) -> bool:
        """Whether this run, and not another one before, has begun the journal anew."""
        return run_id is not None and self._begun_by == run_id

    def close(self) -> None:
        """Free the journal; one in which nothing was ever kept is removed."""
        if os.fstat(self._file).st_size <= len(HEADER):
            self.path.unlink(missing_ok=True)
        self._resources.close()

    def _read(self) -> dict[str, Result]:
        """The newest result of each key, in the order in which the batch wrote them; the file is repaired."""
        data = self.path.read_bytes()
        if not data.startswith(HEADER):
            if not HEADER.startswith(data):
                raise LeapSerializationError(
                    f"{self.path} is not the journal of a batch", hint="move it away, or give another output"
                )
            self.path.write_bytes(HEADER)
            return {}
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(self.path, whole)
        results: dict[str, Result] = {}
        for line in data[len(HEADER) : whole].splitlines():
            try:
                value = json.loads(line)
                if BEGUN in value:
                    self._begun_by = value[BEGUN]
                    continue
                result = Result.from_json(value)
            except (ValueError, TypeError, KeyError, LeapError):
                continue  # a hole that a power failure left: this line is done again
            results.pop(result.key, None)
            results[result.key] = result
        return results

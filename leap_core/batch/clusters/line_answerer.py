"""The side of a cluster's process that has a model: blocks of lines in, outcomes out. Knows no cluster."""

from __future__ import annotations

import atexit
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ...conversation.embedding import EmbeddingRunner
from ...conversation.options import ModelLoadingOptions
from ...conversation.runner import ModelRunner
from ...errors import LeapError, LeapModelNotFoundError, LeapUnavailableError
from ...models.digests import ModelDigests
from ...models.download.downloading import fetch_by_digest
from ...opening import HostUse, open_embedding_runner, open_runner
from ...system import __version__
from ...system.addresses import without_secrets_of
from ...system.configuration import read_job_settings
from ...system.dataclass import dataclass
from ...system.directories import Directories
from ..answering import Answer, answering
from ..input.line_index import GivenLines
from ..input.lines import RequestReader
from ..settings import fingerprint_of

GATHER_SECONDS = 0.1
"""The longest that an outcome waits for others that come with it."""


class GivenLine(NamedTuple):
    """A line of a batch: its place, its number from 1, its text and its digest."""

    place: int
    number: int
    raw: bytes
    digest: str


class Outcome(NamedTuple):
    """What came of a line. ``place`` None: the model is lost, and ``answer`` says why."""

    place: int | None
    custom_id: str
    answer: Answer | BaseException


class Lack(NamedTuple):
    """Why a node cannot answer with a model, and whether the node may fetch it."""

    error: LeapError
    may_be_fetched: bool


@dataclass(frozen=True)
class ModelOfCluster:
    """A model that each node has: ``reference`` and ``path`` where the batch was begun, its SHA-256, where it may be
    fetched again (``ModelDigests.origins``), and what else decides an answer, the fingerprint."""

    reference: str
    path: str
    digest: str
    fingerprint: str
    loading: ModelLoadingOptions
    embeds: bool = False
    origin: str | None = None
    version: str = __version__

    def look(self) -> Lack | None:
        """Why this node cannot answer with the model, if so."""
        try:
            self.reference_here()
        except LeapModelNotFoundError as error:
            return Lack(error, self.origin is not None and self._may_be_fetched())
        except LeapError as error:
            return Lack(error, False)
        return None

    def fetch(self) -> Lack | None:
        """Fetch the model to this node; why it is not there then, if so."""
        assert self.origin is not None
        try:
            fetch_by_digest(self.digest, self.origin, os.environ)
        except (LeapError, ValueError, OSError) as error:
            if self.look() is None:  # another node with the same directories was quicker
                return None
            reason = without_secrets_of(self.origin, str(error))
            return Lack(
                LeapModelNotFoundError(f"{socket.gethostname()} cannot fetch {self.reference}: {reason}"), False
            )
        return self.look()

    def reference_here(self) -> str:
        """What the model is called on this node. Raises LeapModelNotFoundError, and LeapUnavailableError for another
        version of leap."""
        if self.version != __version__:
            raise LeapUnavailableError(f"{socket.gethostname()} has leap {__version__}, and this is {self.version}")
        for reference in (self.reference, self.path):
            if self._is(reference):
                return reference
        names = ModelDigests(Directories.from_environment(os.environ)).installed()
        name = names.get(self.digest)
        if name is not None and self._is(name):
            return name
        raise LeapModelNotFoundError(
            f"{socket.gethostname()} has no model with the SHA-256 {self.digest[:16]}…",
            hint=f"install {self.reference} there, let it be fetched (jobs.fetch_models = true in its config.toml), "
            "or put it on a path that all nodes share",
        )

    @staticmethod
    def _may_be_fetched() -> bool:
        with suppress(LeapError):
            return read_job_settings(Directories.from_environment(os.environ).config_file).fetch_models
        return False

    def _is(self, reference: str) -> bool:
        with suppress(LeapError, OSError):
            here = fingerprint_of(reference, self.loading, variables=os.environ, cwd=Path.cwd())
            return here == self.fingerprint
        return False


class LineAnswerer:
    """Answers lines with one model, ``concurrency`` at once, and as many wait for a free slot."""

    def __init__(self, model: ModelOfCluster, reader: RequestReader, concurrency: int) -> None:
        self._model, self._reader, self._concurrency = model, reader, concurrency
        self._runner: ModelRunner | EmbeddingRunner | None = None
        self._turn = threading.Lock()
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()

    def load(self, threads: int | None = None) -> tuple[str, bool, str]:
        """Load the model, computing with so many threads unless its options say; its name, whether it speaks, and the
        node. Raises what loading raises."""
        loading = replace(self._model.loading, slots=self._concurrency)
        if loading.cpu_threads is None and threads is not None and threads < (os.cpu_count() or 1):
            loading = replace(loading, cpu_threads=threads)
        opening = open_embedding_runner if self._model.embeds else open_runner
        self._runner = opening(self._model.reference_here(), loading, host=HostUse.NEVER)
        return self._runner.model_id, bool(getattr(self._runner, "speaks", False)), socket.gethostname()

    def exchange(self, block: Sequence[GivenLine], seconds: float) -> list[Outcome]:
        """Begin with these lines, and take what came of earlier ones; waits for the first of them so long."""
        if block:
            threading.Thread(target=self._answer, args=(list(block),), name="leap-block", daemon=True).start()
        outcomes: list[Outcome] = []
        with suppress(queue.Empty):
            outcomes.append(self._outcomes.get(timeout=seconds))
            until = time.monotonic() + GATHER_SECONDS
            while 2 * len(outcomes) < self._concurrency:  # more would let the slots idle: as many lines wait for them
                outcomes.append(self._outcomes.get(timeout=max(0.0, until - time.monotonic())))
        return outcomes

    def _answer(self, block: list[GivenLine]) -> None:
        lines = GivenLines()
        for line in block:
            lines.give(line.number, line.raw, line.digest)
        work = ((n, lines) for n in range(len(block)))
        try:
            assert self._runner is not None, "load comes first"
            with answering(self._runner, self._reader, self._concurrency, threading.Event()) as answers:
                if self._model.embeds:  # one call of the model at a time: its arithmetic takes turns anyway
                    self._turn.acquire()
                try:
                    for n, custom_id, answer in answers.answers(work, len(block)):
                        self._outcomes.put(Outcome(block[n].place, custom_id, answer))
                finally:
                    if self._model.embeds:
                        self._turn.release()
        except Exception as error:
            self._outcomes.put(Outcome(None, "", error))


_GUARD = threading.Lock()
_RUNNERS: dict[tuple[int, str], ModelRunner] = {}
"""By process, because a fork has none of its parent's threads, and by what was asked for."""


def runner_of_process(name: str, load: Callable[[], ModelRunner]) -> ModelRunner:
    """The runner of this name, loaded by the first caller; the others wait. It stays until the process ends."""
    key = (os.getpid(), name)
    with _GUARD:
        if key not in _RUNNERS:
            if not any(pid == key[0] for pid, _ in _RUNNERS):
                atexit.register(unload_all)
            _RUNNERS[key] = load()
        return _RUNNERS[key]


def unload_all() -> None:
    """Free the models of this process. The next call loads again."""
    with _GUARD:
        for key in [key for key in _RUNNERS if key[0] == os.getpid()]:
            _RUNNERS.pop(key).unload()

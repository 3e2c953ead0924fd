"""Bringing an index up to date with its files: only what has changed is read again, only new chunks get vectors.

Killed at any point it goes on where it stopped, and does at most one file's chunks and one batch of vectors again.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import LeapError, LeapGenerationError, LeapOptionsError
from ..storage.atomic_files import text_of
from ..storage.locks import Busy, locked
from .chunking import count_words, cut
from .documents import files_below, read_document
from .index_file import IndexedFile, IndexFile, IndexSettings
from .pdf_text import UnreadableDocumentError
from .vector_table import open_table

if TYPE_CHECKING:
    from ..runner.embedding import EmbeddingRunner

TEXTS_AT_ONCE = 32
"""Chunks whose vectors are made and kept together."""
SPECIAL_TOKENS = 4
"""Room that a model's own prefix and opening tokens may need beside those that are counted."""

Progress = Callable[[str, int, int], object]
"""What is done ("reading", "embedding"), how many of how many."""


@dataclass
class Update:
    """What an update did. ``skipped``: files that cannot be indexed, with the reason."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    embedded: int = 0
    skipped: dict[str, str] = field(default_factory=dict)


class IndexBusyError(LeapError):
    """Another process is changing the index."""


def update_index(
    path: Path,
    settings: IndexSettings,
    runner: EmbeddingRunner | None,
    *,
    on_progress: Progress = lambda _step, _done, _all: None,
    stop: threading.Event | None = None,
) -> Update:
    """Bring the index in ``path`` (made when it is not there) up to date with ``settings``. ``runner``: the model of
    ``settings.model``, None where there is none. ``stop``: ends soon; what is done is kept.

    Raises IndexBusyError, LeapOptionsError for paths that do not exist, and what the runner raises.
    """
    if runner is not None and not runner.pools:
        raise LeapOptionsError(
            "model", f"{runner.model_id} makes no vectors of passages; name one that was made for embeddings"
        )
    stop = stop or threading.Event()
    missing = [each for each in settings.paths if not os.path.exists(each)]
    if missing and not path.exists():  # and there shall be none
        raise LeapOptionsError("paths", f"there is no file or directory {missing[0]}")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with locked(path.with_suffix(".lock"), wait=False), IndexFile(path) as index:
            before = index.settings
            if missing and before is None:
                raise LeapOptionsError("paths", f"there is no file or directory {missing[0]}")
            if before is not None and (before.tokens, before.overlap) != (settings.tokens, settings.overlap):
                _forget_all(index)
            index.save_settings(settings)
            update = _update_files(index, settings, runner, on_progress, stop)
            if runner is not None and not stop.is_set():
                update.embedded = _embed(index, runner, on_progress, stop)
            open_table(index)  # so that the first search need not make it
            return update
    except Busy:
        raise IndexBusyError(f"another process is changing the index {path.stem}", hint="wait for it") from None


def _forget_all(index: IndexFile) -> None:
    for path in index.files():
        index.remove_file(path)


def _update_files(
    index: IndexFile,
    settings: IndexSettings,
    runner: EmbeddingRunner | None,
    on_progress: Progress,
    stop: threading.Event,
) -> Update:
    update = Update()
    indexed = index.files()

    def skip(path: str, reason: str) -> None:
        update.skipped[text_of(path)] = reason

    roots = [Path(each) for each in settings.paths]
    update.skipped |= {text_of(str(root)): "it is not there any more" for root in roots if not os.path.exists(root)}
    paths = list(dict.fromkeys(files_below(roots, settings.patterns, skip)))
    count, tokens = _counter(settings, runner)
    for number, path in enumerate(paths):
        if stop.is_set():
            return update
        on_progress("reading", number, len(paths))
        before = indexed.get(str(path))
        try:
            if text_of(str(path)) != str(path):
                raise UnreadableDocumentError("its name is no text")
            status = path.stat()
            if before is not None and (before.size, before.modified) == (status.st_size, status.st_mtime_ns):
                update.unchanged += 1
                continue
            kind, lines = read_document(path)
            digest = _digest(f"{line.number} {line.text}" for line in lines)
            file = IndexedFile(0, str(path), kind, status.st_size, status.st_mtime_ns, digest)
            if before is not None and before.digest == digest:
                index.touch_file(file)
                update.unchanged += 1
                continue
            chunks = cut(kind, lines, count=count, tokens=tokens, overlap=settings.overlap)
            index.put_file(file, [(chunk, _digest([chunk.heading, chunk.text])) for chunk in chunks])
            update.added += before is None
            update.changed += before is not None
        except FileNotFoundError:
            continue  # it is removed below
        except (UnreadableDocumentError, OSError) as error:
            reason = error.message if isinstance(error, LeapError) else str(error.strerror)
            update.skipped[text_of(str(path))] = reason
            if before is not None:
                index.remove_file(str(path))
    on_progress("reading", len(paths), len(paths))
    there = {str(path) for path in paths if os.path.exists(path)}
    for missing in [path for path in indexed if path not in there]:
        index.remove_file(missing)
        update.removed += 1
    return update


def _counter(
    settings: IndexSettings, runner: EmbeddingRunner | None
) -> tuple[Callable[[Sequence[str]], Sequence[int]], int]:
    """How tokens of a line are counted, and how many a chunk may have."""
    if runner is None:
        return count_words, settings.tokens
    (base,) = runner.count_tokens([""])

    def count(texts: Sequence[str]) -> list[int]:
        return [max(1, size - base) + 1 for size in runner.count_tokens(texts)]  # and one for the line's end

    return count, min(settings.tokens, runner.most_tokens - base - SPECIAL_TOKENS)


def _digest(texts: Iterable[str]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.digest()


def _embed(index: IndexFile, runner: EmbeddingRunner, on_progress: Progress, stop: threading.Event) -> int:
    import numpy as np

    index.begin_vectors(runner.fingerprint.hex())
    counts = index.counts()
    missing, done = counts["without_vector"], 0
    while not stop.is_set():
        on_progress("embedding", done, missing)
        batch = index.without_vector(TEXTS_AT_ONCE)
        if not batch:
            break
        try:
            vectors = runner.embed([text for _, text in batch], "document", too_long="cut", cancelled=stop)
        except LeapGenerationError:
            if stop.is_set():
                break
            raise
        index.put_vectors([id for id, _ in batch], vectors.astype(np.float16))
        done += len(batch)
    return done

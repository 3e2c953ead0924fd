"""Indexes of this data directory, and bringing one up to date: only what has changed is read again.

Killed at any point it resumes where it stopped, and does at most one file's chunks and one batch of vectors again.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from ...documents import is_address
from ...documents.blocks import Document, TextLine, UnreadableDocumentError
from ...documents.kinds import CODE, MARKDOWN, PDF, TEXT, kind_of
from ...documents.reading import read_address, read_document
from ...errors import LeapError, LeapGenerationError, LeapNotFoundError, LeapOptionsError, LeapSerializationError
from ...system.dataclass import dataclass
from ...system.directories import Directories, make_directory
from ...system.files import text_of
from ...system.locks import Busy, locked
from .chunking import count_words, cut
from .index_file import IndexedFile, IndexFile, IndexSettings
from .vector_table import open_table, table_path

if TYPE_CHECKING:
    from ...conversation.embedding import EmbeddingRunner

TEXTS_AT_ONCE = 32
"""Chunks whose vectors are made and kept together."""
SPECIAL_TOKENS = 4
"""Space that a model's own prefix and opening tokens may need beside those that are counted."""

Progress = Callable[[str, int, int], object]
"""What is done ("reading", "embedding"), how many of how many."""


@dataclass
class Update:
    """What an update did. ``skipped``: files that cannot be indexed, with the reason. ``without_text``: the pages of a
    file that are pictures, which nobody has read. ``notes``: what of a file could not be read."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    embedded: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    without_text: dict[str, list[int]] = field(default_factory=dict)
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)


class IndexBusyError(LeapError):
    """Another process is changing the index."""


def update_index(
    path: Path,
    settings: IndexSettings,
    runner: EmbeddingRunner | None,
    *,
    on_progress: Progress = lambda _step, _done, _all: None,
    stop: threading.Event | None = None,
    scans: Callable[[Document], Document] | None = None,
) -> Update:
    """Bring the index in ``path`` (made when it is not there) up to date with ``settings``. ``runner``: the model of
    ``settings.model``, None where there is none. ``stop``: ends soon; what is done is kept. ``scans`` reads the pages
    that are pictures.

    Raises IndexBusyError, LeapOptionsError for paths that do not exist, and what the runner raises.
    """
    if runner is not None and not runner.pools:
        raise LeapOptionsError(
            "model", f"{runner.model_id} makes no vectors of passages; name one that was made for embeddings"
        )
    stop = stop or threading.Event()
    missing = [each for each in settings.paths if not is_address(each) and not os.path.exists(each)]
    if missing and not path.exists():  # and there shall be none
        raise LeapOptionsError("paths", f"there is no file or directory {missing[0]}")
    make_directory(path.parent, 0o700)
    try:
        with locked(path.with_suffix(".lock"), wait=False), IndexFile(path) as index:
            before = index.settings
            unknown = [each for each in missing if before is None or each not in before.paths]
            if unknown:  # what was indexed once may be away for a while
                raise LeapOptionsError("paths", f"there is no file or directory {unknown[0]}")
            if before is not None and (before.tokens, before.overlap) != (settings.tokens, settings.overlap):
                _forget_all(index)
            index.save_settings(settings)
            update = _update_files(index, settings, runner, on_progress, stop, scans)
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
    scans: Callable[[Document], Document] | None,
) -> Update:
    update = Update()
    indexed = index.files()

    def skip(path: str, reason: str) -> None:
        update.skipped[text_of(path)] = reason

    roots = [Path(each) for each in settings.paths if not is_address(each)]
    update.skipped |= {text_of(str(root)): "it is not there any more" for root in roots if not os.path.exists(root)}
    names = [*map(str, files_below(roots, settings.patterns, skip)), *filter(is_address, settings.paths)]
    names = list(dict.fromkeys(names))
    count, tokens = _counter(settings, runner)
    for number, name in enumerate(names):
        if stop.is_set():
            return update
        on_progress("reading", number, len(names))
        before = indexed.get(name)
        try:
            read = _read_version(name, before, update, stop, scans)
            if read is None or (before is not None and before.digest == read[0].digest):
                if read is not None:
                    index.touch_file(read[0])
                update.unchanged += 1
                continue
            file, lines = read
            chunks = cut(_kind_of(file), lines, count=count, tokens=tokens, overlap=settings.overlap)
            index.put_file(file, [(chunk, _digest([chunk.heading, chunk.text])) for chunk in chunks])
            update.added += before is None
            update.changed += before is not None
        except FileNotFoundError:
            continue  # it is removed below
        except (LeapSerializationError, OSError) as error:
            if stop.is_set():
                return update
            reason = error.message if isinstance(error, LeapError) else str(error.strerror)
            update.skipped[text_of(name)] = reason
            if before is not None and not is_address(name):  # which may be away for a while
                index.remove_file(name)
    on_progress("reading", len(names), len(names))
    there = {name for name in names if is_address(name) or os.path.exists(name)}
    for missing in [path for path in indexed if path not in there]:
        index.remove_file(missing)
        update.removed += 1
    return update


def _kind_of(file: IndexedFile) -> str:
    return file.kind if file.kind in (TEXT, CODE, PDF) else MARKDOWN


def _read_version(
    name: str,
    before: IndexedFile | None,
    update: Update,
    stop: threading.Event,
    scans: Callable[[Document], Document] | None,
) -> tuple[IndexedFile, Sequence[TextLine]] | None:
    """Read the present version of a file or address; None where size and time are those of the version ``before``.
    Notes, and pages without text, are put into ``update``. Raises LeapSerializationError or OSError."""
    if text_of(name) != name:
        raise UnreadableDocumentError("its name is no text")
    size, modified = _version_of(name)
    if before is not None and modified and (before.size, before.modified) == (size, modified):
        return None
    if is_address(name):
        document = read_address(name, allow_private=True, stop=stop)
    else:
        document = read_document(Path(name), stop=stop)
    update.notes |= {name: document.notes} if document.notes else {}
    if document.blank and scans is not None:
        document = scans(document)
    if blank := document.blank:
        update.without_text[name] = blank
        modified = 0  # so that it is read again, by a model that sees
    digest = _digest(f"{line.number} {line.text}" for line in document.lines)
    return IndexedFile(0, name, document.kind, size, modified, digest), document.lines


def _version_of(name: str) -> tuple[int, int]:
    """Size and time of a file's version, which are no others of what is in it; zeros of an address."""
    if is_address(name):
        return 0, 0
    status = os.stat(name)
    return status.st_size, status.st_mtime_ns


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


NAME = re.compile(r"[^\W_][\w.+-]{0,99}")
ENDING = ".db"
BESIDE = (".db-wal", ".db-shm", ".vectors.new", ".lock")


class IndexNotFoundError(LeapNotFoundError):
    """There is no index of this name."""


class Indexes:
    """The directory of indexes; asking it for something creates nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @staticmethod
    def of(directories: Directories) -> Indexes:
        return Indexes(directories.data / "indexes")

    def names(self) -> list[str]:
        """Of all indexes, in order."""
        with suppress(OSError):
            return sorted(path.stem for path in self.root.glob(f"*{ENDING}"))
        return []

    def path_of(self, name: str) -> Path:
        """Where an index of this name is or would be. Raises LeapOptionsError for what can be no name."""
        if not NAME.fullmatch(name) or name.endswith("."):
            raise LeapOptionsError("name", f"{name!r} cannot be an index's name: letters, digits and .+-_ only")
        return self.root / f"{name}{ENDING}"

    def open(self, name: str) -> IndexFile:
        """Raises IndexNotFoundError naming those that there are."""
        path = self.path_of(name)
        if not path.is_file():
            there = ", ".join(self.names())
            hint = f"there is {there}" if there else f"`leap index {name} PATH` makes one"
            raise IndexNotFoundError(f"there is no index {name!r}", hint=hint)
        return IndexFile(path)

    def remove(self, name: str) -> None:
        """Delete an index with all that belongs to it. Raises IndexNotFoundError, IndexBusyError."""
        self.open(name).close()
        path = self.path_of(name)
        try:
            with locked(path.with_suffix(".lock"), wait=False):
                for each in (path, table_path(path)):
                    each.unlink(missing_ok=True)
        except Busy:
            raise IndexBusyError(f"another process is changing the index {name}", hint="wait for it") from None
        for ending in BESIDE:
            path.with_suffix(ending).unlink(missing_ok=True)


SKIPPED_DIRECTORIES = {"node_modules", "__pycache__", "venv", "build", "dist", "target", "site-packages"}
Skip = Callable[[str, str], object]
"""Called with a file or directory that is left out, and the reason."""


def files_below(
    paths: Sequence[Path], patterns: Sequence[str] = (), on_skipped: Skip = lambda _path, _reason: None
) -> Iterator[Path]:
    """The files to index, in a fixed order: those named, and those below directories whose kind is known, without
    hidden ones, what tools made and links that lead out of the directory. ``patterns``: only those whose path or name
    fits one (``*.md``, ``docs/*``)."""
    for path in paths:
        if os.path.isdir(path):
            inside = os.path.realpath(path)
            yield from (file for file in _walk(path, inside, on_skipped) if _fits(file, path, patterns))
        else:
            yield path


def _walk(directory: Path, inside: str, on_skipped: Skip) -> Iterator[Path]:
    try:
        with os.scandir(directory) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
        on_skipped(str(directory), str(error.strerror))
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED_DIRECTORIES:
                    yield from _walk(Path(entry.path), inside, on_skipped)
            elif kind_of(Path(entry.name)) is not None and entry.is_file():
                if not entry.is_symlink() or Path(os.path.realpath(entry.path)).is_relative_to(inside):
                    yield Path(entry.path)
                else:
                    on_skipped(entry.path, "it is a link to a file outside; name that file to index it")
        except OSError as error:  # a link to itself, for one
            on_skipped(entry.path, str(error.strerror))


def _fits(file: Path, below: Path, patterns: Sequence[str]) -> bool:
    relative = file.relative_to(below).as_posix()
    return not patterns or any(fnmatch(relative, pattern) or fnmatch(file.name, pattern) for pattern in patterns)

"""Prompt snapshots: the state of a sequence after the beginning of a prompt, in memory and on disk.

A snapshot is found by content alone: its name is a hash over everything that its bytes depend on (model file, memory
layout, llama.cpp build, the request's variant) and the exact keys of its positions. There is no index to damage, and
processes may share a directory: files appear by rename and may vanish at any time. Whatever is not exactly right is a
miss.

File: MAGIC, BLAKE2b-256 of all that follows, scope (16 bytes), name (16 bytes), positions (u32), length of
the state (u64), then the state.
"""

from __future__ import annotations

import os
import queue
import struct
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from ...conversation.options import CacheOptions
from ...system.dataclass import dataclass
from ...system.directories import make_directory
from ...system.files import replacing

MAGIC = b"leap snapshot 2\n"
HEAD = struct.Struct("<16s16sIQ")
OPENING = len(MAGIC) + 32 + HEAD.size
UNFINISHED = ".writing-"
ABANDONED_SECONDS = 3600
"""Age from which on an unfinished file belongs to a writer that was killed."""
SHORTEST = 16
"""Positions below which computing a prefix again is as quick as restoring it."""


@dataclass(frozen=True, eq=False)
class HeldState:
    """The state of an interrupted request after so many ``positions``: ``state``, or a file of the store."""

    positions: int
    state: bytes | None
    name: bytes = b""


class SnapshotStore:
    """Snapshots of one model under one memory layout, which ``scope`` (16 bytes) names."""

    def __init__(self, options: CacheOptions, scope: bytes) -> None:
        self._scope = scope
        self._options = options
        self._memory: OrderedDict[bytes, bytes] = OrderedDict()
        self._memory_bytes = self._held_bytes = 0
        self._directory: Path | None = None
        if options.enabled and options.path is not None and not options.disk_disabled:
            self._directory = Path(options.path) / scope.hex()
        self._writes: queue.Queue[tuple[bytes, int, bytes] | None] = queue.Queue(maxsize=4)
        self._writer: threading.Thread | None = None

    @property
    def enabled(self) -> bool:
        """Whether snapshots are kept at all."""
        return self._options.enabled

    @property
    def on_disk(self) -> bool:
        """Whether snapshots outlive the process."""
        return self._directory is not None

    def find(
        self, keys: Sequence[int], positions: Iterable[int], variant: bytes = b"", *, above: int
    ) -> Iterator[tuple[int, bytes]]:
        """Snapshots of ``keys[:position]`` for the given positions above ``above``, longest first, each as
        (position, state)."""
        if not self.enabled:
            return
        useful = [p for p in sorted(set(positions)) if p > above and p >= SHORTEST]
        for position, name in reversed(list(self._names(keys, useful, variant))):
            state = self._memory.get(name)
            if state is not None:
                self._memory.move_to_end(name)
            else:
                state = self._read(name, position)
            if state is not None:
                yield position, state

    def keep_in_memory(self, keys: Sequence[int], state: bytes, variant: bytes = b"") -> None:
        """Remember a snapshot of all of ``keys`` in this process."""
        name = self._name(keys, variant)
        self._memory_bytes += len(state) - len(self._memory.pop(name, b""))
        self._memory[name] = state
        self._shrink()

    def _shrink(self) -> None:
        limits = self._options
        most = limits.max_bytes_memory - self._held_bytes
        while self._memory and (self._memory_bytes > most or len(self._memory) > limits.max_entries_memory):
            _, dropped = self._memory.popitem(last=False)
            self._memory_bytes -= len(dropped)

    def hold(self, keys: Sequence[int], state: bytes, variant: bytes = b"") -> HeldState | None:
        """Keep a state until ``take``: in memory, where it has room beside others that are held, else on the disk. None
        where neither can be. Other snapshots in memory make space."""
        if self._held_bytes + len(state) <= self._options.max_bytes_memory:
            self._held_bytes += len(state)
            self._shrink()
            return HeldState(len(keys), state)
        if self._directory is None or len(state) > self._options.max_bytes_disk:
            return None
        name = self._name(keys, variant)
        try:
            self._write(name, len(keys), state)
            self._evict()
        except OSError:
            return None
        return HeldState(len(keys), None, name)

    def take(self, held: HeldState) -> bytes | None:
        """The state that was held, which is then the caller's; None where its file is gone or damaged."""
        if held.state is None:
            return self._read(held.name, held.positions)
        self._held_bytes -= len(held.state)
        return held.state

    def drop(self, held: HeldState | None) -> None:
        """A held state is not needed any more. A file stays, as a snapshot like others."""
        if held is not None and held.state is not None:
            self._held_bytes -= len(held.state)

    def keep_on_disk(self, keys: Sequence[int], state: bytes, variant: bytes = b"") -> None:
        """Write a snapshot of all of ``keys`` for other processes, in the background; dropped when the disk cannot keep
        up."""
        if self._directory is None or len(keys) < SHORTEST:
            return
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_all, name="leap-snapshots", daemon=True)
            self._writer.start()
        with suppress(queue.Full):
            self._writes.put_nowait((self._name(keys, variant), len(keys), state))

    def has_on_disk(self, keys: Sequence[int], variant: bytes = b"") -> bool:
        """Whether a file for all of ``keys`` is there, and none that was cut: that one is written anew."""
        if self._directory is None:
            return False
        name = self._name(keys, variant)
        with suppress(OSError, struct.error), self._path(name).open("rb") as file:
            opening = file.read(OPENING)
            _, written, positions, length = HEAD.unpack(opening[OPENING - HEAD.size :])
            size = os.fstat(file.fileno()).st_size
            is_of_keys = opening.startswith(MAGIC) and (written, positions) == (name, len(keys))
            return bool(is_of_keys and size == OPENING + length)
        return False

    def close(self) -> None:
        """Finish writing, forget what is in memory."""
        if self._writer is not None:
            self._writes.put(None)
            self._writer.join()
            self._writer = None
        self._memory.clear()
        self._memory_bytes = 0

    def _name(self, keys: Sequence[int], variant: bytes = b"") -> bytes:
        return next(name for _, name in self._names(keys, [len(keys)], variant))

    def _names(self, keys: Sequence[int], positions: Sequence[int], variant: bytes) -> Iterator[tuple[int, bytes]]:
        """(position, name) for increasing positions, hashing every key once."""
        digest = blake2b(self._scope + variant, digest_size=16)  # keys follow in 8 bytes each, variants have 16 or none
        done = 0
        for position in positions:
            digest.update(array("q", keys[done:position]).tobytes())
            done = position
            yield position, digest.copy().digest()

    def _path(self, name: bytes) -> Path:
        assert self._directory is not None
        return self._directory / f"{name.hex()}.snapshot"

    def _read(self, name: bytes, position: int) -> bytes | None:
        if self._directory is None:
            return None
        path = self._path(name)
        try:
            raw = path.read_bytes()
        except OSError:
            return None
        start = len(MAGIC) + 32
        body = memoryview(raw)[start:]
        sound = (
            raw.startswith(MAGIC)
            and len(body) > HEAD.size
            and blake2b(body, digest_size=32).digest() == raw[len(MAGIC) : start]
            and HEAD.unpack_from(body) == (self._scope, name, position, len(body) - HEAD.size)
        )
        if not sound:
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)
        return bytes(body[HEAD.size :])

    def _write_all(self) -> None:
        while (item := self._writes.get()) is not None:
            with suppress(OSError):  # a full or read-only disk: the next process computes the prompt again
                self._write(*item)
                self._evict()

    def _write(self, name: bytes, positions: int, state: bytes) -> None:
        assert self._directory is not None
        make_directory(self._directory, 0o700)
        head = HEAD.pack(self._scope, name, positions, len(state))
        digest = blake2b(head, digest_size=32)
        digest.update(state)
        unfinished = self._directory / f"{UNFINISHED}{os.urandom(8).hex()}"
        with replacing(self._path(name), unfinished=unfinished, mode=0o600, durable=False) as file:
            file.write(MAGIC + digest.digest() + head)
            file.write(state)

    def _evict(self) -> None:
        """Keep all scopes of the directory together within the bounds, least recently used first out."""
        assert self._directory is not None
        for path in self._directory.glob(f"{UNFINISHED}*"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                    path.unlink()
        files = []
        for path in self._directory.parent.glob("*/*.snapshot"):
            with suppress(OSError):
                stat = path.stat()
                files.append((stat.st_mtime_ns, stat.st_size, path))
        files.sort(reverse=True)
        total = 0
        for count, (_, size, path) in enumerate(files, 1):
            total += size
            if count > self._options.disk_entries or total > self._options.max_bytes_disk:
                with suppress(OSError):
                    path.unlink()


@dataclass(frozen=True)
class SnapshotFile:
    """One kept prompt: ``tokens`` of it, ``bytes`` of state on disk, ``used`` last (seconds since the epoch).

    ``scope`` names the model file and the memory layout that it fits; ``tokens`` is None where the file is damaged.
    """

    path: Path
    scope: str
    tokens: int | None
    bytes: int
    used: float


def snapshot_files(directory: Path) -> list[SnapshotFile]:
    """All cached prompts below ``directory``, the one that was used last first."""
    files = [each for path in directory.glob("*/*.snapshot") if (each := _read(path)) is not None]
    return sorted(files, key=lambda each: -each.used)


def remove_snapshots(files: Sequence[SnapshotFile], directory: Path) -> int:
    """Remove these, and what killed writers left in their directories; returns how many are gone. Processes that use
    them compute their prompts again."""
    removed = 0
    for each in files:
        with suppress(FileNotFoundError):
            each.path.unlink()
            removed += 1
    for path in _left_over(directory):
        with suppress(OSError):
            path.unlink()
    for scope in directory.glob("*"):
        with suppress(OSError):  # not empty
            scope.rmdir()
    return removed


def _left_over(directory: Path) -> Iterator[Path]:
    """Unfinished files of a minute and more."""
    for path in directory.glob(f"*/{UNFINISHED}*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > 60:
                yield path


def _read(path: Path) -> SnapshotFile | None:
    try:
        status = path.stat()
        with path.open("rb") as file:
            opening = file.read(len(MAGIC) + 32 + HEAD.size)
    except OSError:  # removed meanwhile
        return None
    tokens = None
    if opening.startswith(MAGIC) and len(opening) == len(MAGIC) + 32 + HEAD.size:
        tokens = HEAD.unpack_from(opening, len(MAGIC) + 32)[2]
    return SnapshotFile(path, path.parent.name, tokens, status.st_size, status.st_mtime)

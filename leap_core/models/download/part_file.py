"""A file while it arrives: ``<name>.part`` with the bytes where they belong, and ``<name>.part.state`` about it.

The state's first line is JSON that says which remote file this is; then comes one character a block of 256 KiB,
``.`` for missing and ``#`` for written. A block is marked after its bytes were handed to the system, one byte at a time
and in place, so a process that is killed loses at most the blocks it was receiving. After a power failure marks may
stand for bytes that never reached the disk: the hash over the whole file shows it, and the transfer starts over.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...storage.atomic_files import replacing, sync_directory
from ...storage.positioned import BINARY, read_at, write_at
from ..hub.api import RemoteFile
from ..installed.model_store import PART, STATE

BLOCK = 256 * 1024
MISSING, WRITTEN = ord("."), ord("#")


class PartFile:
    """The bytes of ``remote`` that are here so far. Blocks may be written from several threads.

    ``resumed`` is the number of bytes that were here already. ``started_over`` says why earlier ones were dropped, None
    when they were not.
    """

    def __init__(self, target: Path, remote: RemoteFile) -> None:
        self.target = target
        self.remote = remote
        self.size = remote.size
        self.path = target.with_name(target.name + PART)
        self.state_path = target.with_name(target.name + STATE)
        self.etag = remote.etag
        self.started_over: str | None = None
        self.changed = threading.Condition()
        target.parent.mkdir(parents=True, exist_ok=True)
        self._guard = threading.Lock()
        self._state = -1
        self._blocks = self._resume()
        self._data = os.open(self.path, os.O_RDWR | os.O_CREAT | BINARY, 0o644)
        self._write_state()
        self.resumed = self.bytes_written

    def __enter__(self) -> PartFile:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._close_data()
        self._close_state()

    @property
    def block_count(self) -> int:
        return len(self._blocks)

    @property
    def bytes_written(self) -> int:
        """Bytes of complete blocks."""
        whole = self._blocks.count(WRITTEN) * BLOCK
        last_is_short = self.size % BLOCK and self._blocks and self._blocks[-1] == WRITTEN
        return whole - (BLOCK - self.size % BLOCK) if last_is_short else whole

    @property
    def is_complete(self) -> bool:
        return MISSING not in self._blocks

    def is_written(self, block: int) -> bool:
        return self._blocks[block] == WRITTEN

    def missing(self) -> Iterator[tuple[int, int]]:
        """The gaps: first byte and the byte after the last, in order."""
        position = self._blocks.find(MISSING)
        while position >= 0:
            end = self._blocks.find(WRITTEN, position)
            end = len(self._blocks) if end < 0 else end
            yield position * BLOCK, min(end * BLOCK, self.size)
            position = self._blocks.find(MISSING, end)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Put bytes in their place; ``mark`` the block when all of it is there. Raises OSError."""
        while data:
            written = write_at(self._data, data, offset)
            offset += written
            data = data[written:]

    def mark(self, block: int) -> None:
        """Record that a block is complete."""
        with self._guard:
            write_at(self._state, b"#", self._header_size + block)
        with self.changed:
            self._blocks[block] = WRITTEN
            self.changed.notify_all()

    def read(self, block: int) -> bytes:
        """The bytes of a complete block."""
        return read_at(self._data, min(BLOCK, self.size - block * BLOCK), block * BLOCK)

    def remember_etag(self, etag: str | None) -> None:
        """Note the validator of the first answer, so that later ones can be held against it."""
        with self._guard:
            if etag is not None and self.etag is None:
                self.etag = etag
                self._write_state()

    def discard(self) -> None:
        """Remove what has arrived; the object is of no use afterwards."""
        self._close_data()
        self._close_state()
        discard_part(self.target)

    def finish(self) -> None:
        """Make the complete file durable and give it its own name."""
        os.ftruncate(self._data, self.size)
        os.fsync(self._data)
        self._close_data()
        self._close_state()
        os.replace(self.path, self.target)
        with suppress(FileNotFoundError):
            self.state_path.unlink()
        sync_directory(self.target.parent)

    def sync(self) -> None:
        """Start bringing to the disk what was written so far, so that ``finish`` has less to wait for."""
        os.fsync(self._data)

    def _identity(self) -> dict[str, Any]:
        remote = self.remote
        return {"url": remote.url, "size": remote.size, "sha256": remote.sha256, "etag": self.etag, "block": BLOCK}

    def _resume(self) -> bytearray:
        try:
            state = self.state_path.read_bytes()
        except FileNotFoundError:
            return _nothing(self.size)
        header, _, blocks = state.partition(b"\n")
        header_json: Any = None
        with suppress(ValueError):
            header_json = json.loads(header)
        if not isinstance(header_json, dict) or not self.path.is_file():
            return _nothing(self.size)
        if not self._is_same(header_json):
            self.started_over = _why_other(header_json, self.remote)
            with suppress(FileNotFoundError):
                self.path.unlink()
            return _nothing(self.size)
        self.etag = self.etag or header_json.get("etag")
        return self._trusted_blocks(blocks)

    def _is_same(self, header: dict[str, Any]) -> bool:
        """By its hash where one is known, else by URL and validator."""
        if header.get("size") != self.size or header.get("block") != BLOCK:
            return False
        if self.remote.sha256 or header.get("sha256"):
            return bool(header.get("sha256") == self.remote.sha256)
        return header.get("url") == self.remote.url and self.etag is not None and header.get("etag") == self.etag

    def _trusted_blocks(self, blocks: bytes) -> bytearray:
        """The marks of an earlier process, as far as the part is long enough for them."""
        states = _nothing(self.size)
        length = self.path.stat().st_size
        for block in range(min(len(states), len(blocks))):
            if blocks[block] == WRITTEN and min((block + 1) * BLOCK, self.size) <= length:
                states[block] = WRITTEN
        return states

    def _write_state(self) -> None:
        header = json.dumps(self._identity()).encode() + b"\n"
        fresh = self.state_path.with_name(self.state_path.name + ".new")
        with replacing(self.state_path, unfinished=fresh, durable=False) as file:
            file.write(header + self._blocks)
            self._close_state()
        self._header_size = len(header)
        self._state = os.open(self.state_path, os.O_RDWR | BINARY)

    def _close_data(self) -> None:
        descriptor, self._data = self._data, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _close_state(self) -> None:
        descriptor, self._state = self._state, -1
        if descriptor >= 0:
            os.close(descriptor)


def discard_part(target: Path) -> None:
    """Remove what has arrived of ``target``."""
    for ending in (PART, STATE, STATE + ".new"):
        with suppress(FileNotFoundError):
            target.with_name(target.name + ending).unlink()


def _nothing(size: int) -> bytearray:
    return bytearray([MISSING]) * -(-size // BLOCK)


def _why_other(header: dict[str, Any], remote: RemoteFile) -> str:
    if remote.sha256 is None and remote.etag is None:
        return "the server gives no ETag by which to tell whether the file is still the same"
    return "the remote file has changed"

"""One file over HTTP: resumed, hashed while it arrives, over several connections, kept beside its ranges.

It begins with one connection. Where the server answers ranges and the rest would take more than a few seconds, the
largest remaining piece is split and a second connection takes its end; more follow as long as each made it faster.
Knows nothing of where files come from or go to.

The state's first line is JSON that says which remote file this is; then comes one character a block of 256 KiB,
``.`` for missing and ``#`` for written. A block is marked after its bytes were handed to the system, one byte at a time
and in place, so a process that is killed loses at most the blocks it was receiving. After a power failure marks may
represent bytes that never reached the disk: the hash over the whole file shows it, and the transfer starts over.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import LeapModelDownloadError, LeapModelDownloadSizeMismatchError
from ...system.dataclass import dataclass
from ...system.directories import make_directory
from ...system.files import BINARY, read_at, replacing, sync_directory, write_at
from ..http import DownloadStopped, Retryable, RetryPolicy, Web, WebAnswer
from ..hub import RemoteFile, strong_etag
from ..store import PART, STATE

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
        make_directory(target.parent)
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
            self.started_over = _why_other(self.remote)
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


def _why_other(remote: RemoteFile) -> str:
    if remote.sha256 is None and remote.etag is None:
        return "the server sends no ETag, so a changed file cannot be detected"
    return "the remote file has changed"


CONNECTIONS = 4
SMALLEST_SPLIT = 8 * 1024**2
MEASURED_SECONDS = 1.0
WORTH_SECONDS = 3.0
"""A rest that takes less is left to the connections there are."""
WORTH_GAIN = 1.2
"""Another connection is added only if the last one made the transfer this much faster."""
FLUSH_BYTES = 64 * 1024**2
TICK_SECONDS = 0.05


class RemoteChanged(Exception):
    """The file behind the URL is not the one that the transfer began with."""


@dataclass
class Segment:
    """A stretch of the file that one connection fetches: the next byte, and the byte after the last."""

    position: int
    end: int

    @property
    def remaining(self) -> int:
        return self.end - self.position


class Transfer:
    """``run`` fetches what is missing of ``part``. ``on_progress`` is called some times a second with the bytes that
    are there. ``stop`` ends it with DownloadStopped; ``retry_policy`` makes the policy for its failures."""

    def __init__(
        self,
        web: Web,
        part: PartFile,
        *,
        stop: threading.Event,
        connections: int = CONNECTIONS,
        retry_policy: Callable[[threading.Event], RetryPolicy] = RetryPolicy,
        on_progress: Callable[[int], object] = lambda _bytes: None,
    ) -> None:
        self.web = web
        self.part = part
        self.remote: RemoteFile = part.remote
        self._stop = stop
        self._connections = connections
        self._on_progress = on_progress
        self._halt = threading.Event()
        self._news = threading.Event()
        self._retry_policy = retry_policy(self._halt)
        self._guard = threading.Lock()
        self._waiting = [Segment(start, end) for start, end in part.missing()]
        self._active: list[Segment] = []
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None
        self._ranges = False
        self._rates = _Rates(part.bytes_written)

    def run(self) -> str:
        """Fetch the rest; the SHA-256 of the whole file, in hex.

        Raises RemoteChanged, LeapModelDownloadError (DownloadStopped among them), or OSError when the disk fails. All
        that has arrived stays in the part.
        """
        hashing = _FollowingHash(self.part, self._halt)
        hashing.start()
        flushing = threading.Thread(target=self._flush, name="leap-flush", daemon=True)
        flushing.start()
        try:
            if not self.part.is_complete:
                self._add_connection()
            while not self.part.is_complete:
                self._news.wait(TICK_SECONDS)
                self._check()
                self._on_progress(self.part.bytes_written)
                if any(thread.is_alive() for thread in self._threads):
                    self._consider_another()
                elif not self.part.is_complete and self._failure is None:
                    self._add_connection()  # a part's rest was left when all connections had ended
            self._on_progress(self.part.bytes_written)
            while hashing.is_alive():
                hashing.join(TICK_SECONDS)
                self._check()
        finally:
            self._end(hashing)
        self._check()
        return hashing.hexdigest()

    def _check(self) -> None:
        self._news.clear()
        if self._failure is not None:
            raise self._failure
        if self._stop.is_set():
            raise DownloadStopped

    def _end(self, hashing: threading.Thread) -> None:
        self._halt.set()
        with self.part.changed:
            self.part.changed.notify_all()
        with self._guard:
            sockets = list(self._sockets)
        for connection in sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for bytes
        for thread in (*self._threads, hashing):
            thread.join(2)

    def _flush(self) -> None:
        """Bring to the disk what has arrived, now and then, so that little is left to wait for at the end."""
        flushed = self.part.bytes_written
        with suppress(OSError):  # what fails here fails again at the end, where it is reported
            while not self._halt.wait(TICK_SECONDS):
                if self.part.bytes_written - flushed >= FLUSH_BYTES:
                    flushed = self.part.bytes_written
                    self.part.sync()

    def _add_connection(self) -> None:
        thread = threading.Thread(target=self._work, name="leap-download", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        segment = None
        try:
            while (segment := self._next_segment()) is not None:
                while segment.remaining > 0 and not self._halt.is_set():
                    try:
                        self._fetch(segment)
                    except Retryable as error:
                        self._retry_policy.failed(error)
                        self._check_resumable(error)
        except BaseException as error:
            if not self._leave_to_others(segment, error) and not self._halt.is_set():
                self._failure = error
                self._halt.set()
        finally:
            self._news.set()

    def _check_resumable(self, error: Retryable) -> None:
        """Without hash and ETag two versions mixed in one file would look alike: then it has to begin again."""
        if not self._is_recognizable and self.part.bytes_written:
            raise RemoteChanged(f"{error}, and the server sends no ETag to resume with") from None

    @property
    def _is_recognizable(self) -> bool:
        return self.remote.sha256 is not None or self.part.etag is not None

    def _leave_to_others(self, segment: Segment | None, error: BaseException) -> bool:
        """Whether the other connections can continue without this one: some servers refuse a second, whatever they
        say."""
        with self._guard:
            me = threading.current_thread()
            others = any(thread.is_alive() for thread in self._threads if thread is not me)
            if segment is None or not others or not isinstance(error, LeapModelDownloadError) or self._halt.is_set():
                return False
            self._waiting.append(Segment(segment.position, segment.end))
            segment.end = segment.position
            self._connections = 1
            return True

    def _next_segment(self) -> Segment | None:
        with self._guard:
            self._active = [segment for segment in self._active if segment.remaining > 0]
            if self._halt.is_set():
                return None
            if self._waiting:
                segment = self._waiting.pop(0)
            else:
                largest = max(self._active, key=lambda segment: segment.remaining, default=None)
                if largest is None or not self._ranges or largest.remaining < 2 * SMALLEST_SPLIT:
                    return None
                middle = (largest.position + largest.remaining // 2) // BLOCK * BLOCK
                segment = Segment(middle, largest.end)
                largest.end = middle
            self._active.append(segment)
            return segment

    def _consider_another(self) -> None:
        if not self._rates.measured(self.part.bytes_written) or not (self._ranges and self._is_recognizable):
            return
        working = sum(thread.is_alive() for thread in self._threads)
        rest = self.remote.size - self.part.bytes_written
        if working < self._connections and rest > WORTH_SECONDS * self._rates.current and self._rates.still_helps():
            self._add_connection()

    def _fetch(self, segment: Segment) -> None:
        headers = {"Range": f"bytes={segment.position}-{segment.end - 1}"}
        if self.part.etag is not None:
            headers["If-Range"] = self.part.etag
        with self.web.get(self.remote.url, headers) as answer:
            position = self._beginning(answer, segment)
            self.part.remember_etag(strong_etag(answer.headers))
            connection = self._listen_to(answer)
            try:
                for piece in answer.pieces():
                    if self._halt.is_set():
                        return
                    position = self._take(segment, position, piece)
                    if segment.remaining <= 0:
                        return
            finally:
                with self._guard:
                    self._sockets.discard(connection)
        raise Retryable("the server ended the file early")

    def _beginning(self, answer: WebAnswer, segment: Segment) -> int:
        """The position of the answer's first byte. Raises for every answer that is not this file's."""
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise LeapModelDownloadError(f"{self.remote.url} is sent compressed, although that was not asked for")
        if answer.status == 206:
            self._ranges = True
            return self._range_start(answer, segment)
        if answer.status == 416:
            raise RemoteChanged(f"{self.remote.name} has become shorter")
        if answer.status != 200:
            raise self.web.refusal(answer, self.remote.url, f"file {self.remote.name}")
        length = answer.headers.get("content-length", str(self.remote.size))
        if length != str(self.remote.size) or self._has_other_etag(answer):
            raise RemoteChanged(f"{self.remote.name} has {length} bytes instead of {self.remote.size}")
        return 0  # the server does not do ranges: what is here already is skipped

    def _range_start(self, answer: WebAnswer, segment: Segment) -> int:
        text = answer.headers.get("content-range", "")
        match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", text)
        if match is None or int(match[1]) != segment.position:
            raise LeapModelDownloadError(f"{self.remote.url} answers with another range than asked: {text!r}")
        if match[3] not in ("*", str(self.remote.size)) or self._has_other_etag(answer):
            raise RemoteChanged(f"{self.remote.name} has changed on the server")
        return segment.position

    def _has_other_etag(self, answer: WebAnswer) -> bool:
        """Whether the ETag shows that this is another file. Where the hash is known that decides at the end instead:
        the hosts of one network may give one file several ETags."""
        new_etag = strong_etag(answer.headers)
        return (
            self.remote.sha256 is None
            and self.part.etag is not None
            and new_etag is not None
            and new_etag != self.part.etag
        )

    def _take(self, segment: Segment, position: int, piece: bytes) -> int:
        """Write what belongs to the segment, mark the blocks that this completes; the position after the piece."""
        after = position + len(piece)
        if after > self.remote.size:
            raise LeapModelDownloadSizeMismatchError(
                f"{self.remote.name}: the server sends more than the {self.remote.size} bytes it announced"
            )
        with self._guard:
            start, end = segment.position, min(after, segment.end)
        if end <= start:
            return after
        self.part.write(start, memoryview(piece)[start - position : end - position])
        with self._guard:
            segment.position = end
        completed = range(start // BLOCK, -(-end // BLOCK) if end == self.remote.size else end // BLOCK)
        for block in completed:
            self.part.mark(block)
            self._retry_policy.progressed()
        return after

    def _listen_to(self, answer: WebAnswer) -> Any:
        """Note the connection's socket, to wake its reader when it is time to end."""
        stream = answer.response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream is not None else None
        if connection is not None:
            with self._guard:
                self._sockets.add(connection)
        return connection


class _Rates:
    """Bytes a second over the last stretch, and whether the last added connection was worth it."""

    def __init__(self, count: int) -> None:
        self.current = 0.0
        self._since, self._count = time.monotonic(), count
        self._before_last_added: float | None = None
        self._gave_up = False

    def measured(self, count: int) -> bool:
        """Whether a stretch has been completed with this count of bytes."""
        now = time.monotonic()
        if now - self._since < MEASURED_SECONDS:
            return False
        self.current = (count - self._count) / (now - self._since)
        self._since, self._count = now, count
        return True

    def still_helps(self) -> bool:
        """Whether to add another connection now."""
        if self._before_last_added is not None and self.current < WORTH_GAIN * self._before_last_added:
            self._gave_up = True
        if self._gave_up:
            return False
        self._before_last_added = self.current
        return True


class _FollowingHash(threading.Thread):
    """Hashes the blocks of a part in order, as soon as they are there: earlier ones, and those that arrive."""

    def __init__(self, part: PartFile, halt: threading.Event) -> None:
        super().__init__(name="leap-sha256", daemon=True)
        self._part = part
        self._halt = halt
        self._digest = hashlib.sha256()

    def run(self) -> None:
        with suppress(OSError):  # the part file was closed by another thread; its hash is not needed then
            for block in range(self._part.block_count):
                with self._part.changed:
                    while not self._part.is_written(block):
                        if self._halt.is_set():
                            return
                        self._part.changed.wait(1)
                self._digest.update(self._part.read(block))
                if self._halt.is_set():
                    return

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

"""Which file a verdict is about.

``place_key`` costs a few system calls and changes whenever the file may have changed; ``content_key`` reads the header
and samples of the tensors, and is the same for every copy of a file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from ..llama.engine_version import engine_version
from .subject import Subject

TRIAL = 1
"""Counted up when a trial looks at more than before; verdicts of older ones are forgotten."""
SAMPLES, SAMPLE_BYTES = 32, 32 * 1024
PIECE = 1024 * 1024


def place_key(subject: Subject) -> str:
    """By where the files lie, their inode, size and times. Raises OSError."""
    parts = []
    for path in subject.files():
        status = os.stat(path)
        times = (status.st_mtime_ns, status.st_ctime_ns)
        parts.append(f"{os.path.realpath(path)} {status.st_dev} {status.st_ino} {status.st_size} {times}")
    return _digest(subject, parts)


def content_key(subject: Subject, header_bytes: int) -> str:
    """By the size, the first ``header_bytes`` and samples spread over the files. Raises OSError."""
    return _digest(subject, [_sampled(path, header_bytes) for path in subject.files()])


def _sampled(path: Path, header_bytes: int) -> str:
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        left = min(size, header_bytes)
        while left > 0 and (data := file.read(min(left, PIECE))):
            digest.update(data)
            left -= len(data)
        for number in range(SAMPLES):
            file.seek(max(0, size - SAMPLE_BYTES) * number // (SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
    return f"{size} {digest.hexdigest()}"


def _digest(subject: Subject, parts: Sequence[str]) -> str:
    text = "\n".join([f"trial {TRIAL}", engine_version(), subject.kind, *subject.beside, *parts])
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

"""What comes from a server instead of a model: another architecture, a document, an error of this disk."""

from __future__ import annotations

import errno
from pathlib import Path

from ...errors import LeapModelDownloadError
from ..hub.http_client import Web
from .part_file import PartFile, discard_part
from .plan import PlannedFile

OPENING_BYTES = 8192
DOCUMENTS = (b"<", b"{", b"version https://git-lfs")


def opening_of(web: Web, file: PlannedFile) -> bytes:
    """The first bytes of a file, where the server gives them."""
    with web.get(file.remote.url, {"Range": f"bytes=0-{OPENING_BYTES - 1}"}) as answer:
        if answer.status not in (200, 206):
            return b""  # the transfer will say why
        opening = b""
        for piece in answer.response.iter_raw():
            opening += piece
            if len(opening) >= OPENING_BYTES:
                break
        return opening[:OPENING_BYTES]


def refuse_document(part: PartFile, file: PlannedFile) -> None:
    """Where no hash is known: do not take a login page or an error message for a model."""
    begin = part.read(0)[:64].lstrip() if part.block_count else b""
    if begin.startswith(DOCUMENTS) and file.name.lower().endswith(".gguf"):
        discard_part(part.target)
        raise LeapModelDownloadError(f"{file.remote.url} gives a document, not a GGUF file: {begin[:24]!r}")


def disk_error(error: OSError, directory: Path) -> LeapModelDownloadError:
    """The error to raise for one of the disk."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LeapModelDownloadError(
            f"the disk of {directory} is full", hint="make room; what has arrived is kept and the same command goes on"
        )
    reason = error.strerror or str(error)
    return LeapModelDownloadError(f"cannot write to {error.filename or directory}: {reason}")

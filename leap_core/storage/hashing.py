"""Hashes of files."""

from __future__ import annotations

import hashlib
from pathlib import Path


def hash_file(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1024 * 1024):
            digest.update(piece)
    return digest.hexdigest()

"""Repacked files, kept between processes.

They lie in a directory of the cache under the digest of what they were made from, so two quantizations of a vocoder
never meet, and each is held against its own digest before it is used: a damaged or half-written one is made anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from ..storage.atomic_files import replacing
from .repacking import write_depthformer, write_detokenizer
from .tensor_file import TensorFile
from .vocoder import Vocoder

LAYOUT = b"2"
"""The layout of repacked files; another number leaves files of other versions of leap alone."""
MOST_FILES = 12
"""Files kept, the most recently used; the others are removed when a new one is made."""
READ_BYTES = 1024**2


def repacked_files(vocoder: Vocoder, directory: Path) -> tuple[Path, Path]:
    """Paths of the depthformer and the detokenizer as llama.cpp takes them, made if need be.

    Raises OSError when ``directory`` cannot be written."""
    depthformer = _kept(
        directory, "depthformer", _content(vocoder.file, "depthformer."), lambda p, s: write_depthformer(vocoder, p, s)
    )
    layers = _content(vocoder.layers_file, "lfm.", "lin.", "blk.", "dense_2.", "token_embd_norm.")
    detokenizer = _kept(directory, "detokenizer", layers, lambda p, s: write_detokenizer(vocoder, p, s))
    return depthformer, detokenizer


def _kept(directory: Path, kind: str, source: str, write: Callable[[Path, str], None]) -> Path:
    path = directory / f"{kind}-{source}.gguf"
    digest_path = path.with_suffix(".blake2b")
    with suppress(OSError):
        if digest_path.read_text() == _digest(path):
            os.utime(path)
            return path
    directory.mkdir(parents=True, exist_ok=True)
    with replacing(path, mode=0o600, durable=False) as file:
        write(Path(file.name), source)
        digest = _digest(Path(file.name))
    with replacing(digest_path, mode=0o600, durable=False) as file:
        file.write(digest.encode())
    _remove_oldest(directory)
    return path


def _content(file: TensorFile, *prefixes: str) -> str:
    """A digest of the tensors whose names begin so: names, types, shapes and bytes."""
    digest = blake2b(LAYOUT, digest_size=16)
    for name in sorted(name for name in file.names() if name.startswith(prefixes)):
        digest.update(f"{name} {file.type(name)} {file.shape(name)}\0".encode())
        digest.update(file.rows(name).reshape(-1).data)
    return digest.hexdigest()


def _digest(path: Path) -> str:
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _remove_oldest(directory: Path) -> None:
    """Keep the cache small. A file that another process has mapped stays readable to it."""
    with suppress(OSError):
        files = sorted(directory.glob("*.gguf"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in files[MOST_FILES:]:
            with suppress(OSError):
                path.unlink()
                path.with_suffix(".blake2b").unlink()

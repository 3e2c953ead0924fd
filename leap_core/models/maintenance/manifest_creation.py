"""Write a manifest for a GGUF on this disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ...options import SamplingDefaults
from ..gguf.header import read_gguf_header
from ..manifests.manifest import Manifest, write_manifest
from ..manifests.manifest_checks import INFERENCE_TYPES
from ..references.resolving import resolve_local
from .importing import files_of


def create_manifest(
    model: Path,
    target: Path | None = None,
    *,
    sampling: SamplingDefaults | None = None,
    chat_template: str | None = None,
    threads: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> Manifest:
    """A manifest that names the model and the companions beside it, relative to ``target``'s directory (the model's
    when None), and is written there. What ``sampling`` leaves out comes from the catalogue.

    Raises LeapModelNotFoundError or LeapModelLoadingError for what is no model, OSError when it cannot be written.
    """
    local = resolve_local(str(model.absolute()), variables=variables)
    read_gguf_header(local.path)
    directory = local.path.parent if target is None else target.absolute().parent
    files = {role: _relative(path, directory) for role, path in files_of(local) if role != "part"}
    manifest = Manifest(
        files["model"],
        inference_type=INFERENCE_TYPES[local.kind],
        adapters=tuple((str(adapter.path), adapter.scale) for adapter in local.adapters),
        chat_template=chat_template or local.chat_template,
        sampling=(sampling or SamplingDefaults()).over(local.sampling),
        threads=threads or local.threads,
    ).with_files(files)
    if target is not None:
        write_manifest(manifest, target)
    return manifest


def _relative(path: Path, directory: Path) -> str:
    """As manifests write it: a bare name, ``../name`` for the parent directory, else the absolute path."""
    if path.parent == directory:
        return path.name
    if path.parent == directory.parent:
        return f"../{path.name}"
    return os.path.abspath(path)

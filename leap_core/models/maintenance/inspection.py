"""What is known of a model's files, of which some may be damaged: an error is a result here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...errors import LeapModelLoadingError, LeapModelNotFoundError
from ..gguf.architectures import check_architecture, check_decisions
from ..gguf.header import GGUFHeader, read_gguf_header
from ..gguf.projector_checks import ProjectorInfo, check_projector
from ..installed.model_store import InstalledModel, Store
from ..references.resolving import resolve_local


def header_or_error(path: Path) -> GGUFHeader | LeapModelLoadingError:
    """The header of a GGUF file, or why it cannot be read."""
    try:
        return read_gguf_header(path)
    except LeapModelLoadingError as error:
        return error


def projector_or_error(path: Path) -> ProjectorInfo | LeapModelLoadingError:
    """What a projector takes, or why it cannot be used."""
    try:
        return check_projector(read_gguf_header(path))
    except LeapModelLoadingError as error:
        return error


def architecture_error(header: GGUFHeader) -> LeapModelLoadingError | None:
    """Why this llama.cpp does not run models of the header's architecture; None where it does."""
    try:
        check_architecture(header.architecture, header.path.name)
        check_decisions(header.decisions, header.path.name)
    except LeapModelLoadingError as error:
        return error
    return None


def installed_model(
    reference: str, store: Store, *, variables: Mapping[str, str] | None = None, cwd: Path | None = None
) -> InstalledModel:
    """The model of the store that a name, or any other reference, leads to. Raises LeapModelNotFoundError."""
    model = store.find(reference)
    if model is None:
        try:
            path = resolve_local(reference, variables=variables, cwd=cwd).path
        except LeapModelNotFoundError:
            return store.named(reference)
        if path.parent.parent == store.root:
            model = store.at(path.parent)
    return model or store.named(reference)

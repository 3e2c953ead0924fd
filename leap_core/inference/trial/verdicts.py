"""Trying a file, unless a verdict about it is kept.

``place_key`` costs a few system calls and changes whenever the file may have changed; ``content_key`` reads the header
and samples of the tensors, and is the same for every copy of a file.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

from ...errors import LeapModelLoadingError
from ...system.directories import Directories, packages_directory
from ...system.files import digest_samples
from ..gguf.header import GGUFHeader, read_gguf_header
from ..llama.architectures import check_architecture, check_decisions
from ..llama.library import current_engine
from .trial_child import AUDIO_DECODER, AUDIO_TOKENIZER, REFUSED, Limits, Subject, TrialVerdict, Verdicts, run_child

TRIAL = 1
"""Counted up when a trial looks at more than before; verdicts of older ones are forgotten."""
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
        digest_samples(digest, file, size)
    return f"{size} {digest.hexdigest()}"


def _digest(subject: Subject, parts: Sequence[str]) -> str:
    text = "\n".join([f"trial {TRIAL}", current_engine().id, subject.kind, *subject.beside, *parts])
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


DIRECTORY = "trials"
SWITCH = "LEAP_TRY_MODELS"
"""The environment variable that turns trials off with 0: files are then loaded as they come."""


def require_sound(
    subject: Subject, *, own_template: bool = False, variables: Mapping[str, str] | None = None
) -> TrialVerdict | None:
    """Make sure that llama.cpp survives the file: by a kept verdict, else by a trial. None when trials are turned off.

    ``own_template``: the chat template is not the file's, so that one's problems do not matter. Raises
    LeapModelLoadingError, saying what happened, for a file that it does not survive, or cannot load.
    """
    verdict = verdict_on(subject, variables=variables)
    if verdict is None:
        return None
    if not verdict.is_sound:
        raise error_of(subject, verdict)
    if verdict.template is not None and verdict.facts.get("template_ends_process") and not own_template:
        raise LeapModelLoadingError(
            f"the chat template in {subject.path} cannot be used: {verdict.template}",
            hint="give another one with the option chat_template",
        )
    return verdict


def new_verdict_on(subject: Subject, *, variables: Mapping[str, str] | None = None) -> TrialVerdict:
    """The verdict of a new trial in any case; a header that is damaged is refused by one too."""
    try:
        verdict = verdict_on(subject, again=True, variables=variables)
    except LeapModelLoadingError as error:
        return TrialVerdict(REFUSED, "reading its header", error.message)
    assert verdict is not None, "only a kept verdict may be None"
    return verdict


def verdict_on(
    subject: Subject,
    *,
    again: bool = False,
    variables: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> TrialVerdict | None:
    """The verdict on a file, kept or new; ``again``: new in any case. None for what came with leap, and, after a look
    at the header, where trials are turned off.

    Raises LeapModelNotFoundError or LeapModelLoadingError for a header that is damaged.
    """
    variables = os.environ if variables is None else variables
    if not again and _is_own(subject.path):
        return None
    if not again and variables.get(SWITCH) == "0":
        _check_header(subject)
        return None
    verdicts = Verdicts(Directories.from_environment(variables).cache / DIRECTORY)
    try:
        place = place_key(subject)
        kept = None if again else verdicts.get(place)
        if kept is not None:
            return kept
        header = _check_header(subject)
        content = content_key(subject, header.data_start)
        kept = None if again else verdicts.get(content)
        verdict = kept or _try(subject, variables, stop)
    except OSError as error:
        read_gguf_header(subject.path)  # which says so where it is about this file
        where = f"{error.filename}: " if error.filename else ""
        raise LeapModelLoadingError(f"cannot try {subject.path}: {where}{error.strerror or error}") from None
    verdicts.put((place, content), verdict)
    return verdict


def _check_header(subject: Subject) -> GGUFHeader:
    header = read_gguf_header(subject.path)
    if subject.kind not in (AUDIO_DECODER, AUDIO_TOKENIZER):  # those name none: llama.cpp itself cannot load them
        check_architecture(header.architecture, str(subject.path))
        check_decisions(header.decisions, str(subject.path))
    return header


def _is_own(path: Path) -> bool:
    """Whether the file came with leap."""
    return Path(os.path.realpath(path)).is_relative_to(packages_directory() / "leap_core")


def _try(subject: Subject, variables: Mapping[str, str], stop: threading.Event | None) -> TrialVerdict:
    size = sum(path.stat().st_size for path in subject.files())
    return run_child(subject, Limits.of(size), variables, stop)


def problem_after_fetching(
    path: Path, *, variables: Mapping[str, str] | None = None, stop: threading.Event | None = None
) -> str | None:
    """Try a model that has just come here, so that its first use does not wait; the problem to report, or None."""
    subject = Subject(path)
    try:
        verdict = verdict_on(subject, variables=variables, stop=stop)
    except LeapModelLoadingError as error:
        return error.message
    if verdict is None or (verdict.is_sound and verdict.template is None):
        return None
    if verdict.is_sound:
        return f"the chat template in {path.name} cannot be used: {verdict.template}"
    return error_of(subject, verdict).message


def error_of(subject: Subject, verdict: TrialVerdict) -> LeapModelLoadingError:
    """The error for a file that is not sound."""
    if verdict.outcome == REFUSED:
        return LeapModelLoadingError(verdict.message)
    return LeapModelLoadingError(
        f"{subject.path} is not safe to load: while {verdict.stage}, {verdict.message}",
        hint="it is damaged, or made for another llama.cpp; `leap models check` tries it again",
    )

"""Where ``man`` looks for a user's own pages, and putting leap's there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from leap_core.errors import LeapError
from leap_core.storage.atomic_files import replace_text


def man_directory(variables: Mapping[str, str]) -> Path:
    """``man1`` of this user: man(1) finds it where ``~/.local/bin`` is on the path."""
    home = Path(variables.get("HOME") or variables.get("USERPROFILE") or Path.home())
    return Path(variables.get("XDG_DATA_HOME") or home / ".local" / "share") / "man" / "man1"


def is_searched(directory: Path, variables: Mapping[str, str]) -> bool:
    """Whether man finds pages there, as far as the variables say: through MANPATH, or beside a directory of PATH."""
    manual = directory.parent
    if variables.get("MANPATH"):
        return str(manual) in variables["MANPATH"].split(os.pathsep)
    places = [Path(place) for place in variables.get("PATH", "").split(os.pathsep) if place]
    return any(manual in (place.parent / "share" / "man", place.parent / "man") for place in places)


def install(pages: Mapping[str, str], directory: Path) -> None:
    """Write the pages, each in one step; pages of commands that leap no longer has go. Raises LeapError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            replace_text(directory / name, text)
        for page in directory.glob("leap-*.1"):
            if page.name not in pages and "by scripts/make_reference.py" in page.read_text("utf-8", "replace")[:200]:
                page.unlink()
    except OSError as error:
        raise LeapError(
            f"cannot write {error.filename or directory}: {error.strerror}",
            hint="leap man COMMAND prints a page, to be put where you like",
        ) from None

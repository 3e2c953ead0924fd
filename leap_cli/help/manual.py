"""The manual pages that ship with leap, and where man(1) looks for them. scripts/man_pages.py writes them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from leap_core.errors import LeapError
from leap_core.system.files import replace_text

from .topics import shipped_file


def shipped_pages() -> dict[str, str]:
    """The text of every page by its file's name, such as ``leap-generate.1``. Raises LeapError."""
    root = shipped_file("man", "leap.1")
    if root is None:
        raise LeapError("this installation came without manual pages", hint="leap COMMAND --help explains each command")
    return {path.name: path.read_text("utf-8") for path in root.parent.glob("leap*.1")}


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
            hint="leap help --man COMMAND prints a page, to be put where you like",
        ) from None

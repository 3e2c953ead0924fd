"""Files of the configuration in the user's editor: what is written is taken only when it can be used."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import click

from leap_core.errors import LeapError
from leap_core.storage.atomic_files import replace_text

from ..framework.environment import Environment


def edit_file(env: Environment, file: Path, check: Callable[[str, str], object], *, beginning: str = "") -> bool:
    """Open a copy of the file in ``$VISUAL``, else ``$EDITOR``, and put it in the file's place; whether it differs.

    ``check`` is given the text and the copy's name and raises UsageError or LeapError for what cannot be
    used; then nothing is changed and the copy is kept. ``beginning``: what the copy says where there is no file yet.
    Raises LeapError where the editor fails.
    """
    before = file.read_text("utf-8", "replace") if file.is_file() else beginning
    draft = file.with_name(f".{file.stem}-{os.getpid()}{file.suffix}")
    replace_text(draft, before)
    editor = env.variables.get("VISUAL") or env.variables.get("EDITOR") or ("notepad" if os.name == "nt" else "vi")
    try:
        code = subprocess.run([*shlex.split(editor), str(draft)], check=False).returncode
    except (OSError, ValueError) as error:
        draft.unlink()
        raise LeapError(f"cannot start the editor {editor!r}: {error}", hint="set EDITOR to one that is here") from None
    if code:
        draft.unlink()
        raise LeapError(f"the editor {editor!r} ended with code {code}; nothing was changed")
    text = draft.read_text("utf-8", "replace")
    try:
        check(text, str(draft))
    except click.UsageError as error:
        raise click.UsageError(f"{error.message} (nothing was changed; what you wrote is kept there)") from None
    except LeapError as error:
        error.hint = "nothing was changed; what you wrote is kept there"
        raise
    if text != before:
        replace_text(file, text)
    draft.unlink()
    return text != before

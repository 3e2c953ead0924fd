"""Writes ``completions/``: the scripts that make shells complete leap, for packagers.

python scripts/make_completions.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from leap_cli.completion.scripts import FILE_NAMES, SCRIPTS  # noqa: E402

DIRECTORY = ROOT / "completions"


def files() -> dict[str, str]:
    """What ``completions/`` holds: the text of each file by its name."""
    return {FILE_NAMES[shell]: script for shell, script in SCRIPTS.items()}


if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    for name, text in files().items():
        (DIRECTORY / name).write_text(text, "utf-8")

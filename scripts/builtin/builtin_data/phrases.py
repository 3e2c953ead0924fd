"""Lists of words and phrasings, kept as text: `phrases/NAME.txt`, one entry a line under `[[section]]` headings.

A line break inside an entry is written as `\\n`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("phrases")


@cache
def sections(file: str) -> dict[str, list[str]]:
    """Every section of a file, in order."""
    found: dict[str, list[str]] = {}
    entries: list[str] = []
    for line in (FOLDER / f"{file}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("[[") and line.endswith("]]"):
            entries = found.setdefault(line[2:-2], [])
        elif line:
            entries.append(line.replace("\\n", "\n"))
    return found


def phrases(file: str, section: str) -> list[str]:
    """The entries of one section."""
    return sections(file)[section]

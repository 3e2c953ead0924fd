"""The examples of a documentation page: they are read from the Markdown, run as one script, and compared.

``sh`` and ``python`` blocks run in the page's order, in one directory. A ``text`` block directly below one is what it
prints, stdout and stderr together. In it ``…`` or ``...`` is anything on its line; alone on a line it is any number of
lines. The width of gaps between columns does not matter. Python blocks without shell between them share their names.
A Python block that begins with a file name in a comment is that file. ``console`` blocks do not run, nor do blocks that
install with pip.
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OUTPUT = re.compile(r"\n+```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w-]+\.py)\n")
_END = "\n----- end of block\n"
_RUN_PYTHON = f"""
import sys
names = {{"__name__": "__main__"}}
for block in sys.argv[1:]:
    exec(compile(block, "<page>", "exec"), names)
    print({_END!r}, end="", flush=True)
"""


@dataclass(frozen=True)
class Block:
    """A fenced block, with the output that the page shows below it and where that is in the page's text."""

    language: str
    code: str
    line: int
    output: str | None
    place: tuple[int, int]

    @property
    def file(self) -> str | None:
        """The name of the file that this block is."""
        found = _FILE.match(self.code) if self.language == "python" else None
        return found[1] if found else None

    @property
    def runs(self) -> bool:
        return self.language in ("sh", "python") and self.file is None and "pip install" not in self.code


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    found = []
    for match in _FENCED.finditer(text):
        output = _OUTPUT.match(text, match.end())
        place = output.span(1) if output else (0, 0)
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(match[1], match[2], line, output[1] if output else None, place))
    return found


def script_of(blocks: list[Block]) -> str:
    """The bash script that runs these blocks; what each prints ends with a mark."""
    lines = ["set -eo pipefail", "exec 2>&1"]
    for language, group in groupby(blocks, lambda block: block.language):
        if language == "python":
            command = [sys.executable, "-W", "error::DeprecationWarning", "-c", _RUN_PYTHON]
            lines.append(shlex.join([*command, *(block.code for block in group)]))
        else:
            lines += [f"{block.code}printf '%s' {shlex.quote(_END)}" for block in group]
    return "\n".join(lines)


def outputs_of(printed: str) -> list[str]:
    """What each block of a script printed; the last is that of a block that failed, or empty."""
    return printed.split(_END)


def is_as_shown(shown: str, printed: str) -> bool:
    pattern = ""
    for line in _narrow(shown).splitlines(keepends=True):
        if line.strip() in ("…", "..."):
            pattern += r"(?:[^\n]*\n)*"
        else:
            pattern += "[^\n]*".join(map(re.escape, re.split(r"…|\.\.\.", line)))
    printed = printed if printed.endswith("\n") or not printed else f"{printed}\n"
    return re.fullmatch(pattern, _narrow(printed)) is not None


def _narrow(text: str) -> str:
    return re.sub(r"[^\S\n]+$", "", re.sub(r"(?<=\S) {2,}(?=\S)", "  ", text), flags=re.MULTILINE)


def with_outputs(page: Path, blocks: list[Block], outputs: list[str]) -> str:
    """The page's text in which outputs that differ are replaced."""
    text = page.read_text("utf-8")
    for block, output in reversed(list(zip(blocks, outputs, strict=False))):
        if block.output is not None and not is_as_shown(block.output, output):
            start, end = block.place
            text = text[:start] + (output if output.endswith("\n") else f"{output}\n") + text[end:]
    return text

"""Records docs/session.svg: commands typed into a terminal of 80 columns, and what leap really answers to them.

python scripts/record_session.py

The built-in model answers. Keys are pressed at a steady pace, and a pause longer than PATIENCE is cut to it, so that a
busy machine does not show; everything else is as it came. Needs jq and a system with pseudo-terminals.
"""

from __future__ import annotations

import codecs
import fcntl
import html
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "session.svg"

COMMANDS = (
    'leap "What is the capital of France?"',
    "leap generate --json-schema 'name, age int' 'Ada Lovelace was 36 years old.'",
    "head -n 2 orders.jsonl",
    "leap batch orders.jsonl -o sold.jsonl --format plain \\\n    --json-schema 'item, quantity int, price float'",
    "jq -c '.text | fromjson' sold.jsonl",
    'leap "My name is Ada." --session ada',
    'leap -c "What is my name?"',
)
ORDERS = ("3 red lamps for $20", "12 green chairs for $96", "2 blue books for $18")

COLUMNS = 80
PATIENCE = 0.8
"""Seconds that nothing may happen in the picture."""
KEYS, KEY_SECONDS = 3, 0.1
"""Characters that are typed at once, and the time that takes."""

COLOURS = {
    "30": "#5c6470",
    "31": "#e06c75",
    "32": "#98c379",
    "33": "#e5c07b",
    "34": "#7aa2f7",
    "35": "#c678dd",
    "36": "#88c0d0",
    "37": "#d8dee9",
    "90": "#8a94a6",
}
"""What the terminal's colours look like, by their codes."""

Cell = tuple[str, str]
"""A character and the CSS classes of its style."""
Row = tuple[Cell, ...]
Frame = tuple[float, list[Row]]


class Screen:
    """What a terminal shows after what was written to it. It grows downwards instead of scrolling."""

    _PIECE = re.compile(r"\x1b\[([\d;?]*)([A-Za-z])|([\r\n])|([^\x1b\r\n])", re.DOTALL)
    _ON = {"1": "bold", "2": "dim", "3": "italic"}
    _OFF = {"22": {"bold", "dim"}, "23": {"italic"}}

    def __init__(self) -> None:
        self._rows: list[list[Cell]] = [[]]
        self._column = 0
        self._style: set[str] = set()

    def write(self, text: str) -> None:
        """Take text with the few escape codes that leap writes; ValueError for another."""
        end = 0
        for piece in self._PIECE.finditer(text):
            if piece.start() != end:
                break
            end = piece.end()
            parameters, final, control, character = piece.groups()
            if character:
                self._put(character)
            elif control == "\n":
                self._rows.append([])
            elif control == "\r":
                self._column = 0
            elif final == "m":
                self._restyle(parameters)
            elif (final, parameters) == ("K", ""):
                del self._rows[-1][self._column :]
            else:
                raise ValueError(f"an escape code that this screen does not know: {piece[0]!r}")
        if end != len(text):
            raise ValueError(f"text that this screen does not know: {text[end : end + 20]!r}")

    def rows(self) -> list[Row]:
        return [tuple(row) for row in self._rows]

    def _put(self, character: str) -> None:
        if self._column == COLUMNS:
            self._rows.append([])
            self._column = 0
        row = self._rows[-1]
        row += [(" ", "")] * (self._column - len(row))
        row[self._column : self._column + 1] = [(character, " ".join(sorted(self._style)))]
        self._column += 1

    def _restyle(self, parameters: str) -> None:
        for code in parameters.split(";"):
            if code in ("", "0"):
                self._style.clear()
            elif code in self._ON:
                self._style.add(self._ON[code])
            elif code in self._OFF:
                self._style -= self._OFF[code]
            elif code == "39" or code in COLOURS:
                self._style -= {f"c{colour}" for colour in COLOURS}
                self._style |= {f"c{code}"} if code in COLOURS else set()
            else:
                raise ValueError(f"a style that this screen does not know: {code!r}")


def record(commands: tuple[str, ...], directory: Path, variables: dict[str, str]) -> list[Frame]:
    """Type the commands one after the other and run them in this directory: (seconds since the beginning, picture)."""
    screen, now = Screen(), 0.0
    frames: list[Frame] = []

    def show(text: str, pause: float) -> None:
        nonlocal now
        now += pause
        screen.write(text)
        frames.append((now, screen.rows()))

    for command in commands:
        show("\x1b[1m$ \x1b[0m", 0.0)
        keys = command.replace("\n", "\r\n")
        for start in range(0, len(keys), KEYS):
            show(keys[start : start + KEYS], KEY_SECONDS)
        show("\r\n", PATIENCE / 2)
        for text, pause in _run(command, directory, variables):
            show(text, min(pause, PATIENCE))
        now += PATIENCE
    return frames


def _run(command: str, directory: Path, variables: dict[str, str]) -> Iterator[tuple[str, float]]:
    """What a command writes to its terminal, and the seconds before each piece. SystemExit when it fails."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    process = subprocess.Popen(
        ["bash", "-eo", "pipefail", "-c", command],
        stdin=its,
        stdout=its,
        stderr=its,
        cwd=directory,
        env=variables,
        start_new_session=True,
    )
    os.close(its)
    decoder = codecs.getincrementaldecoder("utf-8")()
    last = time.monotonic()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        while True:
            try:
                data = terminal.read(65536)
            except OSError:  # Linux's way to say that nobody has the terminal open any more
                break
            if not data:
                break
            now = time.monotonic()
            yield decoder.decode(data), now - last
            last = now
    if process.wait():
        raise SystemExit(f"{command}: exit code {process.returncode}")


WIDTH, HEIGHT, MARGIN = 8.4, 19, 16
"""Of a character and a line, and around all of them, in pixels."""

STYLE = """\
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; fill: #d8dee9;
  white-space: pre; }
.bold { font-weight: bold } .dim { fill: #8a94a6 } .italic { font-style: italic }
.past { visibility: hidden }
@keyframes before { from, to { visibility: hidden } }
@keyframes while { from, to { visibility: visible } }
@media (prefers-reduced-motion: reduce) { text { animation: none !important } }
"""


def svg(frames: list[Frame]) -> str:
    """The recording as a picture that plays once. Its end is what shows where nothing is animated."""
    lines = max(number for number, row in enumerate(frames[-1][1], start=1) if row)
    width, height = COLUMNS * WIDTH + 2 * MARGIN, lines * HEIGHT + 2 * MARGIN
    texts = [_text(*life) for life in _lives(frames)]
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 {width:.0f} {height}"'
            f' width="{width:.0f}" role="img">',
            "<title>leap in a terminal</title>",
            f"<style>\n{STYLE}{' '.join(f'.c{code} {{ fill: {fill} }}' for code, fill in COLOURS.items())}\n</style>",
            f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#20242c"/>',
            *texts,
            "</svg>",
            "",
        )
    )


def _lives(frames: list[Frame]) -> Iterator[tuple[int, Row, float, float | None]]:
    """Each state of each row that is not blank: its number, its cells, and when it came and went (None: it stayed)."""
    shown: dict[int, tuple[Row, float]] = {}
    for now, rows in frames:
        for number, row in enumerate(rows):
            before, since = shown.get(number, ((), now))
            if row != before:
                if before and since < now:
                    yield number, before, since, now
                shown[number] = row, now
    for number, (row, since) in shown.items():
        if row:
            yield number, row, since, None


def _text(number: int, row: Row, came: float, went: float | None) -> str:
    timing = f"before {came:.2f}s" if went is None else f"while {went - came:.2f}s {came:.2f}s"
    past = "" if went is None else ' class="past"'
    y = MARGIN + number * HEIGHT + 14
    return f'<text{past} y="{y}" style="animation:{timing}">{"".join(_spans(row))}</text>'


def _spans(row: Row) -> Iterator[str]:
    start = 0
    while start < len(row):
        style = row[start][1]
        end = next((n for n in range(start, len(row)) if row[n][1] != style), len(row))
        text = html.escape("".join(character for character, _ in row[start:end]), quote=False)
        styled = f' class="{style}"' if style else ""
        yield f'<tspan x="{MARGIN + start * WIDTH:.1f}"{styled}>{text}</tspan>'
        start = end


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        program = directory / "bin" / "leap"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m leap_cli "$@"\n')
        program.chmod(0o755)
        work = directory / "work"
        work.mkdir()
        lines = [f'{{"prompt": "Extract the order: {order}"}}\n' for order in ORDERS]
        (work / "orders.jsonl").write_text("".join(lines))
        variables = {
            "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "LEAP_HOME": str(directory / "home"),
            "LEAP_MODEL": "builtin",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
        }
        PICTURE.write_text(svg(record(COMMANDS, work, variables)), "utf-8")


if __name__ == "__main__":
    main()

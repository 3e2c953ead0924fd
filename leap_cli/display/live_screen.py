"""A screen of lines that is drawn again and again in place, on a terminal of its own, until a key is pressed."""

from __future__ import annotations

import os
import select
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any

from ..framework.environment import Environment
from ..framework.wrapping import fitted_cell

OTHER_SCREEN, FIRST_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class LiveScreen:
    """The terminal's second screen while the block lasts; what stood on the first is there again afterwards. Keys are
    not echoed, Ctrl-C raises KeyboardInterrupt as ever."""

    def __init__(self, env: Environment) -> None:
        self._out = env.stdout
        self._modes: list[Any] | None = None

    def __enter__(self) -> LiveScreen:
        if sys.platform != "win32":
            import termios
            import tty

            self._modes = termios.tcgetattr(0)
            tty.setcbreak(0)
        self._write(OTHER_SCREEN)
        return self

    def __exit__(self, *_: object) -> None:
        self._write(FIRST_SCREEN)
        if sys.platform != "win32" and self._modes is not None:
            import termios

            termios.tcsetattr(0, termios.TCSADRAIN, self._modes)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines now: the window may have changed."""
        return shutil.get_terminal_size()

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines, each cut to the width; those beyond the height are left out."""
        width, height = self.size
        rows = [fitted_cell(line, width - 1).rstrip() + CLEAR_LINE for line in lines[:height]]
        self._write(HOME + "\r\n".join(rows) + CLEAR_BELOW)

    def key(self, seconds: float) -> str | None:
        """The key that was pressed within so many seconds, or None."""
        if sys.platform == "win32":
            time.sleep(seconds)
            return None
        if not select.select([0], [], [], seconds)[0]:
            return None
        pressed = os.read(0, 64).decode("utf-8", "replace")
        return pressed[:1] or "q"  # the terminal is gone

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

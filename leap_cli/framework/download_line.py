"""A download as it runs: a bar on a terminal, one line for what deserves it, JSON lines where they were asked for."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from .options import in_bytes
from .output import Format, Output

if TYPE_CHECKING:
    from leap_core.models.download.downloading import Event, Progress

BAR_CELLS = 16
SHORTEST_NAME = 12


class DownloadPrinter:
    """Shows events: a bar on a terminal, one line for what deserves it, JSON lines where they were asked for.
    ``model``: the one of several that these events are of."""

    def __init__(self, output: Output, model: str | None = None) -> None:
        self._output = output
        self._named = {} if model is None else {"reference": model}
        self.usable = True
        """Whether nothing has come to light that keeps the model from running."""

    def __call__(self, event: Event) -> None:
        from leap_core.models.download.downloading import Notice, Progress, Unusable

        self.usable = self.usable and not isinstance(event, Unusable)
        if self._output.format is Format.JSONL:
            self._output.event({**self._named, **event.to_json()})
        elif isinstance(event, Progress):
            self._output.progress(bar(event, shutil.get_terminal_size().columns - 1))
        elif isinstance(event, Notice):
            self._output.note(event.message)


def bar(progress: Progress, width: int) -> str:
    """``LFM2-350M-Q4_0.gguf [######......] 45 % 98 MB of 219 MB 12.3 MB/s 0:10``, in at most ``width`` columns."""
    part = progress.bytes / progress.total if progress.total else 1.0
    done = "#" * int(part * BAR_CELLS)
    amounts = f"{int(part * 100)} % {in_bytes(progress.bytes)} of {in_bytes(progress.total)}"
    amounts += f" {in_bytes(int(progress.speed))}/s{_left(progress.eta)}"
    room = width - len(amounts) - 1
    cells = f"[{done:.<{BAR_CELLS}}] " if room > BAR_CELLS + 3 + SHORTEST_NAME else ""
    name = progress.file
    if len(name) > room - len(cells):
        kept = max(room - len(cells) - 1, 0)
        name = f"{name[: kept // 2]}…{name[len(name) - (kept - kept // 2) :]}" if kept else ""
    return f"{name} {cells}{amounts}"[:width]


def _left(eta: float | None) -> str:
    if eta is None or eta >= 360_000:
        return ""
    minutes, seconds = divmod(int(eta), 60)
    hours, minutes = divmod(minutes, 60)
    return f" {hours}:{minutes:02d}:{seconds:02d}" if hours else f" {minutes}:{seconds:02d}"

"""Opening a page whose address holds a key."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .environment import Environment
from .output import Output


@contextmanager
def page_opener(env: Environment) -> Iterator[Callable[[str], None]]:
    """Opens addresses in the default web browser, by way of a private file that is there as long as the context: what a
    program is started with can be read by others."""

    def open_page(address: str) -> None:
        import webbrowser

        private = using.enter_context(tempfile.TemporaryDirectory(dir=env.directories.run, prefix="page-"))
        way = Path(private) / "open.html"
        way.write_text(f'<meta charset="utf-8"><meta http-equiv="refresh" content="0;url={address}">\n')
        if not webbrowser.open(way.as_uri()):
            Output(env).warning("there is no web browser that can be opened from here")

    with ExitStack() as using:
        yield open_page

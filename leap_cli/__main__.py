"""The console script, and ``python -m leap_cli``."""

from __future__ import annotations

import gc
import signal


def run() -> None:
    """The ``leap`` command. Ctrl-C while its modules are read ends it and says nothing."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.set_threshold(20_000)  # modules make much and leave nothing to collect: a fifteenth of what a warm prompt takes
    from .main import run

    run()


if __name__ == "__main__":
    run()

"""Ctrl-C: outside an answer it ends the command, during one it stops the answer, and pressed again it ends the process.

A wrapper often passes on a SIGINT that the terminal has already sent to everybody, so a second one that comes right
after the first is the same key press.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

SAME_PRESS_SECONDS = 0.5


class _Handler:
    """Calls ``act`` for each press, with the number of presses before it."""

    def __init__(self, act: Callable[[int], object]) -> None:
        self._act = act
        self._presses = 0
        self._last = float("-inf")

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last >= SAME_PRESS_SECONDS:
            self._last = now
            self._presses += 1
            self._act(self._presses - 1)


def raise_on_interrupt() -> None:
    """From now on each press raises KeyboardInterrupt once. Where SIGINT is ignored (a background job) it stays so."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):
        signal.signal(signal.SIGINT, _Handler(_raise))


def die_on_interrupt() -> None:
    """From now on Ctrl-C has its default effect, which says nothing."""
    if callable(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def _handling(act: Callable[[int], object]) -> Iterator[None]:
    """Within the block presses go to ``act``. Nothing changes where SIGINT is ignored, or in a thread that cannot have
    handlers."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _Handler(act))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def raising_on_interrupt() -> AbstractContextManager[None]:
    """Within the block a press raises KeyboardInterrupt, also while an answer is made."""
    return _handling(_raise)


@contextmanager
def leaving_on_termination() -> Iterator[None]:
    """Within the block SIGTERM, and SIGHUP where the terminal is gone, raise SystemExit, so that terminal and files are
    left in order; a second one ends the process. Where they are ignored (nohup) they stay so."""

    def leave(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise SystemExit(128 + number)

    numbers = [signal.SIGTERM]
    if sys.platform != "win32":
        numbers.append(signal.SIGHUP)
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    taken = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def stopping_on_interrupt(stop: Callable[[], object]) -> AbstractContextManager[None]:
    """Within the block the first press calls ``stop``, and the next one ends the process."""

    def act(presses_before: int) -> None:
        if presses_before:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        # From another thread: this one may have been interrupted while it holds the lock that ``stop`` takes.
        threading.Thread(target=stop, name="leap-interrupt", daemon=True).start()

    return _handling(act)


@contextmanager
def cancelling_on_interrupt() -> Iterator[threading.Event]:
    """Gives the event that the first press within the block sets; KeyboardInterrupt then takes the place of whatever
    the work says that the event ended."""
    cancelled = threading.Event()
    try:
        with stopping_on_interrupt(cancelled.set):
            yield cancelled
    except Exception:
        if cancelled.is_set():
            raise KeyboardInterrupt from None
        raise
    if cancelled.is_set():
        raise KeyboardInterrupt


def _raise(_presses_before: int) -> None:
    raise KeyboardInterrupt

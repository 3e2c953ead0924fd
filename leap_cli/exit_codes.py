"""Every exit code of ``leap``, so that a script knows why a command did not do what it was asked."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum


class ExitCode(IntEnum):
    """What the shell sees in ``$?``. A program that closes our output early ends us quietly with DONE."""

    DONE = 0
    """The command did what it was asked."""
    UNEXPECTED = 1
    """An error without a code of its own: a failed write, a failed generation, or a bug (its traceback is kept)."""
    USAGE = 2
    """An option, an argument, the configuration or input data is wrong, or nothing answers to a name: a model, session,
    template, tool, job or file; nothing was done."""
    MODEL = 3
    """The model is known and not on this machine, cannot be loaded, cannot take the picture or the sound that it was
    given, or does not speak."""
    DOWNLOAD = 4
    """A download or its verification failed; what arrived is kept and resumed."""
    CONTEXT = 5
    """The prompt is longer than the context; the message has both token counts."""
    SCHEMA = 6
    """A schema is invalid, not supported or not satisfied by the answer."""
    TOOL = 7
    """A tool was denied, or failed."""
    JOB = 8
    """A job failed, a batch finished with failed lines, or an evaluation has a column that is not good enough."""
    TIMEOUT = 9
    """Waiting took longer than the given time."""
    UNAVAILABLE = 10
    """The worker or the model host cannot be reached, or another batch writes to the same output."""
    GUARD = 11
    """A guard stopped a message or an answer (leap chat --guard); nothing of it was shown."""
    INTERRUPTED = 130
    """Ctrl-C. What had been answered until then was printed."""


def exit_code_meanings() -> Iterator[tuple[int, str]]:
    """Every exit code and what is below it in the source."""
    import inspect
    import re

    source = inspect.getsource(ExitCode)
    for each in ExitCode:
        words = re.search(rf'{each.name} = {each.value}\n +"""(.*?)"""', source, re.DOTALL)
        assert words is not None, each
        yield each.value, " ".join(words[1].split())

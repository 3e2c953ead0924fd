"""Which of several requests to a model goes first.

A priority is an integer, and higher values go first; ``protocols`` turn that of a request over HTTP around, whose lower
values go first, as in vLLM. Requests have one of three levels: ``interactive`` for
a person or a program that waits for the answer, ``background`` for what a server does after its reply, ``batch`` for
jobs and batches.
"""

from __future__ import annotations

INTERACTIVE, BACKGROUND, BATCH = 0, -10, -20
"""The priorities of the levels. Values between them order requests within a level."""
LEVEL = INTERACTIVE - BACKGROUND
"""From one level to the next."""
LEVELS = ("interactive", "background", "batch")
VARIABLE_OF_JOBS = "LEAP_JOB_PRIORITY"
"""Gives the command of a job its priority."""
LAST, FIRST = -100, 100
"""Values beyond these count as these."""


def level_of(priority: int) -> str:
    """The level of a priority, one of LEVELS."""
    return LEVELS[min(2, max(0, -priority // LEVEL))]


def of_job(priority: int) -> int:
    """The priority of the requests of a job. None goes before a person who waits."""
    return min(BACKGROUND, BATCH + priority)

"""How much time and memory a trial may take."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_CPU_SECONDS, CPU_SECONDS_PER_GB = 20, 60
LEAST_SECONDS, SLOWEST_DISK = 120, 5_000_000
"""A file is read at this many bytes a second at least."""
LEAST_MEMORY = 6 * 1024**3
MEMORY_PER_BYTE = 3
"""The file mapped, its matrices rearranged for this processor, and room."""


@dataclass(frozen=True)
class Limits:
    """``cpu_seconds``: processor time of all threads. ``seconds``: on the clock, for what waits without computing.
    ``memory_bytes``: of addresses, mapped files included."""

    cpu_seconds: int
    seconds: float
    memory_bytes: int

    @staticmethod
    def of(size: int) -> Limits:
        """For files of ``size`` bytes together. A sound file takes a tenth of it on a slow machine."""
        return Limits(
            cpu_seconds=LEAST_CPU_SECONDS + size * CPU_SECONDS_PER_GB // 10**9,
            seconds=LEAST_SECONDS + size / SLOWEST_DISK,
            memory_bytes=LEAST_MEMORY + MEMORY_PER_BYTE * size,
        )

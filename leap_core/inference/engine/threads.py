"""How many threads compute: the physical cores that this process may use, fewer while others need them.

llama.cpp's threads wait for each other by spinning at every operation. When another process takes one of two cores,
two threads are slower than one (46 against 98 tokens/s), so the number is adapted while running. Threads that spin use
their cores all the time: a step in which they got less computing time than that is one in which others had a core.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from statistics import median

SAMPLE = 3
"""Steps that are compared with as many of a trial; as many crowded ones in a row begin one."""
CROWDED = 0.25
"""Cores' worth of computing that a step's threads did not get, from which on others are taken to want a core."""
FASTER = 0.93
"""A trial wins below this fraction of the present time."""
SOON, LATEST = 16, 768
"""Steps until more threads are tried again after a trial that won, and at most; each that loses makes it four times as
many."""


def usable_cores() -> int:
    """Physical cores within this process's affinity and cgroup quota, at least 1."""
    if sys.platform == "darwin" or sys.platform == "win32":
        return physical_cores()
    cores = {_siblings(cpu) for cpu in os.sched_getaffinity(0)}
    quota = _cgroup_quota()
    return max(1, min(len(cores), int(quota) if quota is not None else len(cores)))


def _siblings(cpu: int) -> str:
    """Names the physical core of a logical one."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


def _cgroup_quota() -> float | None:
    """CPUs that cgroup version 2 or 1 grants, or None."""
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    try:
        base = Path("/sys/fs/cgroup/cpu")
        granted = int((base / "cpu.cfs_quota_us").read_text())
        return None if granted < 0 else granted / int((base / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None


def free_cores(cores: int) -> int:
    """How many of ``cores`` other processes leave free at this moment; at least 1, and all of them where that is not
    known. The system counts what runs on the whole machine, so our own threads (a reader of the answer that was just
    woken, llama.cpp's that still spin) are taken off."""
    if cores == 1:
        return 1
    try:
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
        if (os.cpu_count() or cores) - (running - 1) >= cores:  # one is this thread
            return cores
        own = sum(_is_running(task) for task in Path("/proc/self/task").iterdir())
    except (OSError, ValueError, IndexError):
        return cores
    return max(1, min(cores, (os.cpu_count() or cores) - max(0, running - own)))


def _is_running(task: Path) -> bool:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] == "R"
    except OSError:  # the thread has ended
        return False


class ThreadGovernor:
    """Chooses the threads of the next step from how the last ones went.

    While the threads get their cores nothing is tried. Crowded steps start a trial, a few steps with fewer threads;
    with fewer threads than there are cores, free cores start one with more. Its number is kept when its steps were
    faster.
    """

    def __init__(self, most: int, free: Callable[[int], int] = free_cores) -> None:
        """``most`` threads at most. ``free`` gives how many of so many cores others leave free."""
        self._most = most
        self._free = free
        self._threads = free(most)
        self._recent: deque[tuple[int, float]] = deque(maxlen=SAMPLE)
        self._crowded = self._calm = 0
        self._steps = 0
        self._until_fewer = self._until_more = SAMPLE + 1  # soon: the machine may be busy just as we begin
        self._trial: int | None = None
        self._trial_steps: list[tuple[int, float]] = []

    @property
    def threads(self) -> int:
        """Threads for the next step."""
        return self._threads if self._trial is None else self._trial

    def threads_for_long_step(self) -> int:
        """Threads for a chunk of a prompt: it takes long enough to look anew at what is free."""
        return max(self.threads, self._free(self._most))

    def observe(self, size: int, seconds: float, computing: float) -> None:
        """Take note of a step of ``size`` tokens, or with a number below 0 of frames: how long it took, and the
        processor time that the process got."""
        if self._most == 1:
            return
        if self._trial is not None:
            self._trial_steps.append((size, seconds))
            if len(self._trial_steps) > SAMPLE or self._is_hopeless(size, seconds):
                self._conclude()
            return
        self._recent.append((size, seconds))
        self._steps += 1
        if computing < seconds * (self._threads - CROWDED):
            self._crowded, self._calm = self._crowded + 1, 0
        else:
            self._crowded, self._calm = 0, self._calm + 1
        if self._calm == SOON:
            self._until_fewer = SAMPLE + 1  # whatever crowds the machine next is something new
        stride = max(1, self._threads // 4)
        if self._threads > 1 and self._crowded >= SAMPLE and self._steps >= self._until_fewer:
            self._begin_trial(max(1, self._threads - stride))
        elif self._threads < self._most and self._steps >= self._until_more:
            # A thread too many would make its steps not a little slower but a hundred times.
            if self._free(self._most) > self._threads:
                self._begin_trial(min(self._most, self._threads + stride))
            else:
                self._steps = self._until_more - SOON  # looking costs a third of a millisecond

    def _begin_trial(self, threads: int) -> None:
        self._trial, self._trial_steps = threads, []
        self._steps = self._crowded = self._calm = 0

    def _is_hopeless(self, size: int, seconds: float) -> bool:
        """Whether a trial need not continue. Its first step says nothing: it also paid for waking or parking
        threads."""
        before = [s for n, s in self._recent if n == size]
        return len(self._trial_steps) > 1 and bool(before) and seconds > median(before) / FASTER

    def _conclude(self) -> None:
        sizes = {size for size, _ in self._recent} & {size for size, _ in self._trial_steps[1:]}
        before = [seconds for size, seconds in self._recent if size in sizes]
        during = [seconds for size, seconds in self._trial_steps[1:] if size in sizes]
        fewer = self._trial is not None and self._trial < self._threads
        if before and during and median(during) < median(before) * FASTER and self._trial is not None:
            self._threads = self._trial
            self._until_fewer, self._until_more = SAMPLE + 1, SOON
        elif fewer:
            self._until_fewer = min(LATEST, self._until_fewer * 4)
        else:
            self._until_more = min(LATEST, self._until_more * 4)
        self._trial = None
        self._recent.clear()


ENTRY = struct.Struct("@Nixxxx16x")
"""SYSTEM_LOGICAL_PROCESSOR_INFORMATION: a mask of processors, the relationship, 16 bytes of details."""
IS_CORE = 0


@lru_cache(maxsize=1)
def physical_cores() -> int:
    """At least 1. Where the system does not say, all its logical processors."""
    if sys.platform == "win32":
        found = cores_listed(_logical_processor_information())
    else:  # waiting for efficiency cores would slow the others down; those with Intel's processors have one kind
        found = _sysctl("hw.perflevel0.physicalcpu") or _sysctl("hw.physicalcpu")
    return found or os.cpu_count() or 1


def _sysctl(name: str) -> int:
    """A number of macOS, 0 where it has none of this name."""
    try:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False, timeout=5)
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


def cores_listed(table: bytes) -> int:
    """The cores in what GetLogicalProcessorInformation fills in."""
    whole = len(table) - len(table) % ENTRY.size
    return sum(relationship == IS_CORE for _, relationship in ENTRY.iter_unpack(table[:whole]))


def _logical_processor_information() -> bytes:
    """Empty where Windows does not say."""
    if sys.platform != "win32":
        return b""
    import ctypes

    get = ctypes.WinDLL("kernel32").GetLogicalProcessorInformation
    length = ctypes.c_ulong(0)
    get(None, ctypes.byref(length))  # says how long the table is
    table = ctypes.create_string_buffer(length.value)
    return table.raw[: length.value] if get(table, ctypes.byref(length)) else b""

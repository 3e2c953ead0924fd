"""How many threads to compute with: the physical cores this process may use, and fewer while others are using them.

llama.cpp's threads wait for each other by spinning at every operation. When another process takes one of two cores,
two threads are slower than one (facts: 46 against 98 tokens/s), so the number is adapted while running.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import median

SAMPLE = 3
"""Steps that are compared with as many of a trial."""
FIRST_PERIOD, LONGEST_PERIOD = 48, 768
SLOWER, FASTER = 1.35, 0.93
"""A step is suspicious at this multiple of the usual time; a trial wins below this fraction of the present time."""


def usable_cores() -> int:
    """Physical cores within this process's affinity and cgroup quota, at least 1."""
    try:
        allowed = os.sched_getaffinity(0)
    except AttributeError:  # macOS, Windows
        return max(1, (os.cpu_count() or 2) // 2 if os.name == "nt" else os.cpu_count() or 1)
    cores = {_siblings(cpu) for cpu in allowed}
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
    try:
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
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
    """Watches how long steps take and chooses the threads of the next one.

    A step that takes much longer than usual, or now and then the mere passing of steps, starts a trial: a few steps
    with fewer or more threads. The trial's number is kept when its steps were faster.
    """

    def __init__(self, most: int, free: Callable[[int], int] = free_cores) -> None:
        """``most`` threads at most. ``free`` tells how many of so many cores others leave free."""
        self._most = most
        self._free = free
        self._threads = free(most)
        self._usual: dict[int, float] = {}
        self._recent: deque[tuple[int, float]] = deque(maxlen=SAMPLE)
        self._slow_steps = 0
        self._steps = 0
        self._period = SAMPLE + 1  # the first trial comes early: the machine may have been busy from the beginning
        self._down = True
        """Whether the next trial is with fewer threads: on after a success, the other way after a failure."""
        self._trial: int | None = None
        self._trial_steps: list[tuple[int, float]] = []

    @property
    def threads(self) -> int:
        """Threads for the next step."""
        return self._threads if self._trial is None else self._trial

    def threads_for_long_step(self) -> int:
        """Threads for a chunk of a prompt: it takes long enough to look anew at what is free."""
        return max(self.threads, self._free(self._most))

    def observe(self, size: int, seconds: float) -> None:
        """Take note of a step of ``size`` tokens."""
        if self._most == 1:
            return
        if self._trial is not None:
            self._trial_steps.append((size, seconds))
            if len(self._trial_steps) > SAMPLE or self._is_hopeless(size, seconds):
                self._conclude()
            return
        usual = self._usual.get(size)
        slow = usual is not None and seconds > usual * SLOWER
        self._slow_steps = self._slow_steps + 1 if slow else 0
        if usual is None:
            self._usual[size] = seconds
        else:
            self._usual[size] += (seconds - usual) * (0.02 if slow else 0.2)
        self._recent.append((size, seconds))
        self._steps += 1
        if self._slow_steps >= SAMPLE or self._steps >= self._period:
            self._down = self._down or self._slow_steps >= SAMPLE
            self._begin_trial()

    def _begin_trial(self) -> None:
        stride = max(1, self._threads // 4)
        fewer, more = max(1, self._threads - stride), min(self._most, self._threads + stride)
        if (fewer if self._down else more) == self._threads:
            self._down = not self._down
        self._steps = self._slow_steps = 0
        if not self._down and self._free(self._most) <= self._threads:
            return  # a thread too many would make its steps not a little slower but a hundred times
        self._trial, self._trial_steps = fewer if self._down else more, []

    def _is_hopeless(self, size: int, seconds: float) -> bool:
        """Whether a trial need not go on. Its first step says nothing: it also paid for waking or parking threads."""
        before = [s for n, s in self._recent if n == size]
        return len(self._trial_steps) > 1 and bool(before) and seconds > median(before) / FASTER

    def _conclude(self) -> None:
        sizes = {size for size, _ in self._recent} & {size for size, _ in self._trial_steps[1:]}
        before = [seconds for size, seconds in self._recent if size in sizes]
        during = [seconds for size, seconds in self._trial_steps[1:] if size in sizes]
        if before and during and median(during) < median(before) * FASTER and self._trial is not None:
            self._threads = self._trial
            self._usual.clear()
            self._period = FIRST_PERIOD
        else:
            self._down = not self._down
            self._period = min(LONGEST_PERIOD, self._period * 4)
            for size, seconds in self._recent:  # what is slow with any number of threads is usual
                self._usual[size] = max(self._usual.get(size, 0.0), seconds)
        self._trial = None
        self._recent.clear()

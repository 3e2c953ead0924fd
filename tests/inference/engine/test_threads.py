"""The governor of threads, on a simulated machine; and the cores that may be used."""

from __future__ import annotations

import os

import pytest

from leap_core.inference.engine.threads import ThreadGovernor, free_cores, usable_cores


class Machine:
    """Seconds that a step takes with so many threads; ``busy`` cores are taken by others."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.busy = 0

    def free(self, cores: int) -> int:
        return max(1, cores - self.busy)

    def step(self, threads: int) -> float:
        over = max(0, threads - (self.cores - self.busy))
        return (0.004 + 0.012 / threads) * (1 + 2.0 * over)  # spinning threads that wait for a core cost dearly

    def computing(self, threads: int) -> float:
        """Cores' worth of processor time that so many threads get: the one that shares a core gets half of it."""
        over = max(0, threads - (self.cores - self.busy))
        return threads - 0.5 * over


def all_free(cores: int) -> int:
    """A system that does not tell."""
    return cores


def run(governor: ThreadGovernor, machine: Machine, steps: int) -> float:
    """Mean seconds of a step."""
    total = 0.0
    for _ in range(steps):
        threads = governor.threads
        seconds = machine.step(threads)
        governor.observe(1, seconds, seconds * machine.computing(threads))
        total += seconds
    return total / steps


def test_a_quiet_machine_keeps_all_threads_and_has_no_trials() -> None:
    machine = Machine(2)
    governor = ThreadGovernor(2, all_free)
    assert run(governor, machine, 2000) == pytest.approx(machine.step(2))
    assert governor.threads == 2


def test_a_growing_context_is_not_taken_for_a_busy_machine() -> None:
    governor = ThreadGovernor(2, all_free)
    for step in range(4000):
        assert governor.threads == 2
        seconds = 0.01 * (1 + step / 1000) * (3 if step % 1000 == 999 else 1)  # another request, at a greater depth
        governor.observe(1, seconds, 1.95 * seconds)


def test_threads_shrink_while_another_process_is_busy_and_grow_again() -> None:
    machine = Machine(2)
    governor = ThreadGovernor(2, all_free)
    run(governor, machine, 100)
    machine.busy = 1
    run(governor, machine, 20)
    mean = run(governor, machine, 1000)
    assert mean < machine.step(1) * 1.1
    machine.busy = 0
    run(governor, machine, 600)
    assert run(governor, machine, 300) < machine.step(2) * 1.02


def test_a_machine_busy_from_the_start_slows_only_a_few_steps() -> None:
    machine = Machine(2)
    machine.busy = 1
    assert run(ThreadGovernor(2, all_free), machine, 40) < machine.step(1) * 1.4
    assert run(ThreadGovernor(2, machine.free), machine, 40) < machine.step(1) * 1.001


def test_threads_grow_when_the_machine_becomes_quiet() -> None:
    machine = Machine(2)
    machine.busy = 1
    governor = ThreadGovernor(2, machine.free)
    run(governor, machine, 100)
    assert governor.threads == 1
    machine.busy = 0
    run(governor, machine, 100)
    assert governor.threads == 2


def test_many_cores_lose_only_what_is_taken() -> None:
    machine = Machine(8)
    governor = ThreadGovernor(8, all_free)
    run(governor, machine, 100)
    machine.busy = 3
    run(governor, machine, 300)
    assert run(governor, machine, 300) < machine.step(3) * 1.05


def test_a_single_core_is_not_governed() -> None:
    governor = ThreadGovernor(1, all_free)
    for seconds in (0.01, 1.0, 0.01):
        governor.observe(1, seconds, 0.001)
    assert governor.threads == 1


def test_slow_steps_that_fewer_threads_do_not_improve_are_accepted() -> None:
    governor = ThreadGovernor(2, all_free)
    trials = 0
    for _ in range(1000):
        trials += governor.threads == 1
        seconds = 0.03 if governor.threads == 2 else 0.05
        governor.observe(1, seconds, seconds)
    assert governor.threads == 2
    assert trials <= 12


def test_new_load_is_noticed_at_once_after_failed_trials() -> None:
    governor = ThreadGovernor(2, all_free)
    for _ in range(1000):
        seconds = 0.03 if governor.threads == 2 else 0.05
        governor.observe(1, seconds, seconds)
    machine = Machine(2)
    run(governor, machine, 50)
    machine.busy = 1
    run(governor, machine, 12)
    assert governor.threads == 1


def test_free_cores_are_some_of_the_cores() -> None:
    assert 1 <= free_cores(4) <= 4
    assert free_cores(1) == 1


def test_usable_cores_are_within_the_machine() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


def test_a_long_step_uses_newly_free_cores() -> None:
    machine = Machine(2)
    machine.busy = 1
    governor = ThreadGovernor(2, machine.free)
    assert governor.threads_for_long_step() == governor.threads == 1
    machine.busy = 0
    assert governor.threads_for_long_step() == 2

"""The one thread that computes, for all models of the process.

Each thread that calls llama.cpp gets a pool of OpenMP threads of its own, and as soon as the pools together have more
threads than there are cores, libgomp stops spinning between operations: decoding then runs at half its speed, also when
the other model is idle. One thread for all keeps one pool, and models take turns step by step.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import Protocol

from ...errors import LeapGenerationError

FORKED = "the model was loaded before this process was forked from another"


class Steps(Protocol):
    """Work that is done in steps."""

    def has_work(self) -> bool:
        """Whether a step would do anything. Called with the loop's lock held, or after a step without it: then a no may
        come too early."""
        ...

    def step(self) -> None:
        """Do the next step; raises nothing."""
        ...

    def interrupt(self) -> None:
        """End the step that runs as soon as possible. From any thread."""
        ...

    def close(self) -> None:
        """End all work and leave the loop."""
        ...

    def disown(self) -> None:
        """This process is a forked child, and the work its parent's: end it here, touch nothing of llama.cpp's."""
        ...


class ComputeLoop:
    """Runs the steps of every registered scheduler in turn. ``changed`` is the lock of their queues: notify it when
    work has come."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._members: list[Steps] = []
        self._current: Steps | None = None
        self._step_begun = 0.0
        self._thread: threading.Thread | None = None
        self._ended = False

    def add(self, member: Steps) -> None:
        """Let a scheduler take part."""
        with self.changed:
            self._members.append(member)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="leap-compute", daemon=True)
                self._thread.start()
                atexit.register(self._end)

    def _end(self) -> None:
        """A thread that comes back from llama.cpp's C++ while the interpreter ends would end the process with
        std::terminate."""
        with self.changed:
            self._ended = True
            for member in self._members:
                member.interrupt()
            self.changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        for member in list(self._members):
            member.close()  # its readers would wait for ever

    def closed_error(self, text: str) -> BaseException:
        """The error for a reader of closed work: LeapGenerationError, or, while the interpreter ends, SystemExit, which
        ends a thread without a traceback."""
        if self._ended:
            return SystemExit(f"{text}: the program ends")
        return LeapGenerationError(text, hint="load it again")

    def remove(self, member: Steps) -> None:
        """Take a scheduler out; returns when none of its steps runs any more."""
        with self.changed:
            if member in self._members:
                self._members.remove(member)
            self.changed.wait_for(lambda: self._current is not member)

    def other_step(self, member: Steps) -> float | None:
        """When the running step of another member began; None where none runs. From any thread."""
        begun, current = self._step_begun, self._current
        return None if current is None or current is member else begun

    @property
    def is_shared(self) -> bool:
        """Whether several models take turns: what is held back would wait for the step of another."""
        return len(self._members) > 1

    def begin_anew(self) -> None:
        """In a forked child, which has neither the thread nor whoever held the lock."""
        members, self._members = self._members, []
        self.changed = threading.Condition()
        self._thread = self._current = None
        for member in members:
            member.disown()

    def _run(self) -> None:
        while True:
            with self.changed:
                self._current = None
                self.changed.notify_all()
                while (member := next((each for each in self._members if each.has_work()), None)) is None:
                    if self._ended:
                        return
                    self.changed.wait()
                if self._ended:
                    return
                self._members.append(self._members.pop(self._members.index(member)))  # the others go first next time
                self._step_begun, self._current = time.perf_counter(), member
                alone = [member]
            member.step()
            while self._members == alone and member.has_work() and not self._ended:
                self._step_begun = time.perf_counter()
                member.step()  # the lock and the look at all members would cost a token as much as its delivery


compute_loop = ComputeLoop()
"""The process's own."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=compute_loop.begin_anew)

"""The check at the end of a run for processes that tests left."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .support.left_processes import MARK, left

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_a_process_of_this_run_is_named_until_it_ends():
    with subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: "one"}) as process:
        try:
            assert left("one", 0) == {process.pid: "sleep 60"}
            assert left("another", 0) == {}
        finally:
            process.kill()
    assert left("one", 5) == {}


def test_every_process_that_a_test_starts_has_the_mark():
    assert os.environ.get(MARK)

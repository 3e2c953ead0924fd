"""What leap does where Linux's calls are missing, as far as that shows here: branches by faked programs and tables, and
whole commands with the calls taken away."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time

import pytest

from leap_core.inference.engine import threads as physical_cores
from leap_core.models.builtin import model_path
from leap_core.system import processes as process_identity
from leap_core.system.processes import CREATION_FLAGS, OF_A_SESSION, kill_group
from tests.support.hub import FakeHub

WITHOUT_LINUX = '''
"""Takes away what other systems have not, before leap is imported."""
import builtins, os, sys
for name in ("pread", "pwrite", "preadv", "pwritev", "fork", "forkpty", "sendfile", "posix_fadvise", "posix_fallocate",
             "memfd_create", "eventfd", "copy_file_range", "splice", "fdatasync"):
    if hasattr(os, name):
        delattr(os, name)
genuine = builtins.__import__
def without(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__") or ""
    if name in ("fcntl", "pwd", "grp", "termios", "pty", "tty") and level == 0:
        ours = importer.split(".")[0] in ("leap_core", "leap_cli", "jobs")
        if ours and (importer, name) not in KEPT:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
    return genuine(name, globals, locals, fromlist, level)
KEPT = {("leap_core.system.locks", "fcntl")}
builtins.__import__ = without
def refuse(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])
sys.addaudithook(refuse)
'''


@pytest.fixture
def taken_away(leap_home, tmp_path, monkeypatch):
    """Every process of Python that starts now lacks the calls."""
    place = tmp_path / "site"
    place.mkdir()
    (place / "sitecustomize.py").write_text(WITHOUT_LINUX)
    monkeypatch.setenv("PYTHONPATH", str(place))

    def leap(*arguments: str, stdin: str = "", code: int = 0) -> str:
        command = [sys.executable, "-m", "leap_cli", *arguments]
        done = subprocess.run(command, input=stdin, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stderr
        assert "a bug in leap" not in done.stderr
        return done.stdout

    yield leap
    leap("unload", "--all")
    leap("jobs", "worker", "--shutdown")


@pytest.mark.slow
def test_the_calls_of_linux_are_hidden(taken_away):
    code = "import os; print(hasattr(os, 'pread'), hasattr(os, 'fork'), hasattr(os, 'pwrite')); open('/proc/stat')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("False False False") and "FileNotFoundError" in done.stderr


@pytest.mark.slow
def test_batches_jobs_and_a_host_work_without_them(taken_away, tmp_path):
    leap = taken_away
    lines = [{"prompt": "What is the capital of France?", "max_tokens": 8}, {"prompt": "Hi.", "max_tokens": 4}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    leap("batch", "in.jsonl", "-o", "out.jsonl", "-m", "builtin", "-q")
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"prompt": "More."}]))
    leap("batch", "in.jsonl", "-o", "out.jsonl", "-m", "builtin", "-q", "--max-tokens", "4")
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 3
    leap("load", "builtin")
    assert "Paris" in leap("generate", "-m", "builtin", "--host", "What is the capital of France?")
    assert "builtin" in leap("ps", "--format", "quiet")
    job = leap("generate", "-m", "builtin", "--background", "What is the capital of France?").strip()
    leap("jobs", "wait", job, "--timeout", "60s")
    assert "Paris" in leap("jobs", "output", job)


@pytest.mark.slow
def test_a_download_works_without_them(taken_away, tmp_path, monkeypatch):
    data = model_path().read_bytes()
    with FakeHub() as hub:
        for name, value in {**hub.environment, "HF_HOME": str(tmp_path / "hf")}.items():
            monkeypatch.setenv(name, value)
        hub.add_file("ada/Tiny-GGUF", "Tiny-Q8_0.gguf", data)
        taken_away("download", "ada/Tiny-GGUF", "--connections", "3")
        assert "Tiny" in taken_away("models", "list", "--format", "quiet")
        job = taken_away("download", "ada/Tiny-GGUF", "--replace", "--background").strip()
        taken_away("jobs", "wait", job, "--timeout", "60s")


def test_the_identity_of_a_process_depends_on_no_time_zone_and_no_language(monkeypatch):
    """As macOS tells it, by ps."""
    monkeypatch.setattr(sys, "platform", "darwin")
    told = set()
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        told.add(process_identity.start_time(os.getpid()))
    monkeypatch.undo()
    time.tzset()
    assert len(told) == 1 and None not in told


@pytest.mark.parametrize(
    ("answers", "cores"),
    [({"hw.perflevel0.physicalcpu": 4, "hw.physicalcpu": 10}, 4), ({"hw.physicalcpu": 6}, 6), ({}, os.cpu_count())],
)
def test_a_mac_computes_with_its_fast_cores(tmp_path, monkeypatch, answers, cores):
    program = tmp_path / "sysctl"
    cases = "".join(f"{name}) echo {value};; " for name, value in answers.items())
    program.write_text(f'#!/bin/sh\ncase "$2" in {cases} *) echo "unknown oid" >&2; exit 1;; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    physical_cores.physical_cores.cache_clear()
    try:
        assert physical_cores.physical_cores() == cores
    finally:
        physical_cores.physical_cores.cache_clear()


def test_windows_cores_are_counted_whatever_threads_they_have():
    """Two cores with two threads each, one with one; a cache and a package beside them."""
    entries = [(0b11, 0), (0b1100, 0), (0b10000, 0), (0b11111, 2), (0b11111, 3)]
    table = b"".join(struct.pack("@Ni4x16x", mask, relationship) for mask, relationship in entries)
    assert physical_cores.cores_listed(table) == 3
    assert physical_cores.cores_listed(b"") == 0


@pytest.mark.skipif(sys.platform == "win32", reason="groups are POSIX's")
def test_a_process_group_ends_completely():
    process = subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo $!; wait"],
        stdout=subprocess.PIPE,
        start_new_session=OF_A_SESSION,
        creationflags=CREATION_FLAGS,
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    kill_group(process.pid)
    process.wait(100)
    process.stdout.close()
    deadline = time.monotonic() + 100
    while process_identity.start_time(child) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    kill_group(process.pid)  # it is gone: nothing is raised

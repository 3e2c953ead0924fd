"""``leap doctor``: well here, and telling what is wrong where something is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from leap_cli.diagnosis import checks as diagnosis
from tests.support.hub import FakeHub


@pytest.fixture
def env(leap):
    leap.variables["HF_HUB_OFFLINE"] = "1"
    return leap.environment(b"", terminal=False, stdin_terminal=False)


def by_name(checks) -> dict[str, diagnosis.Check]:
    return {check.name: check for check in checks}


@pytest.mark.slow
def test_doctor_finds_no_problem_here(leap, leap_home):
    leap.variables["HF_HUB_OFFLINE"] = "1"
    done = leap("doctor", "--format", "json")
    assert (done.code, done.stderr) == (0, "")
    found = {record["check"]: record for record in json.loads(done.stdout)}
    assert {record["state"] for name, record in found.items() if name not in ("hub", "disk")} == {"ok"}
    assert found["hub"]["state"] == "skipped"
    assert found["versions"]["facts"]["packages"]["llama-cpp-python"] == found["engine"]["facts"]["version"]
    assert any(device["name"] == "CPU" for device in found["engine"]["facts"]["devices"])
    assert "Paris" in found["generation"]["facts"]["answer"]
    assert found["cores"]["facts"]["usable"] >= 1
    assert not leap_home.exists(), "looking has made something"


BROKEN_ENGINE = """
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) void f(void) { write(2, "GGML_ASSERT(false) failed\\n", 26); abort(); }
"""
HANGING_ENGINE = "#include <unistd.h>\n__attribute__((constructor)) void f(void) { sleep(600); }"


def an_engine_of(source: str, folder: Path) -> str:
    """A folder with a library of C's ``source``."""
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / "libllama.so")]
    subprocess.run(command, input=source, text=True, capture_output=True, check=True)
    return str(folder)


@pytest.mark.slow
def test_an_engine_that_dies_is_a_problem_and_exit_1(leap, tmp_path):
    leap.variables |= {"LEAP_ENGINE": an_engine_of(BROKEN_ENGINE, tmp_path), "HF_HUB_OFFLINE": "1"}
    done = leap("doctor")
    assert done.code == 1
    assert "leap: error: engine: the process ended with code -6: GGML_ASSERT(false) failed" in done.stderr
    assert "\nproblem  engine " in done.stdout
    quiet = leap("doctor", "--format", "quiet")
    assert (quiet.code, quiet.stdout.splitlines()[-1]) == (1, "engine")


@pytest.mark.slow
def test_an_engine_that_hangs_times_out(env, tmp_path):
    env.variables = {**env.variables, "LEAP_ENGINE": an_engine_of(HANGING_ENGINE, tmp_path)}
    (check,) = diagnosis.engine(env, patience=1.0)
    assert check.state == "problem" and "was not done after 1 s" in check.detail


def test_a_wrong_answer_is_a_problem():
    facts = {"answer": "Rome Rome", "load_seconds": 1.0, "answer_seconds": 1.0}
    check = diagnosis._generation_check(facts, "")
    assert check.state == "problem" and check.advice == "llama.cpp computes wrongly here"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_directories_are_problems(env, leap_home):
    leap_home.mkdir(mode=0o500)
    found = by_name(diagnosis.directories(env))
    assert found["run directory"].state == "problem"
    assert found["models directory"].state == "warning"


@pytest.mark.skipif(os.name != "posix", reason="rights are POSIX's")
def test_the_directories_are_checked(env, leap_home):
    (leap_home / "run").mkdir(parents=True, mode=0o755)
    (leap_home / "models").write_bytes(b"")
    found = by_name(diagnosis.directories(env))
    assert found["run directory"].state == "warning" and "chmod 700" in str(found["run directory"].advice)
    assert found["models directory"].state == "problem"
    assert found["config directory"].state == "ok"


def test_the_configuration_is_checked(env, leap_home):
    assert diagnosis.configuration(env).state == "ok"
    leap_home.mkdir()
    (leap_home / "config.toml").write_text("defualt_model = 'x'\n")
    check = diagnosis.configuration(env)
    assert check.state == "warning" and "did you mean default_model" in check.detail
    (leap_home / "config.toml").write_text("[")
    assert diagnosis.configuration(env).state == "problem"


def test_incomplete_models_are_problems(env, leap_home):
    (leap_home / "models" / "Mine-Q4_0").mkdir(parents=True)
    (leap_home / "models" / "Mine-Q4_0" / "x.gguf.part").write_bytes(b"")
    check = diagnosis.models(env)
    assert check.state == "warning" and "Mine-Q4_0 is partial" in check.detail


def test_jobs_without_a_worker_are_problems(env, leap_home):
    from jobs.table.database import SqliteDatabase

    with closing(SqliteDatabase(leap_home / "jobs.db").connection) as table:
        table.execute(
            "INSERT INTO jobs (id, kind, state, parameters, created) VALUES ('abc', 'batch', 'queued', '{}', 1)"
        )
    check = diagnosis.worker(env)
    assert check.state == "warning" and "1 job waits" in check.detail
    assert check.facts == {"running": False, "jobs": {"queued": 1}}


@pytest.mark.slow
def test_a_damaged_database_is_a_problem(leap, leap_home):
    leap_home.mkdir(parents=True)
    (leap_home / "jobs.db").write_bytes(b"not a database, " * 100)
    done = leap("doctor", "--format", "json")
    states = {record["check"]: record["state"] for record in json.loads(done.stdout)}
    assert done.code != 0 and states["jobs.db"] == "problem"


def test_the_hub_is_checked(leap):
    with FakeHub() as hub:
        leap.variables["HF_ENDPOINT"] = hub.url
        check = diagnosis.hub(leap.environment(b"", terminal=False, stdin_terminal=False))
        assert check.state == "ok" and check.facts["reachable"] is True
        url = hub.url
    leap.variables["HF_ENDPOINT"] = url  # nobody listens there any more
    check = diagnosis.hub(leap.environment(b"", terminal=False, stdin_terminal=False))
    assert check.state == "warning" and check.facts == {"reachable": False}


def test_a_stale_host_state_is_not_a_problem(env, leap_home):
    (leap_home / "run").mkdir(parents=True, mode=0o700)
    (leap_home / "run" / "host.json").write_text("{")
    assert diagnosis.host(env).state == "ok"


@pytest.mark.skipif(sys.platform == "darwin", reason="there it is always Metal")
def test_an_unusable_gpu_is_reported(tmp_path):
    assert diagnosis.gpu_advice("1.2", tmp_path) is None
    (tmp_path / "dev" / "dri").mkdir(parents=True)
    (tmp_path / "dev" / "dri" / "renderD128").touch()
    assert "-DGGML_VULKAN=on" in str(diagnosis.gpu_advice("1.2", tmp_path))
    (tmp_path / "dev" / "nvidia0").touch()
    advice = str(diagnosis.gpu_advice("1.2", tmp_path))
    assert 'CMAKE_ARGS="-DGGML_CUDA=on" pip install' in advice and "llama-cpp-python==1.2" in advice

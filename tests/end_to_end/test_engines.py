"""Another engine in a process of its own: answers, jobs, batches and warm models name it."""

from __future__ import annotations

import json
import shutil

import pytest

from leap_core.inference.llama.engines import default_engine

QUESTION = "What is the capital of Italy?"


@pytest.fixture
def other(tmp_path, program) -> str:
    """The default engine's own files under another name."""
    folder = tmp_path / "other"
    shutil.copytree(default_engine().folder, folder)
    done = program("engine", "add", str(folder), "--name", "other")
    assert (done.returncode, done.stdout) == (0, "other\n"), done.stderr
    return "other"


def test_an_answer_and_its_statistics_name_the_engine(program, other):
    done = program("generate", "-m", "builtin", "--engine", other, "--stats", QUESTION)
    assert done.stdout == "The capital of Italy is Rome.\n" and done.stderr.endswith(", engine other\n")
    assert "engine" not in program("generate", "-m", "builtin", "--stats", QUESTION).stderr
    done = program("generate", "-m", "builtin", "--engine", other, "--gpu-layers", "99", QUESTION)
    assert done.stdout == "The capital of Italy is Rome.\n", done.stderr
    assert "the engine other is built without a GPU: --gpu-layers 99 has no effect" in done.stderr
    done = program("generate", "-m", "builtin", "--engine", "nobody's", QUESTION)
    assert done.returncode == 2 and "there are default, other" in done.stderr


def test_a_job_runs_the_requested_engine(program, other, variables):
    id = program("generate", "-m", "builtin", "--engine", other, "--background", QUESTION).stdout.strip()
    plain = program("generate", "-m", "builtin", "--background", QUESTION).stdout.strip()
    variables["LEAP_ENGINE"] = other
    named = program("generate", "-m", "builtin", "--background", QUESTION).stdout.strip()
    del variables["LEAP_ENGINE"]
    for job, engine in ((id, other), (plain, None), (named, other)):
        done = program("jobs", "wait", job, "--format", "json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["result"]["stats"].get("engine") == engine


def test_a_batch_resumed_with_another_engine_reports_it_once(program, other, tmp_path):
    lines = [{"custom_id": str(n), "prompt": QUESTION} for n in range(4)]
    batch, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    batch.write_text("".join(json.dumps(line) + "\n" for line in lines[:2]))
    assert program("batch", "-m", "builtin", str(batch), "-o", str(output)).returncode == 0
    batch.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = program("batch", "-m", "builtin", "--engine", other, str(batch), "-o", str(output))
    assert done.returncode == 0 and done.stderr.count("2 earlier results are of another engine") == 1
    found = [json.loads(line) for line in output.read_text().splitlines()]
    engines = [each["response"]["body"]["leap"]["stats"].get("engine") for each in found]
    assert engines == [None, None, other, other]


def test_a_warm_model_runs_the_engine_that_is_set(program, other):
    assert program("engine", "use", other).returncode == 0
    assert program("load", "builtin").returncode == 0
    try:
        done = program("generate", "-m", "builtin", "--host", "--stats", QUESTION)
        assert done.returncode == 0 and done.stderr.endswith(", engine other\n")
        assert "other" in program("ps").stdout
        assert program("config", "set", "engine", "default").returncode == 0  # a host runs the one that it began with
        done = program("generate", "-m", "builtin", "--host", QUESTION)
        assert done.returncode == 10 and "with another engine than default" in done.stderr, done
        assert program("generate", "-m", "builtin", QUESTION).stdout == "The capital of Italy is Rome.\n"
    finally:
        program("unload", "--all")


def test_a_model_is_loaded_with_the_named_engine(program, other):
    assert program("load", "builtin", "--engine", other).returncode == 0
    try:
        (model,) = json.loads(program("ps", "--format", "json").stdout)
        assert model["engine"] == other
        assert program("load", "builtin", "--engine", other).returncode == 0
        warm = program("generate", "--host", "-m", "builtin", "--engine", other, QUESTION)
        assert warm.stdout == "The capital of Italy is Rome.\n", warm.stderr
        refused = program("load", "builtin", "--engine", "default")
        assert refused.returncode == 3 and "runs the engine other, and builtin is to run with default" in refused.stderr
        refused = program("generate", "--host", "-m", "builtin", "--engine", "default", QUESTION)
        assert refused.returncode == 10 and "with another engine than default" in refused.stderr
        assert program("load", "builtin", "--engine", "nobody's").returncode == 2
        assert program("ps", "--format", "quiet").stdout == "builtin\n"
    finally:
        program("unload", "--all")


def test_bench_measures_an_engine(program, other):
    done = program("models", "bench", "builtin-vl", "--repeat", "1", "--engine", other, "--format", "json")
    (figures,) = json.loads(done.stdout)
    assert figures["decode"] > 0 and figures["gpu_layers"] in (0, -1), done.stderr
    assert program("models", "bench", "builtin-vl", "--engine", "nobody's").returncode == 2

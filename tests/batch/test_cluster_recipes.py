"""The recipes of docs/clusters.md: Slurm and GNU parallel where they are installed, and the manifest for Kubernetes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from leap_core.batch.settings import Part
from leap_core.models.builtin import model_path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "clusters.md").read_text("utf-8")
sys.path.insert(0, str(ROOT / "scripts"))
import slurm_array  # noqa: E402


def test_a_slurm_array_with_a_killed_task_gives_the_output_of_one_run(tmp_path):
    if (reason := slurm_array.lacking()) is not None or not model_path().is_file():
        pytest.skip(f"no Slurm can be started: {reason or 'the built-in model has not been trained yet'}")
    seen = slurm_array.run_array(tmp_path, lines=14, accidents=1, kinds=("killed",))
    assert seen["equal"] and seen["exit_code"] == 0 and seen["killed"] == 1


def manifest() -> dict:
    yaml = pytest.importorskip("yaml")
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return yaml.safe_load(text)


def test_the_manifest_is_valid_by_kubernetes_own_schema():
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    job, version = manifest(), kubernetes_validate.latest_version()
    kubernetes_validate.validate(job, version, strict=True)
    job["spec"]["backoffLimitPerIndexes"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, version, strict=True)


def test_the_manifest_runs_every_part_once():
    job = manifest()
    assert (job["apiVersion"], job["kind"], job["spec"]["completionMode"]) == ("batch/v1", "Job", "Indexed")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["restartPolicy"] in ("Never", "OnFailure")
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    count = job["spec"]["completions"]
    (script,) = container["args"]
    assert script.endswith(f'--shard "$((JOB_COMPLETION_INDEX + 1))/{count}"')
    assert [Part(index + 1, count).number for index in range(count)][-1] == count
    assert job["spec"]["backoffLimitPerIndex"], "one part's accidents must not end the others"


@pytest.mark.skipif(shutil.which("parallel") is None, reason="GNU parallel is not installed")
@pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet")
def test_gnu_parallel_runs_the_parts(tmp_path):
    """The line of the page, on this machine alone."""
    (line,) = re.findall(r"^\$ (seq 7 \| parallel .*)$", PAGE, re.MULTILINE)
    line = line.replace("--sshloginfile nodes.txt", "").replace("MODEL", "builtin").replace("7", "3")
    rows = (f'{{"id": "{n}", "prompt": "Say {n}.", "max_tokens": 3, "temperature": 0}}\n' for n in range(9))
    (tmp_path / "in.jsonl").write_text("".join(rows))
    leap = tmp_path / "leap"
    leap.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m leap_cli "$@"\n')
    leap.chmod(0o755)
    variables = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    merge = "leap batch in.jsonl -o out.jsonl -m builtin --merge 3"
    done = subprocess.run(
        ["sh", "-c", f"{line} && {merge}"], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done
    assert [json.loads(row)["custom_id"] for row in (tmp_path / "out.jsonl").read_text().splitlines()] == [
        str(n) for n in range(9)
    ]

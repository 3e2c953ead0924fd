"""The recipes of docs/clusters.md: Slurm where it is installed, and the manifest for Kubernetes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from leap_core.batch.part import Part
from leap_core.builtin import model_path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import slurm_array  # noqa: E402


def test_an_array_on_slurm_whose_task_is_killed_gives_the_output_of_one_run(tmp_path):
    if (reason := slurm_array.lacking()) is not None or not model_path().is_file():
        pytest.skip(f"no Slurm can be started: {reason or 'the built-in model has not been trained yet'}")
    seen = slurm_array.run_array(tmp_path, lines=14, accidents=1, kinds=("killed",))
    assert seen["equal"] and seen["exit_code"] == 0 and seen["killed"] == 1


def test_the_manifest_runs_every_part_once():
    yaml = pytest.importorskip("yaml")
    page = (ROOT / "docs" / "clusters.md").read_text("utf-8")
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    job = yaml.safe_load(text)
    assert (job["apiVersion"], job["kind"], job["spec"]["completionMode"]) == ("batch/v1", "Job", "Indexed")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert set(job["spec"]) <= JOB_SPEC and set(pod) <= POD_SPEC and set(container) <= CONTAINER
    assert pod["restartPolicy"] in ("Never", "OnFailure")
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    count = job["spec"]["completions"]
    (script,) = container["args"]
    assert script.endswith(f'--shard "$((JOB_COMPLETION_INDEX + 1))/{count}"')
    assert [Part(index + 1, count).number for index in range(count)][-1] == count
    assert job["spec"]["backoffLimitPerIndex"], "one part's accidents must not end the others"


JOB_SPEC = {"completionMode", "completions", "parallelism", "backoffLimitPerIndex", "maxFailedIndexes", "template"}
POD_SPEC = {"restartPolicy", "containers", "volumes", "terminationGracePeriodSeconds"}
CONTAINER = {"name", "image", "workingDir", "env", "command", "args", "resources", "volumeMounts"}
"""Fields of Kubernetes' API that the manifest may use: an unknown one is refused, or passed over, by the server."""

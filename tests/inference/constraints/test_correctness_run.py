"""The run that anyone can repeat over a folder in MaskBench's layout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "uniqueItems": True},
    },
    "required": ["age"],
}
FILES = {
    "a_right.json": (PERSON, [(True, {"tags": [1], "age": 1, "name": "x"}), (False, {"tags": [1, 1], "age": 1})]),
    "b_refused.json": ({"type": "nothing"}, [(True, 1)]),
    "c_let_through.json": ({"type": "integer"}, [(False, 1)]),
    "d_refused_wrongly.json": ({"type": "integer"}, [(True, "1")]),
}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "schema_correctness.py", folder, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )


@pytest.mark.slow
def test_every_kind_of_verdict_is_counted(tmp_path: Path):
    folder = tmp_path / "schemas"
    folder.mkdir()
    for name, (schema, tests) in FILES.items():
        content = {"schema": schema, "tests": [{"valid": valid, "data": data} for valid, data in tests]}
        (folder / name).write_text(json.dumps(content))
    (folder / "e_crashed.json").write_text("{")
    done = run(folder, "--all", "--json", str(tmp_path / "report.json"))
    assert done.returncode == 1
    outcomes = {v["file"]: v["outcome"] for v in json.loads((tmp_path / "report.json").read_text())}
    assert outcomes == {
        "a_right.json": "right",
        "b_refused.json": "refused",
        "c_let_through.json": "let through",
        "d_refused_wrongly.json": "refused wrongly",
        "e_crashed.json": "crashed",
    }
    assert "right                 1   20.0%" in done.stdout
    assert "invalid documents that only the check refused: 1" in done.stdout


@pytest.mark.slow
def test_a_correct_folder_and_an_empty_one(tmp_path: Path):
    (tmp_path / "a.json").write_text(json.dumps({"schema": PERSON, "tests": [{"valid": True, "data": {"age": 1}}]}))
    assert run(tmp_path).returncode == 0
    assert run(tmp_path / "nowhere").returncode == 2

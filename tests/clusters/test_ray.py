"""``leap batch --on ray`` and the mapper on a real Ray cluster of two nodes on this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leap_core.builtin import model_path

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "scripts"))
import torture_ray  # noqa: E402

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc"),
    pytest.mark.filterwarnings("default"),
]
MAPPING = """
import logging, ray
from leap_core import GenerationOptions
from leap_core.batch import Mapper

ray.init(logging_level=logging.CRITICAL, log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
mapper = Mapper("builtin", prompt="Say {text}.", options=GenerationOptions(temperature=0.0, max_tokens=4))
frame = ray.data.read_parquet("PLACE/in.parquet").map_batches(mapper, batch_size=3, batch_format="FORMAT")
frame.write_parquet("PLACE/out")
"""


@pytest.fixture
def nodes() -> Iterator[torture_ray.Nodes]:
    made = torture_ray.Nodes(2)
    yield made
    made.close()


def test_a_batch_goes_on_when_actor_and_driver_are_killed_and_a_dataset_is_mapped(nodes, tmp_path):
    check_batch(nodes, tmp_path)
    check_mapper(nodes, tmp_path)


def check_batch(nodes, tmp_path):
    seen = torture_ray.run_batch(nodes, tmp_path, lines=40, rounds=2, kinds=("actor", "driver"))
    assert seen["equal"] and seen["exit_code"] == 0 and (seen["actor"], seen["driver"]) == (1, 1)
    assert seen["told"] == "", "Ray's log reached the terminal"
    journal = (tmp_path / "out.jsonl.journal").read_text().splitlines()[1:]
    assert len({json.loads(line)["key"] for line in journal}) == len(journal) == 40, "a line was answered twice"


def check_mapper(nodes, tmp_path):
    pyarrow_parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    pyarrow_parquet.write_table(pyarrow.table({"text": [f"{n}" for n in range(6)]}), tmp_path / "in.parquet")
    environment = {**os.environ, "RAY_ADDRESS": nodes.address}
    script = MAPPING.replace("FORMAT", "pandas").replace("PLACE", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = pyarrow_parquet.read_table(tmp_path / "out").sort_by("text").to_pylist()
    assert [row["text"] for row in rows] == [f"{n}" for n in range(6)]
    assert all(row["answer"] and not row["error"] and row["usage"]["prompt_tokens"] for row in rows)


def test_a_cluster_that_is_not_there_is_one_line(leap, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n')
    done = leap("batch", "in.jsonl", "-o", "out.jsonl", "-m", "builtin", "--workers", "2")
    assert done.code == 2 and "--workers needs --on" in done.stderr
    done = leap("batch", "in.jsonl", "-o", "out.jsonl", "-m", "builtin", "--on", "slurm")
    assert done.code != 0 and "neither ray nor ray://HOST" in " ".join(done.stderr.split())

"""Every kind of line over Ray, models that nodes fetch, and a line that kills: one cluster, joined once."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from leap_cli.diagnosis.ray_cluster import cluster
from leap_core.batch.checking import CheckedBatch, check_batch
from leap_core.batch.clusters import ray_workers
from leap_core.batch.clusters.line_answerer import LineAnswerer
from leap_core.batch.clusters.opening import open_on_cluster
from leap_core.batch.settings import BatchSettings
from leap_core.errors import LeapModelNotFoundError
from leap_core.models.builtin import model_path
from leap_core.models.download.downloading import download_model
from leap_core.opening import HostUse, open_embedding_runner, open_runner
from tests.support.hub import FakeHub

from ...wav_bytes import wav_of

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))
import torture_ray  # noqa: E402

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc"),
    pytest.mark.filterwarnings("default"),
]
REPO, FILE, MODEL = "LiquidAI/LFM2-350M-GGUF", "LFM2-350M-Q4_0.gguf", "LFM2-350M-Q4_0"


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[torture_ray.Nodes]:
    """A cluster whose nodes have a home of their own, and that this process has joined."""
    from leap_core.batch.clusters.ray_workers import connect, ray_module

    with FakeHub() as hub, monkeypatch.context() as of_nodes:
        hub.add_file(REPO, FILE, model_path().read_bytes()[:-1] + b"\1")
        for name, value in hub.environment.items():
            monkeypatch.setenv(name, value)
        of_nodes.setenv("LEAP_HOME", str(tmp_path / "home-of-nodes"))
        made = torture_ray.Nodes(2)
        of_nodes.undo()
        connect(ray_module(), made.address)
        yield made
        ray_module().shutdown()
        made.close()


Ask = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Answer lines in this process, or on the cluster; the results."""

    def run(lines: list[dict[str, Any]], on: str | None = "ray", **fields: Any) -> list[dict[str, Any]]:
        source, output = tmp_path / "in.jsonl", tmp_path / f"{on or 'one'}.jsonl"
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        options = {"temperature": 0.0, "max_tokens": 4}
        settings = BatchSettings.of(str(source), str(output), options=options, format="plain", on=on, concurrency=4)
        changed = {"overwrite": True, "workers": "2", "directory": str(tmp_path), **fields}
        settings = BatchSettings.from_json({**settings.to_json(), **changed})
        with check_batch(settings, default_model=None, variables=os.environ, cwd=tmp_path) as checked:
            journal = settings.open_journal()
            assert journal is not None
            try:
                batch = checked.open(journal, str, lambda _progress: None)
                batch.run(lambda: opened(checked, settings), threading.Event())
            finally:
                journal.close()
        return [json.loads(line) for line in output.read_text().splitlines()]

    return run


def opened(checked: CheckedBatch, settings: BatchSettings) -> Any:
    if settings.cluster.on is not None:
        runner = open_on_cluster(checked, settings.cluster)
        runner._model = replace(runner._model, path="/nowhere/model.gguf")  # the nodes would see it
        return runner
    opening = open_embedding_runner if checked.embeds else open_runner
    return opening(checked.model, settings.loading_options(), host=HostUse.NEVER)


@pytest.mark.timeout(480)
def test_every_kind_of_line(nodes, ask, miniature, tmp_path, monkeypatch, leap):
    check_kinds(ask, miniature, tmp_path)
    check_a_line_that_kills(ask, monkeypatch)
    check_a_model_that_nodes_fetch(ask, tmp_path)
    check_commands(nodes, leap, tmp_path)


def check_kinds(ask: Ask, miniature: Path, tmp_path: Path) -> None:
    Image.new("RGB", (32, 24), "red").save(tmp_path / "red.png")
    (tmp_path / "hum.wav").write_bytes(wav_of([0.1, -0.1] * 4000, 16000))
    kinds = {
        "builtin-embed": [{"input": f"text {n}"} for n in range(6)],
        "builtin-vl": [{"prompt": "Which colour?", "image": "red.png"}] * 2,
        "builtin-audio": [{"prompt": "What do you hear?", "audio": "hum.wav"}] * 2,
        "builtin": [{"prompt": "A name", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}],
    }
    for model, lines in kinds.items():
        here = ask(lines, on=None, model=model)
        assert ask(lines, model=model) == here and not any(line.get("error") for line in here), model
    spoken = ask([{"prompt": "Say it.", "max_tokens": 40}], model=str(miniature), speech=str(tmp_path / "spoken"))
    assert Path(spoken[0]["speech"]).read_bytes()[:4] == b"RIFF"


def check_a_line_that_kills(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def fragile() -> type[LineAnswerer]:
        class Fragile(LineAnswerer):  # of a function, so that it goes to the nodes as it is
            def exchange(self, block, seconds):
                if any(b"deadly" in line.raw for line in block):
                    os._exit(1)
                return super().exchange(block, seconds)

        return Fragile

    with monkeypatch.context() as patched:
        patched.setattr(ray_workers, "LineAnswerer", fragile())
        results = ask([{"prompt": "deadly" if n == 3 else f"Say {n}."} for n in range(12)], model="builtin")
    assert [n for n, result in enumerate(results) if result.get("error")] == [3] and len(results) == 12
    assert "5 processes died while they had this line" in str(results[3]["error"])


def check_a_model_that_nodes_fetch(ask: Ask, tmp_path: Path) -> None:
    download_model("LFM2-350M:Q4_0")
    lines = [{"prompt": "Say 1."}]
    with pytest.raises(LeapModelNotFoundError, match="has no model with the SHA-256"):
        ask(lines, model=MODEL)
    home = tmp_path / "home-of-nodes"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text("[jobs]\nfetch_models = true\n")
    assert ask(lines, model=MODEL) == ask(lines, on=None, model=MODEL)
    assert (home / "models" / MODEL / FILE).is_file()


def check_commands(nodes: torture_ray.Nodes, leap: Any, tmp_path: Path) -> None:
    leap.variables["RAY_ADDRESS"] = nodes.address
    env = leap.environment(b"", terminal=False, stdin_terminal=False)
    (check,) = cluster(env, None, 100.0)
    assert (check.state, check.detail) == ("ok", "2 nodes, 2 processors, 0 GPUs"), check
    cases = [{"id": f"{n}", "prompt": f"Say {n}.", "expect": {"not": {"equals": ""}}} for n in range(3)]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    done = leap("eval", "cases.jsonl", "-m", "builtin", "--on", "ray", "--format", "json")
    assert done.code == 0 and "3 of 3 requests answered" in done.stderr, done

"""The pipelines of docs/clusters.md, from Parquet to Parquet, where their engines are installed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from leap_core.batch import Mapper
from leap_core.batch.clusters.line_answerer import unload_all
from leap_core.conversation.options import GenerationOptions
from leap_core.models.builtin import model_path

pytestmark = [
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
    pytest.mark.filterwarnings("default"),
]
PAGE = (Path(__file__).parents[3] / "docs" / "clusters.md").read_text("utf-8")


def pipeline(engine: str) -> str:
    """The block of the page that begins with this engine's name."""
    (text,) = re.findall(rf"^```console\n(# {engine}.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return text


@pytest.mark.parametrize(
    ("engine", "package"),
    [("pandas", "pandas"), ("Hugging Face datasets", "datasets"), ("Spark", "pyspark"), ("Dask", "dask.dataframe")],
)
def test_a_pipeline_of_the_page_runs(engine, package, tmp_path, monkeypatch):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    loaded = pytest.importorskip(package)
    if package == "pyspark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    if package == "datasets":
        monkeypatch.setattr(loaded.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    texts = [f"{n}" for n in range(6)]
    parquet.write_table(pyarrow.table({"text": texts}), "in.parquet")
    mapper = Mapper("builtin", prompt="Say {text}.", options=GenerationOptions(temperature=0.0, max_tokens=4))
    try:
        expected = mapper({"text": texts})["answer"]
        exec(pipeline(engine), {"mapper": mapper})
        rows = parquet.read_table("out.parquet").sort_by("text").to_pylist()
    finally:
        unload_all()
    assert [(row["text"], row["answer"], row["error"]) for row in rows] == [
        (text, answer, "") for text, answer in zip(texts, expected, strict=True)
    ]
    assert all(row["usage"]["prompt_tokens"] for row in rows)

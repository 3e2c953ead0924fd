"""LoRA adapters that a manifest names: read, checked, loaded, taken along."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leap_core import ChatMessage, GenerationOptions, Leap, LeapModelNotFoundError, ModelLoadingOptions
from leap_core.batch.settings import fingerprint_of
from leap_core.models.importing import import_model
from leap_core.models.manifest import parse_manifest, problems_of, read_manifest
from leap_core.models.resolving import resolve_local
from leap_core.models.store import Store
from leap_core.system.directories import Directories
from tests.support.random_adapters import write_random_adapter
from tests.support.random_models import write_random_model


def manifest(adapters: object) -> str:
    return json.dumps(
        {
            "inference_type": "llama.cpp/text-to-text",
            "schema_version": "1.0.0",
            "load_time_parameters": {"model": "model.gguf", "lora_adapters": adapters},
        }
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    model = write_random_model(tmp_path / "model.gguf", quantization="f32")
    write_random_adapter(tmp_path / "poet.gguf", model, alpha=24.0)
    (tmp_path / "mine.json").write_text(manifest([{"path": "poet.gguf", "scale": 0.5}]))
    return tmp_path


def said(reference: Path, options: ModelLoadingOptions | None = None, **generation: object) -> str:
    with Leap.load(reference, options or ModelLoadingOptions(cpu_threads=1)) as runner:
        options = GenerationOptions(temperature=0.0, max_tokens=12, **generation)
        return list(runner.start([ChatMessage("user", "hello")], options=options))[-1].full_message.text


@pytest.mark.slow
def test_adapters_are_loaded_and_imported_with_their_model(directory: Path, leap_home: Path) -> None:
    alone = directory / "alone"
    alone.mkdir()
    (alone / "model.gguf").write_bytes((directory / "model.gguf").read_bytes())
    poet = {"path": str(directory / "poet.gguf"), "scale": 0.5}
    adapted = said(alone / "model.gguf", adapters=[poet])
    assert said(directory / "mine.json") == adapted
    assert said(directory / "mine.json", adapters=[]) == said(alone / "model.gguf") != adapted
    options = ModelLoadingOptions(cpu_threads=1, adapters=[{**poet, "scale": 0.0}])
    assert said(directory / "mine.json", options) == said(alone / "model.gguf")
    installed, _ = import_model(directory / "mine.json", Store.of(Directories.from_environment()), name="Mine")
    assert (installed.directory / "poet.gguf").is_file() and said(Path(installed.name)) == adapted
    assert installed.manifest is not None and installed.manifest.adapters == (("poet.gguf", 0.5),)
    read = parse_manifest(read_manifest(directory / "mine.json").dumps())
    assert read.adapters == (("poet.gguf", 0.5),) and read.files["lora_adapters_0"] == "poet.gguf"


def test_answers_of_another_adapter_are_not_reused_by_a_batch(directory: Path, leap_home: Path) -> None:
    def fingerprint() -> str:
        return fingerprint_of(str(directory / "mine.json"), ModelLoadingOptions(), variables={}, cwd=directory)

    before = fingerprint()
    write_random_adapter(directory / "poet.gguf", directory / "model.gguf", seed=2)
    assert fingerprint() != before


@pytest.mark.parametrize(
    ("adapters", "problem"),
    [
        ("poet.gguf", "lora_adapters: expected a list of files"),
        ([5], "lora_adapters[0]: 5 is no adapter"),
        (["a.gguf", {"path": "b.gguf", "scale": "much"}], "lora_adapters[1]: 'much' is not a finite number"),
        ([{"file": "a.gguf"}], "lora_adapters[0]"),
    ],
)
def test_invalid_adapters_are_named(adapters: object, problem: str) -> None:
    assert any(problem in str(each) for each in problems_of(manifest(adapters), "m.json") if each.is_error)


def test_a_missing_adapter_is_named(directory: Path) -> None:
    (directory / "poet.gguf").unlink()
    with pytest.raises(LeapModelNotFoundError, match=r"poet\.gguf"):
        resolve_local(str(directory / "mine.json"))

"""Installed models by their own names, aliases, and models that this llama.cpp cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from leap_core.errors import LeapModelLoadingError, LeapModelNotFoundError, LeapOptionsError
from leap_core.inference.llama.architectures import KNOWN, architecture_in
from leap_core.inference.llama.library import current_engine
from leap_core.models.aliases_and_endpoints import check_alias
from leap_core.models.catalogue import Catalogue
from leap_core.models.resolving import resolve_local
from leap_core.models.store import Store
from tests.support.hub import FakeHub

from .architectures import architecture_file
from .conftest import Downloads
from .gguf_file import STRING


@pytest.fixture
def installed(leap, make_gguf, leap_home: Path) -> Path:
    """My-Q4_0 and My-Q8_0, imported under a name."""
    for quantization in ("Q4_0", "Q8_0"):
        done = leap("models", "import", str(make_gguf(f"m-{quantization}.gguf")), "--name", "My")
        assert done.code == 0, done.stderr
    return leap_home / "models"


@pytest.mark.parametrize(
    ("reference", "directory"),
    [("My", "My-Q4_0"), ("my:q8_0", "My-Q8_0"), ("My-Q8_0", "My-Q8_0"), ("M", "My-Q4_0")],
)
def test_an_installed_model_answers_to_its_own_name(installed, reference: str, directory: str) -> None:
    assert resolve_local(reference).path.parent == installed / directory


def test_a_downloaded_file_answers_to_its_name(download: Downloads, hub: FakeHub, make_gguf) -> None:
    url = hub.add_plain("files/tiny-model-Q8_0.gguf", make_gguf("tiny-model-Q8_0.gguf"))
    download(url)
    assert resolve_local("tiny-model").path.name == "tiny-model-Q8_0.gguf"
    hub.add_file("someone/Other-GGUF", "Other-Q4_0.gguf", make_gguf("Other-Q4_0.gguf"))
    download("someone/Other-GGUF")
    assert resolve_local("other").path == resolve_local("someone--Other").path


def test_an_unknown_name_lists_installed_models(installed) -> None:
    with pytest.raises(LeapModelNotFoundError) as caught:
        resolve_local("Nobody")
    assert "installed: My-Q4_0, My-Q8_0" in caught.value.hint


def test_a_quantization_that_is_not_installed_is_not_replaced_by_another(installed) -> None:
    with pytest.raises(LeapModelNotFoundError):
        resolve_local("My:Q2_K")


def test_an_alias_stands_for_any_reference(installed, leap_home: Path, make_gguf) -> None:
    path = make_gguf("elsewhere.gguf")
    (leap_home / "config.toml").write_text(f'[aliases]\nCoder = "My"\nfile = "{path}"\nlfm2-350m = "My:Q8_0"\n')
    assert resolve_local("coder").path.parent.name == "My-Q4_0"
    assert resolve_local("coder:Q8_0").path.parent.name == "My-Q8_0"
    assert resolve_local("Coder", "Q8_0").path.parent.name == "My-Q8_0"
    assert resolve_local("file").path == path
    assert resolve_local("LFM2-350M").path.parent.name == "My-Q8_0", "the user's own name wins"


def test_a_broken_configuration_has_no_aliases(installed, leap_home: Path) -> None:
    (leap_home / "config.toml").write_text("[aliases\n")
    assert resolve_local("My").path.parent.name == "My-Q4_0"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a:b", "../x", "x.gguf", "builtin", "-x", ".x"])
def test_invalid_aliases_are_refused(name: str) -> None:
    with pytest.raises(LeapOptionsError):
        check_alias(name, "My")


def test_the_listed_architectures_are_those_of_the_library() -> None:
    binary = current_engine().libraries()["llama"].read_bytes()
    missing = [name for name in KNOWN if name.encode() + b"\0" not in binary]
    assert len(KNOWN) > 120 and missing == []


@pytest.mark.parametrize(
    ("architecture", "hint"), [("lfm3", "b11960"), ("lfm2-bidir", "again"), ("lfm9", "newer"), ("dflash", "without it")]
)
def test_an_unknown_architecture_is_refused_before_the_download(
    download: Downloads, hub: FakeHub, tmp_path: Path, architecture: str, hint: str
) -> None:
    path = _model_of(tmp_path, architecture)
    hub.add_file("me/New-GGUF", "New-F16.gguf", path)
    with pytest.raises(LeapModelLoadingError) as caught:
        download("me/New-GGUF")
    assert architecture in caught.value.message and hint in caught.value.hint
    assert hub.bytes_served() < 300_000 < path.stat().st_size
    assert Store(Path()).installed() == []


def test_an_installed_unknown_architecture_is_reported(leap, tmp_path: Path) -> None:
    path = _model_of(tmp_path, "lfm3")
    with pytest.raises(LeapModelLoadingError) as caught:
        from leap_core import Leap

        Leap.load(path)
    assert "'lfm3'" in caught.value.message and "b11960" in caught.value.hint
    done = leap("models", "info", str(path), "--format", "json")
    assert "b11960" in done.stdout


def _model_of(directory: Path, architecture: str) -> Path:
    file = architecture_file("llama")
    file.set("general.architecture", architecture.encode(), STRING)
    file.tensors[0].shape = (64, 20_000)
    path = file.write(directory / "New-F16.gguf")
    assert architecture_in(path.read_bytes()[:8192]) == architecture and path.stat().st_size > 5_000_000
    return path


def test_the_catalogue_says_what_it_cannot_run_and_what_is_replaced(leap) -> None:
    entries = {entry.name: entry for entry in Catalogue.load()}
    assert entries["LFM2-1.2B-Tool"].replaced_by == "LFM2.5-1.2B-Instruct"
    assert all(entry.replaced_by in entries for entry in entries.values() if entry.replaced_by)
    math = entries["LFM2-350M-Math"].sampling
    assert (math.temperature, math.top_p, math.min_p, math.repetition_penalty) == (0.6, 0.95, 0.1, 1.05)
    for name in ("LFM2.5-Embedding-350M", "LFM2.5-ColBERT-350M", "LFM2.5-24B-A2B", "LFM2.5-1.2B-JP-202606"):
        assert entries[name].needs is None and entries[name].bytes_in() > 10**8
    with pytest.raises(LeapModelLoadingError, match="LFM3-1.7B needs llama.cpp b11960"):
        resolve_local("LFM3-1.7B")
    shown = leap("models", "catalogue").stdout
    assert "needs llama.cpp b11960" in shown and "cannot run: no GGUF" in shown and "replaced by LFM2.5-350M" in shown


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("LFM2.5-Encoder-230M", "no GGUF"),
        ("LFM2.5-Encoder-350M", "no GGUF"),
        ("LFM2.5-2.6B-DSpark", "no draft models"),
        ("LFM2.5-8B-A1B-DSpark", "no draft models"),
        ("LFM2.5-1.2B-Instruct-DSpark", "no draft models"),
        ("LFM2.5-230M-Base", "leap models convert"),
        ("LFM2.5-350M-Base", "leap models convert"),
    ],
)
def test_unsupported_models_are_refused_before_the_hub_is_asked(
    download: Downloads, hub: FakeHub, name: str, reason: str
) -> None:
    with pytest.raises(LeapModelLoadingError, match=f"{name} cannot run: .*{reason}"):
        download(name)
    assert hub.log == []


def test_a_long_prefix_of_a_name_means_the_shortest_match() -> None:
    assert Catalogue.load().find("LFM2.5-8B").name == "LFM2.5-8B-A1B"
    with pytest.raises(LeapModelNotFoundError, match="could be LFM2.5-Encoder-230M"):
        Catalogue.load().find("LFM2.5-Enc")


@pytest.mark.slow
def test_the_catalogue_marks_what_is_installed(leap, make_gguf) -> None:
    assert leap("models", "import", str(make_gguf("LFM2-350M-Q4_0.gguf"))).code == 0
    line = next(line for line in leap("models", "catalogue").stdout.splitlines() if line.startswith("LFM2-350M "))
    assert " Q4_0 " in line

"""Models of other programs: found in their own stores, used in place, never changed."""

from __future__ import annotations

import builtins
import io
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from leap_core.errors import LeapModelLoadingError, LeapModelNotFoundError
from leap_core.inference.gguf.file_names import PROJECTOR
from leap_core.models.other_programs import DOCKER, LLAMA_CPP, OLLAMA, OtherPrograms
from leap_core.models.resolving import LocalModel, Registry
from leap_core.opening import load_local
from leap_core.system.directories import Directories
from tests.support.hub import FakeHub
from tests.support.tables import check_each

from .stores_of_others import OtherStores

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stores are laid out as on Linux")


@pytest.fixture
def stores(tmp_path: Path, leap_home: Path, make_gguf, monkeypatch: pytest.MonkeyPatch) -> OtherStores:
    """Empty stores, and an environment that leads to them."""
    stores = OtherStores(tmp_path / "user", make_gguf("any.gguf").read_bytes())
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("OLLAMA_MODELS", "LMSTUDIO_HOME", "JAN_DATA_FOLDER", "MODELS_PATH", "RAMALAMA_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("leap_core.models.other_programs.OLLAMA_SERVICES", ())
    for name, value in stores.variables.items():
        monkeypatch.setenv(name, value)
    return stores


def resolved(name: str, quantization: str | None = None) -> LocalModel:
    return Registry().resolve(name, quantization)


def listed() -> dict[str, Path]:
    return {model.name: model.path for model in Registry().others.models}


@pytest.mark.slow
def test_each_store_is_listed_and_each_model_is_found_by_its_name_and_nothing_is_changed(stores: OtherStores) -> None:
    expected = stores.fill()
    before = stores.digest()
    assert listed() == expected

    def check(name: str) -> None:
        local = resolved(name)
        assert local.path == expected[name] and local.owner

    check_each(expected, check)
    assert stores.digest() == before


@pytest.mark.slow
def test_all_spellings_of_a_name_are_found(stores: OtherStores) -> None:
    names = stores.fill()
    ways = {
        "LLAMA3.2:1B": "llama3.2:1b",
        "llama3.2-1b": "llama3.2:1b",
        "ollama/llama3.2:1b": "llama3.2:1b",
        "ollama://llama3.2:1b": "llama3.2:1b",
        "registry.ollama.ai/library/llama3.2:1b": "llama3.2:1b",
        "Llama-3.2-1B-Instruct": "llama3.2:1b",
        "me/mine": "me/mine:latest",
        "me/mine:latest": "me/mine:latest",
        "bartowski/Tiny-GGUF:Q8_0": "hf.co/bartowski/Tiny-GGUF:Q8_0",
        "hf.co/bartowski/tiny-gguf:q8_0": "hf.co/bartowski/Tiny-GGUF:Q8_0",
        "Nine-9B": "unsloth/Nine-9B-GGUF:Q4_K_M",
        "nine-9b@q4_k_m": "unsloth/Nine-9B-GGUF:Q4_K_M",
        "Nine-9B-Q4_K_M": "unsloth/Nine-9B-GGUF:Q4_K_M",
        "lmstudio/unsloth/Nine-9B-GGUF": "unsloth/Nine-9B-GGUF:Q4_K_M",
        "my model": "My Lab/My Model",
        "My-Model": "My Lab/My Model",
        "Flat": "ggml-org/Flat-GGUF:Q4_0",
        "new-q8_0": "ggml-org/New-GGUF:Q8_0",
        "o/hub-gguf": "o/Hub-GGUF:Q6_K",
        "huggingface/o/Hub-GGUF": "o/Hub-GGUF:Q6_K",
        "jan/janhq/jan-v9": "janhq/jan-v9",
        "ghost-7b": "ghost-7b-Q4_0",
        "ai/dock:360M-Q4_K_M": "ai/dock:360M-Q4_K_M",
        "docker.io/ai/dock:360M-Q4_K_M": "ai/dock:360M-Q4_K_M",
        "ram:Q5_K_M": "lab/ram:Q5_K_M",
    }
    check_each(ways, lambda way: _same(resolved(way).path, names[ways[way]]))


def _same(found: Path, expected: Path) -> None:
    assert found == expected, f"{found} is not {expected}"


def test_leaps_own_models_come_first_and_a_program_can_be_named(stores: OtherStores, leap, make_gguf) -> None:
    own = stores.ollama("registry.ollama.ai/library/mine")
    assert leap("models", "import", str(make_gguf("Mine-Q4_0.gguf"))).code == 0
    assert resolved("mine").owner is None
    assert resolved("ollama/mine").path == own


def test_a_tag_may_be_left_out_where_it_is_clear(stores: OtherStores) -> None:
    only = stores.ollama("registry.ollama.ai/library/qq", "1b")
    assert resolved("qq").path == only
    stores.ollama("registry.ollama.ai/library/qq", "3b")
    with pytest.raises(LeapModelNotFoundError, match=r"'qq' could be qq:1b, qq:3b \(ollama\)"):
        resolved("qq")


def test_a_name_with_another_size_is_another_model(stores: OtherStores) -> None:
    stores.ollama("registry.ollama.ai/library/qq3", "1.7b")
    with pytest.raises(LeapModelNotFoundError):
        resolved("qq3:17b")
    with pytest.raises(LeapModelNotFoundError):
        resolved("qq:31.7b")


def test_the_usual_quantization_of_a_repository_is_used(stores: OtherStores) -> None:
    stores.lm_studio("a", "M-GGUF", "M-Q8_0.gguf", "M-Q4_K_M.gguf", "mmproj-M-F16.gguf")
    found = resolved("M")
    assert found.path.name == "M-Q4_K_M.gguf"
    assert found.mm_proj_path is not None and found.kind == "vision"
    assert resolved("M", "Q8_0").path.name == "M-Q8_0.gguf"


def test_projectors_and_adapters_of_ollama_are_used(stores: OtherStores) -> None:
    stores.ollama("registry.ollama.ai/library/sees", more={"projector": stores.gguf, "adapter": stores.gguf + b"a"})
    model = next(iter(Registry().others.models))
    assert set(model.files) == {PROJECTOR} and len(model.adapters) == 1
    local = resolved("sees")
    assert local.mm_proj_path == model.files[PROJECTOR]
    assert [adapter.path for adapter in local.adapters] == list(model.adapters)


def test_unloadable_models_are_not_listed(stores: OtherStores) -> None:
    stores.ollama("registry.ollama.ai/library/tensors", more={"tensor": b"x"})
    stores.write(".ollama/models/manifests/registry.ollama.ai/library/cloud/latest", '{"layers": []}')
    stores.ollama("registry.ollama.ai/library/short").write_bytes(b"GGUF")
    stores.lm_studio("a", "half", "half-00001-of-00003.gguf", "half-00002-of-00003.gguf")
    stores.lm_studio("a", "loading", "loading-Q4_0.gguf.part")
    stores.hub(".cache/huggingface/hub", "o/gone", "gone-Q4_0.gguf").resolve().unlink()
    assert listed() == {}


def test_hostile_stores_are_skipped(stores: OtherStores) -> None:
    good = stores.ollama("registry.ollama.ai/library/good")
    manifests = ".ollama/models/manifests/registry.ollama.ai/library"
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../../../etc/passwd"}
    for number, content in enumerate(
        ["", "[]", "{", '{"layers": 5}', '{"layers": [7]}', "[" * 100_000, json.dumps({"layers": [layer]}), "\0" * 10]
    ):
        stores.write(f"{manifests}/bad{number}/latest", content)
    stores.write(f"{manifests}/huge/latest", " " * 5_000_000)
    (stores.home / manifests / "loop").symlink_to(stores.home / manifests)
    (stores.home / manifests / "itself").symlink_to(stores.home / manifests / "itself")
    (stores.home / manifests / "good" / "gone").symlink_to("nowhere")
    os.mkfifo(stores.home / manifests / "good" / "pipe")
    stores.docker("x" * 1_000_000 + ":latest")
    stores.docker("line\nbreak:latest")
    index = stores.home / ".docker/models/models.json"
    entries = json.loads(index.read_text())["models"]
    index.write_text(json.dumps({"models": [*entries, {**entries[0], "tags": 5}]}))
    ref = {"hash": "h", "files": [{"type": "gguf", "name": str(good)}]}
    stores.write(".local/share/ramalama/store/refs/latest.json", json.dumps(ref))
    stores.write(".lmstudio/settings.json", '{"downloadsFolder": 5}')
    (stores.home / ".lmstudio" / "models").mkdir()
    (stores.home / ".lmstudio" / "models" / "up").symlink_to(stores.home)
    stores.write(".lmstudio-home-pointer", "\0")
    stores.write(".local/share/Jan/data/llamacpp/models/m/model.yml", "model_path: \0\nmmproj_path:\n")
    stores.write(".cache/huggingface/hub/models--o--m/refs/main", b"\xff\xfe")
    assert [model.path for model in Registry().others.models if model.program == OLLAMA] == [good]
    assert {model.program for model in Registry().others.models} == {OLLAMA}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
def test_unreadable_folders_are_skipped(stores: OtherStores) -> None:
    good = stores.lm_studio("a", "good", "good-Q4_0.gguf")
    closed = stores.lm_studio("b", "closed", "closed-Q4_0.gguf").parent.parent
    closed.chmod(0)
    try:
        assert listed() == {"a/good:Q4_0": good}
    finally:
        closed.chmod(0o755)


def test_folders_that_raise_errors_are_skipped(stores: OtherStores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for whoever may read everything."""
    good = stores.lm_studio("a", "good", "good-Q4_0.gguf")
    stores.lm_studio("b", "closed", "closed-Q4_0.gguf")
    scandir = os.scandir

    def refusing(path: str) -> object:
        if os.path.basename(path) == "b":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr("leap_core.models.other_programs.os.scandir", refusing)
    assert listed() == {"a/good:Q4_0": good}


@pytest.mark.slow
def test_listing_500_models_opens_no_weights(stores: OtherStores, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(250):
        stores.ollama(f"registry.ollama.ai/library/model{number}", "1b")
        stores.lm_studio("lab", f"Model{number}-GGUF", f"Model{number}-Q4_K_M.gguf")
    opened: list[str] = []
    plain_open = io.open

    def counted(file, *args, **kwargs):
        opened.append(str(file))
        return plain_open(file, *args, **kwargs)

    monkeypatch.setattr(io, "open", counted)
    monkeypatch.setattr(builtins, "open", counted)
    assert len(Registry().others.models) == 500
    assert len(opened) <= 250 + 5, "a manifest each of ollama's, and a few settings"
    assert not [file for file in opened if "/blobs/" in file or file.endswith(".gguf")]


def test_models_of_other_programs_can_be_turned_off(
    stores: OtherStores, leap_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores.fill()
    monkeypatch.setenv("LEAP_OTHER_PROGRAMS", "no")
    assert listed() == {}
    monkeypatch.delenv("LEAP_OTHER_PROGRAMS")
    assert listed()
    leap_home.mkdir(exist_ok=True)
    (leap_home / "config.toml").write_text("other_programs = false\n")
    assert listed() == {}


def test_variables_of_other_programs_set_their_folders(stores: OtherStores, tmp_path: Path) -> None:
    moved = OtherStores(tmp_path / "moved", stores.gguf)
    moved.ollama("registry.ollama.ai/library/a")
    moved.lm_studio("l", "m", "lm-Q4_0.gguf")
    moved.jan("j")
    moved.docker("ai/d:latest")
    moved.hub("cache", "o/New-GGUF", "New-Q8_0.gguf")
    variables = {
        "LEAP_OTHER_PROGRAMS": "1",
        "OLLAMA_MODELS": str(moved.home / ".ollama/models"),
        "LMSTUDIO_HOME": str(moved.home / ".lmstudio"),
        "JAN_DATA_FOLDER": str(moved.home / ".local/share/Jan/data"),
        "MODELS_PATH": str(moved.home / ".docker/models"),
        "LLAMA_CACHE": str(moved.home / "cache"),
    }
    directories = Directories.from_environment({"LEAP_HOME": str(tmp_path / "empty")})
    found = {(model.program, model.name) for model in OtherPrograms(variables, directories).models}
    assert found == {
        (OLLAMA, "a:latest"),
        ("LM Studio", "l/m:Q4_0"),
        ("Jan", "j"),
        (DOCKER, "ai/d:latest"),
        (LLAMA_CPP, "o/New-GGUF:Q8_0"),
    }


def test_a_file_that_llama_cpp_does_not_read_is_explained(stores: OtherStores, monkeypatch) -> None:
    stores.fill()
    monkeypatch.setattr(
        "leap_core.inference.trial.verdicts.require_sound",
        lambda *_args, **_kwargs: (_ for _ in ()).throw(LeapModelLoadingError("a tensor is missing")),
    )
    from leap_core.conversation.options import ModelLoadingOptions

    with pytest.raises(LeapModelLoadingError, match="a tensor is missing") as caught:
        load_local(resolved("llama3.2:1b"), ModelLoadingOptions())
    assert "belongs to ollama" in caught.value.hint
    assert "leap download bartowski/Llama-3.2-1B-Instruct-GGUF" in caught.value.hint


@pytest.mark.slow
def test_the_command_line_lists_describes_and_never_removes_them(stores: OtherStores, leap, tmp_path: Path) -> None:
    stores.fill()
    before = stores.digest()
    leap.variables |= stores.variables
    done = leap("models", "list", "--all", "--format", "jsonl")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["owner"] for row in rows} == {
        *("ollama", "LM Studio", "llama.cpp", "Hugging Face", "Jan", "GPT4All", "Docker Model Runner", "RamaLama")
    }
    assert all(row["bytes"] for row in rows)
    assert "llama3.2:1b" not in leap("models", "list").stdout
    info = json.loads(leap("models", "info", "llama3.2:1b", "--format", "json").stdout)
    assert info["owner"] == "ollama" and "Go's language" in info["note"]
    refused = leap("models", "remove", "llama3.2:1b", "--yes")
    assert refused.code == 2 and "belongs to ollama" in refused.stderr
    assert leap("models", "remove", "--all", "--yes").code == 0
    assert stores.digest() == before


@pytest.mark.slow
def test_a_download_uses_what_another_program_has(stores: OtherStores, leap, monkeypatch: pytest.MonkeyPatch) -> None:
    found = stores.ollama("registry.ollama.ai/library/qwen3", "0.6b")
    before = stores.digest()
    problems: list[str | None] = [None, None, None, None, "a tensor is missing", None]
    monkeypatch.setattr(
        "leap_core.models.download.downloading.problem_after_fetching", lambda *_args, **_more: problems.pop(0)
    )
    with FakeHub() as hub:
        hub.add_file("unsloth/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q4_K_M.gguf", stores.gguf)
        leap.variables |= stores.variables | hub.environment
        for name in ("qwen3:0.6b", "ollama/qwen3:0.6b"):
            done = leap("download", name)
            assert (done.code, done.stdout) == (0, f"{found}\n"), done.stderr
            assert "ollama has it on this machine, and leap uses it in place; --replace downloads it" in done.stderr
        planned = leap("download", "qwen3:0.6b", "--dry-run")
        assert planned.code == 0 and "nothing would be fetched" in planned.stderr
        later = leap("download", "qwen3:0.6b", "--background", "--format", "json")
        assert later.code == 0 and json.loads(later.stdout)["path"] == str(found)
        assert not hub.bytes_served()
        own = leap("download", "qwen3:0.6b")
        assert own.code == 0 and "and it cannot be used: a tensor is missing" in own.stderr, own.stderr
        assert own.stdout.strip().endswith("Qwen3-0.6B-Q4_K_M.gguf") and hub.bytes_served() and not problems
    assert stores.digest() == before


@pytest.mark.slow
def test_ctrl_c_while_such_a_model_is_tried_stops_the_download(stores: OtherStores, leap, monkeypatch) -> None:
    stores.ollama("registry.ollama.ai/library/qwen3", "0.6b")

    def interrupted(*_args: object, **_more: object) -> str:
        signal.raise_signal(signal.SIGINT)
        return "the trial was stopped"

    monkeypatch.setattr("leap_core.models.download.downloading.problem_after_fetching", interrupted)
    with FakeHub() as hub:
        hub.add_file("unsloth/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q4_K_M.gguf", stores.gguf)
        leap.variables |= stores.variables | hub.environment
        done = leap("download", "qwen3:0.6b")
    assert done.code == 130 and "the same command resumes" in done.stderr
    assert "cannot be used" not in done.stderr and not hub.bytes_served()

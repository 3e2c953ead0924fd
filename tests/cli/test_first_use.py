"""The first use of a model that is known and not here: asked for, downloaded, answered; else one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from leap_core.models.builtin import model_path
from leap_core.models.resolving import resolve_local
from leap_core.testing import ScriptedModelRunner
from tests.support.hub import FakeHub

REPO, FILE = "unsloth/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q4_K_M.gguf"
LINE = ("-m", "qwen3:0.6b", "Hi.")


@pytest.fixture
def hub(leap, tmp_path: Path):
    """A hub with one model, and a command line that has to find its files."""
    with FakeHub() as hub:
        hub.add_file(REPO, FILE, model_path())
        home = {"HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        leap.variables |= hub.environment | home

        def load(reference: str, _options: object) -> ScriptedModelRunner:
            found = resolve_local(reference, variables={"LEAP_HOME": str(leap.home), **leap.variables})
            return ScriptedModelRunner("Hello.", model_id=found.model_id)

        leap.load = load
        yield hub


def at_terminal(leap, answer: str, *arguments: str):
    return leap(*(arguments or LINE), stdin=f"{answer}\n", terminal=True, stdin_terminal=True)


@pytest.mark.slow
def test_a_terminal_is_asked_once_and_then_it_answers(leap, hub: FakeHub) -> None:
    done = at_terminal(leap, "")
    assert done.code == 0 and "Hello." in done.stdout, done.stderr
    assert f"qwen3:0.6b ({REPO}, Q4_K_M, " in done.stderr
    assert "license Apache-2.0) is not on this machine; download it? [Y/n]" in done.stderr
    assert (leap.home / "models" / "Qwen3-0.6B-Q4_K_M" / FILE).is_file()
    again = at_terminal(leap, "")
    assert again.code == 0 and "download it?" not in again.stderr


@pytest.mark.slow
def test_answering_no_downloads_nothing(leap, hub: FakeHub) -> None:
    done = at_terminal(leap, "n")
    assert done.code == 3 and "leap download qwen3:0.6b" in " ".join(done.stderr.split())
    assert not hub.bytes_served(FILE) and not (leap.home / "models").exists()


@pytest.mark.slow
def test_a_pipe_gets_one_line_and_auto_download_decides(leap, hub: FakeHub) -> None:
    done = leap(*LINE)
    assert (done.code, done.stdout) == (3, "") and done.stderr.count("\n") == 1
    assert "the model qwen3:0.6b is not on this machine" in done.stderr and "leap download qwen3:0.6b" in done.stderr
    leap.variables["LEAP_AUTO_DOWNLOAD"] = "no"
    assert "download it?" not in at_terminal(leap, "y").stderr
    assert not hub.bytes_served(FILE)
    del leap.variables["LEAP_AUTO_DOWNLOAD"]
    assert leap("config", "set", "auto_download", "yes").code == 0
    done = leap(*LINE)
    assert done.code == 0 and "Hello." in done.stdout, done.stderr


def test_an_invalid_auto_download_is_refused(leap, hub: FakeHub) -> None:
    leap.variables["LEAP_AUTO_DOWNLOAD"] = "perhaps"
    done = leap(*LINE)
    assert done.code == 2 and "LEAP_AUTO_DOWNLOAD" in done.stderr and "ask, yes, no" in done.stderr


@pytest.mark.slow
def test_an_unreachable_hub_is_a_one_line_error(leap, hub: FakeHub) -> None:
    leap.variables["HF_HUB_OFFLINE"] = "1"
    done = at_terminal(leap, "y")
    assert done.code == 3 and "is not on this machine" in done.stderr and "download it?" not in done.stderr

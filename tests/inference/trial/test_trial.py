"""The trial of model files: real llama.cpp in real child processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leap_core import Leap
from leap_core.errors import LeapModelLoadingError
from leap_core.inference.trial.trial_child import CRASH, HANG, REFUSED, SOUND, Limits, Subject, run_child
from leap_core.inference.trial.verdicts import require_sound, verdict_on
from leap_core.models.importing import import_model
from leap_core.models.store import Store
from tests.models.conftest import Downloads
from tests.models.gguf_file import STRING, GGUFFile, Value
from tests.support.hub import FakeHub
from tests.support.random_models import TINY_LLAMA, write_random_model

SHORT = Limits(cpu_seconds=2, seconds=60, memory_bytes=6 * 1024**3)


@pytest.fixture(autouse=True)
def trials_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEAP_TRY_MODELS")


@pytest.fixture(scope="module")
def lfm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("models") / "lfm2-F16.gguf")


@pytest.fixture
def mutant(lfm2: Path, tmp_path: Path):
    """Change a sound model's file, and write it."""

    def make(change) -> Path:
        file = GGUFFile.read(lfm2)
        change(file)
        return file.write(tmp_path / "mutant-F16.gguf")

    return make


def retype(name: bytes, kind: int):
    def change(file: GGUFFile) -> None:
        for tensor in file.tensors:
            if tensor.name == name:
                tensor.kind = kind

    return change


def token_with_null(file: GGUFFile) -> None:
    file.values[b"tokenizer.ggml.tokens"].value[400] = b"a\0b"


def test_writing_a_file_again_changes_nothing(lfm2: Path, tmp_path: Path) -> None:
    copy = GGUFFile.read(lfm2).write(tmp_path / "copy.gguf")
    assert copy.read_bytes() == lfm2.read_bytes()


@pytest.mark.slow
def test_a_valid_model_is_tried_once(lfm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = verdict_on(Subject(lfm2))
    assert verdict is not None and verdict.outcome == SOUND and verdict.template is None
    assert verdict.facts["answers_numbers"] and verdict.facts["memory_bytes"] > 10**6
    monkeypatch.setattr(sys, "executable", "/nowhere/python")  # no process can start from here on
    assert verdict_on(Subject(lfm2)) == verdict
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(lfm2.read_bytes())
    assert verdict_on(Subject(copy)) == verdict
    with pytest.raises(LeapModelLoadingError, match="cannot try"):
        verdict_on(Subject(lfm2), again=True)


@pytest.mark.slow
def test_a_changed_file_is_tried_again(lfm2: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(lfm2.read_bytes())
    assert verdict_on(Subject(path)).outcome == SOUND
    before = path.stat()
    file = GGUFFile.read(lfm2)
    retype(b"token_embd.weight", 27)(file)
    file.write(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert verdict_on(Subject(path)).outcome == CRASH


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        retype(b"blk.0.ffn_up.weight", 26),
        retype(b"blk.0.ffn_up.weight", 28),
        retype(b"blk.1.attn_norm.weight", 1),
        retype(b"blk.0.shortconv.conv.weight", 1),
        token_with_null,
        lambda file: file.set(".expert_count", 4),
        lambda file: file.set(".rope.scaling.type", b"sideways", STRING),
        lambda file: file.set(".rope.dimension_count", 9999),
    ],
    ids=["I32", "F64", "norm", "conv", "null", "experts", "scaling", "rope"],
)
def test_a_crash_of_llama_cpp_ends_only_the_child(mutant, change) -> None:
    path = mutant(change)
    verdict = verdict_on(Subject(path))
    assert verdict.outcome in (CRASH, REFUSED, SOUND)
    if verdict.outcome == SOUND:  # then it is to work here too
        with Leap.load(path) as runner:
            assert list(runner.create_conversation().generate_response("Hello"))
        return
    with pytest.raises(LeapModelLoadingError) as caught:
        Leap.load(path)
    assert "\n" not in caught.value.message and str(path) in caught.value.message


@pytest.mark.slow
def test_endless_computing_is_stopped(mutant) -> None:
    path = mutant(lambda file: file.set(".rope.dimension_count", 0))
    verdict = run_child(Subject(path), SHORT, None)
    assert (verdict.outcome, verdict.stage) == (HANG, "computing"), verdict


@pytest.mark.slow
def test_memory_is_bounded(lfm2: Path) -> None:
    verdict = run_child(Subject(lfm2), Limits(20, 60, 100 * 1024**2), None)
    assert verdict.outcome in (REFUSED, CRASH, "memory")


@pytest.mark.slow
def test_an_endless_template_disables_only_chat(mutant) -> None:
    loops = "{%- for a in range(99999) -%}{%- for b in range(99999) -%}{%- for c in range(99999) -%}{%- endfor -%}"
    source = (loops + "{%- endfor -%}{%- endfor -%}").encode()
    path = mutant(lambda file: file.values.update({b"tokenizer.chat_template": Value(STRING, source)}))
    verdict = run_child(Subject(path), SHORT, None)
    assert verdict.outcome == SOUND and verdict.template


def test_a_damaged_header_is_refused_without_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(50))
    with pytest.raises(LeapModelLoadingError, match="GGUF version 0"):
        require_sound(Subject(path))


def test_trials_can_be_turned_off(lfm2: Path, monkeypatch: pytest.MonkeyPatch, leap_home: Path) -> None:
    monkeypatch.setenv("LEAP_TRY_MODELS", "0")
    assert verdict_on(Subject(lfm2)) is None
    assert not (leap_home / "cache" / "trials").exists()


@pytest.mark.slow
def test_an_unwritable_home_does_not_prevent_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_random_model(tmp_path / "llama.gguf", TINY_LLAMA)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LEAP_HOME", str(tmp_path / "file"))
    assert verdict_on(Subject(path)).outcome == SOUND


@pytest.mark.slow
def test_the_child_ends_with_its_parent(mutant) -> None:
    path = mutant(lambda file: file.set(".rope.dimension_count", 0))
    code = f"from leap_core import Leap; Leap.load({str(path)!r})"
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        _wait_for(lambda: _computing(str(path)))
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    _wait_for(lambda: not _computing(str(path)))


def _computing(path: str) -> bool:
    """Whether a process other than the parent has the file mapped."""
    for entry in Path("/proc").iterdir():
        try:
            is_trial = entry.name.isdigit() and b"system.child" in (entry / "cmdline").read_bytes()
            if is_trial and path in (entry / "maps").read_text():
                return True
        except OSError:
            continue
    return False


def _wait_for(condition) -> None:
    end = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
def test_an_import_ends_with_the_trial(lfm2: Path, mutant, leap_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(leap_home / "models")
    with pytest.raises(LeapModelLoadingError, match="not safe to load"):
        import_model(mutant(retype(b"blk.0.ffn_up.weight", 26)), store)
    assert store.installed() == []
    installed, _ = import_model(lfm2, store)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")  # the first use needs no trial any more
    assert verdict_on(Subject(installed.path)).is_sound


@pytest.mark.slow
def test_a_download_ends_with_the_trial(
    lfm2: Path, mutant, hub: FakeHub, download: Downloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add_file("me/Good-GGUF", "Good-F16.gguf", lfm2)
    hub.add_file("me/Bad-GGUF", "Bad-F16.gguf", mutant(retype(b"blk.0.ffn_up.weight", 26)))
    bad = download("me/Bad-GGUF")
    assert "not safe to load" in download.notices
    good = download("me/Good-GGUF")
    assert download.notices == ""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert verdict_on(Subject(good.path)).is_sound
    assert verdict_on(Subject(bad.path)).outcome == CRASH


@pytest.mark.slow
def test_models_check_says_what_it_found(leap, lfm2: Path, mutant) -> None:
    done = leap("models", "check", str(lfm2), "--format", "json")
    assert done.code == 0 and json.loads(done.stdout)[0]["verdict"] == "sound"
    bad = mutant(retype(b"blk.0.ffn_up.weight", 26))
    done = leap("models", "check", str(lfm2), str(bad), "--format", "json")
    assert done.code == 3
    assert [record["verdict"] for record in json.loads(done.stdout)] == ["sound", "crash"]
    assert "1 of 2 models cannot be loaded" in done.stderr and "Traceback" not in done.stderr

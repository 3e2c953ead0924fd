"""The store: what is in it, whether it is sound, and what may be removed."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from leap_core.errors import LeapError, LeapModelLoadingError, LeapModelNotFoundError
from leap_core.inference.gguf.header import read_gguf_header
from leap_core.models import model_files
from leap_core.models.importing import import_model
from leap_core.models.model_files import collect, rubbish_in, verify
from leap_core.models.resolving import resolve_local
from leap_core.models.store import LeapModelInUseError, Store, hold
from leap_core.system.directories import Directories
from leap_core.system.files import place
from leap_core.system.locks import Busy, is_locked, locked

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def store(variables: dict[str, str]) -> Store:
    return Store.of(Directories.from_environment())


@pytest.fixture
def imported(store, make_gguf):
    make_gguf("mmproj-LFM2-VL-450M-F16.gguf", "clip")
    return import_model(make_gguf("LFM2-VL-450M-Q4_0.gguf"), store)[0]


def test_importing_includes_companions_and_takes_no_space(imported, store, tmp_path):
    assert imported.name == "LFM2-VL-450M-Q4_0" and imported.state == "ready"
    original = tmp_path / "made" / "LFM2-VL-450M-Q4_0.gguf"
    assert imported.path.samefile(original)
    found = resolve_local("LFM2-VL-450M")
    assert found.path == imported.path and found.mm_proj_path.parent == imported.directory
    assert found.kind == "vision" and found.sampling.min_p == 0.15
    assert [model.name for model in store.installed()] == ["LFM2-VL-450M-Q4_0"]


def test_importing_a_copy_under_another_name(store, make_gguf):
    source = make_gguf("mine.gguf", file_type=7)
    installed, how = import_model(source, store, name="My model", mode="copy")
    assert (installed.name, how) == ("My-model-Q8_0", "copy")
    assert not installed.path.samefile(source) and installed.path.read_bytes() == source.read_bytes()
    assert resolve_local("my-model-q8_0").path == installed.path
    with pytest.raises(LeapError, match="there is a model My-model-Q8_0 already"):
        import_model(source, store, name="My model")
    import_model(source, store, name="My model", force=True)


def test_importing_an_invalid_model_is_refused(store, make_gguf, tmp_path):
    with pytest.raises(LeapModelNotFoundError):
        import_model(tmp_path / "nowhere.gguf", store)
    with pytest.raises(LeapModelLoadingError, match="is a projector"):
        import_model(make_gguf("mmproj-x.gguf", "clip"), store)
    (tmp_path / "bad.gguf").write_bytes(b"not a model")
    with pytest.raises(LeapModelLoadingError, match="not a GGUF file"):
        import_model(tmp_path / "bad.gguf", store)
    assert store.installed() == []


def test_verifying_finds_a_flipped_bit_and_a_missing_file(imported):
    assert [check.problem for check in verify(imported)] == [None, None]
    assert all(check.hashed for check in verify(imported))
    data = bytearray(imported.path.read_bytes())
    data[-1] ^= 1
    imported.path.unlink()
    imported.path.write_bytes(data)
    imported.files["multimodal_projector"].unlink()
    problems = [check.problem for check in verify(imported)]
    assert "its SHA-256 is" in problems[0] and problems[1] == "it is missing"
    assert imported.state == "damaged"


def test_files_put_there_by_hand_count(store, make_gguf):
    directory = store.root / "Something-Q4_0"
    directory.mkdir(parents=True)
    os.link(make_gguf("whatever-Q4_0.gguf"), directory / "whatever-Q4_0.gguf")
    (model,) = store.installed()
    assert (model.name, model.state, model.path.name) == ("Something-Q4_0", "ready", "whatever-Q4_0.gguf")
    assert resolve_local("something-q4_0").path == model.path
    assert [(check.problem, check.hashed) for check in verify(model)] == [(None, False)]


@pytest.mark.slow
def test_a_loaded_model_is_not_removed(imported, store):
    with hold(imported.path) as first, hold(imported.path):
        assert imported.in_use
        with pytest.raises(LeapModelInUseError, match="has it loaded"):
            store.remove(imported)
        first.close()
        with pytest.raises(LeapModelInUseError):
            store.remove(imported)
    assert not imported.in_use
    assert store.remove(imported) > 0 and store.installed() == [] and not imported.directory.exists()


def test_a_hold_ends_with_its_process(imported, store):
    code = (
        "import sys, os; from pathlib import Path; from leap_core.models.store import hold\n"
        "held = hold(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(imported.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LeapModelInUseError):
            store.remove(imported)
        holder.kill()
        holder.wait()
    store.remove(imported)


def test_locking_files_outside_the_store_does_nothing(make_gguf):
    path = make_gguf("x.gguf")
    with hold(path):
        assert sorted(other.name for other in path.parent.iterdir()) == ["x.gguf"]


def test_a_model_that_is_being_written_is_not_removed(imported, store):
    with locked(imported.directory / ".lock"), pytest.raises(LeapModelInUseError, match="is downloading it"):
        store.remove(imported)


def test_gc_removes_what_unfinished_downloads_left(imported, store):
    unfinished = store.root / "Half-Q4_0"
    unfinished.mkdir()
    (unfinished / "Half-Q4_0.gguf.part").write_bytes(bytes(100_000))
    (unfinished / "Half-Q4_0.gguf.part.state").write_bytes(b"{}\n..")
    (imported.directory / ".x.json.new").write_bytes(b"{")
    (store.root / "Empty-Q4_0").mkdir()
    (model,) = [model for model in store.installed() if model.name == "Half-Q4_0"]
    assert model.state == "partial"
    with locked(unfinished / ".lock"):
        assert not any(item.path.parent == unfinished for item in rubbish_in(store))
    removed = {item.path.relative_to(store.root).as_posix() for item in collect(store)}
    assert removed >= {"Half-Q4_0/Half-Q4_0.gguf.part", "LFM2-VL-450M-Q4_0/.x.json.new", "Empty-Q4_0", "Half-Q4_0"}
    assert [model.name for model in store.installed()] == [imported.name] and imported.state == "ready"
    assert list(rubbish_in(store)) == []


def test_gc_keeps_files_that_appear_while_it_runs(store, make_gguf, monkeypatch):
    (store.root / "Tiny-Q8_0").mkdir(parents=True)
    source = make_gguf("mine.gguf", file_type=7)

    def found_before_an_import(_store):
        yield from list(rubbish_in(store))
        import_model(source, store, name="Tiny", mode="copy")

    monkeypatch.setattr(model_files, "rubbish_in", found_before_an_import)
    assert collect(store) == []
    assert [(model.name, model.state) for model in store.installed()] == [("Tiny-Q8_0", "ready")]


def test_two_concurrent_gcs_remove_nothing_else(imported, store, monkeypatch):
    (store.root / "Empty-Q8_0").mkdir()

    def found_before_another_removes_it(_store):
        yield from list(rubbish_in(store))
        (store.root / "Empty-Q8_0").rmdir()

    monkeypatch.setattr(model_files, "rubbish_in", found_before_another_removes_it)
    collect(store)
    assert [path.name for path in store.root.iterdir()] == [imported.name]


def test_removing_a_link_to_a_model_leaves_the_model(imported, store, tmp_path):
    elsewhere = imported.directory.rename(tmp_path / imported.name)
    (store.root / imported.name).symlink_to(elsewhere)
    assert store.remove(store.named(imported.name)) == 0
    assert store.installed() == [] and len(list(elsewhere.glob("*.gguf"))) == 2


LOOK = """
import sys
from pathlib import Path
from leap_core.system.locks import is_locked
print(sum(is_locked(Path(sys.argv[1]), shared=bool(sys.argv[2])) for _ in range(int(sys.argv[3]))))
"""


def looker(path: Path, times: int, shared: bool = False) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", LOOK, str(path), "1" if shared else "", str(times)]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_checks_of_a_lock_do_not_block_each_other(tmp_path, shared):
    (tmp_path / "lock").touch()
    lookers = [looker(tmp_path / "lock", 2000, shared) for _ in range(3)]
    assert [int(one.communicate()[0]) for one in lookers] == [0, 0, 0]


def test_who_waits_for_a_lock_tries_again_however_late_it_is(tmp_path, monkeypatch):
    path, held = tmp_path / "lock", ExitStack()
    clock = iter(range(0, 10_000, 60))  # a minute passes between two looks at the clock
    with held:
        held.enter_context(locked(path))
        monkeypatch.setattr("leap_core.system.locks.time.monotonic", lambda: float(next(clock)))
        with locked(path, wait=0.2, while_waiting=held.close):
            pass
        with locked(path), pytest.raises(Busy), locked(path, wait=0.2):
            pass


@pytest.mark.slow
def test_a_model_stays_locked_while_others_check(imported):
    path = imported.directory / ".in-use"
    path.touch()
    missed = 0
    with looker(path, 8_000) as one:
        while one.poll() is None:
            with hold(imported.path), suppress(Busy), locked(path, wait=False):
                missed += 1
    assert missed == 0


def test_a_lock_where_no_file_can_be_made_is_an_error(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "nowhere" / "lock")
    with pytest.raises(FileNotFoundError), locked(tmp_path / "lock"):
        pass


def test_locks_are_exclusive_or_shared(tmp_path):
    path = tmp_path / "lock"
    assert not is_locked(path)
    with locked(path, shared=True), locked(path, shared=True, wait=False):
        assert is_locked(path)
        with pytest.raises(Busy), locked(path, wait=False):
            pass
    with locked(path, wait=False), pytest.raises(Busy), locked(path, shared=True, wait=False):
        pass


def test_waiting_for_a_lock_can_be_cancelled(tmp_path):
    def give_up() -> None:
        raise KeyboardInterrupt

    lock = tmp_path / "lock"
    with locked(lock), pytest.raises(KeyboardInterrupt), locked(lock, while_waiting=give_up):
        pass


def test_placing_a_file_falls_back_to_a_copy(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"content")
    monkeypatch.setattr(os, "link", lambda *_paths: (_ for _ in ()).throw(OSError(18, "another disk")))
    assert place(tmp_path / "a", tmp_path / "b") in ("copy", "reflink")
    assert (tmp_path / "b").read_bytes() == b"content"
    assert place(tmp_path / "a", tmp_path / "c", allow_link=True) in ("link", "reflink")
    with pytest.raises(OSError):
        place(tmp_path / "a", tmp_path / "d", mode="hard link")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_headers_are_read_from_the_store(imported):
    assert read_gguf_header(imported.path).context_length == 32768

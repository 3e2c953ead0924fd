"""Prompt snapshots: found by content, bounded, shared between processes, and never a wrong answer when damaged."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from leap_core.conversation.options import CacheOptions
from leap_core.inference.engine.scheduler import Scheduler
from leap_core.inference.engine.snapshots import HEAD, MAGIC, SnapshotStore

from .conftest import request
from .test_scheduler import run, words

Make = Callable[..., Scheduler]
SCOPE = b"s" * 16


def files(path: Path) -> list[Path]:
    return sorted(path.glob("*/*.snapshot"))


def store(path: Path, scope: bytes = SCOPE, **given: int) -> SnapshotStore:
    return SnapshotStore(CacheOptions(path=path, enabled=True, **given), scope)  # type: ignore[arg-type]


def find(snapshots: SnapshotStore, keys: list[int], *positions: int) -> tuple[int, bytes] | None:
    return next(snapshots.find(keys, positions, above=0), None)


def test_the_longest_known_prefix_is_found(tmp_path: Path) -> None:
    first = store(tmp_path)
    keys = words(100)
    first.keep_on_disk(keys[:30], b"thirty")
    first.keep_on_disk(keys[:60], b"sixty")
    first.close()
    assert find(store(tmp_path), keys, 30, 60, 90) == (60, b"sixty")
    assert find(store(tmp_path), keys[:59] + [1, 2], 30, 60) == (30, b"thirty")
    assert find(store(tmp_path), words(100, seed=1), 30, 60) is None
    assert find(store(tmp_path, scope=b"t" * 16), keys, 30, 60) is None


def test_every_damaged_region_is_a_miss_and_the_file_is_removed(tmp_path: Path) -> None:
    keys, state = words(40), random.Random(1).randbytes(3000)
    writer = store(tmp_path)
    writer.keep_on_disk(keys, state)
    writer.close()
    (path,) = files(tmp_path)
    sound = path.read_bytes()
    edges = [0, len(MAGIC), len(MAGIC) + 32, len(MAGIC) + 32 + HEAD.size, len(sound)]
    places = {*edges[:-1], *(edge - 1 for edge in edges[1:]), *range(0, len(sound), 97)}
    for place in sorted(places):
        damaged = bytearray(sound)
        damaged[place] ^= 0x41
        path.write_bytes(damaged)
        assert find(store(tmp_path), keys, 40) is None, f"byte {place}"
        assert not path.exists()
    for length in [*edges[:-1], 1, 50, len(sound) // 2, len(sound) - 1]:
        path.write_bytes(sound[:length])
        assert find(store(tmp_path), keys, 40) is None, f"cut at {length}"
    path.write_bytes(sound + b"x")
    assert find(store(tmp_path), keys, 40) is None
    path.write_bytes(sound)
    assert find(store(tmp_path), keys, 40) == (40, state)


def test_a_truncated_file_is_a_miss_and_rewritten(tmp_path: Path) -> None:
    keys, state = list(range(40)), bytes(1000)
    kept = store(tmp_path)
    kept.keep_on_disk(keys, state)
    kept.close()
    (path,) = tmp_path.glob("*/*.snapshot")
    sound = path.read_bytes()
    for length in (0, 20, 70, len(sound) - 1):
        path.write_bytes(sound[:length])
        kept = store(tmp_path)
        assert not kept.has_on_disk(keys)
        kept.keep_on_disk(keys, state)
        kept.close()
        assert path.read_bytes() == sound and store(tmp_path).has_on_disk(keys)


def test_a_file_renamed_to_another_prefix_is_a_miss(tmp_path: Path) -> None:
    writer = store(tmp_path)
    writer.keep_on_disk(words(40), b"first")
    writer.keep_on_disk(words(40, seed=1), b"second")
    writer.close()
    one, two = files(tmp_path)
    one.replace(two)
    assert {find(store(tmp_path), words(40, seed=n), 40) for n in (0, 1)} <= {None, (40, b"first"), (40, b"second")}
    assert sum(find(store(tmp_path), words(40, seed=n), 40) is not None for n in (0, 1)) == 0


def test_the_least_recently_used_files_are_removed_first(tmp_path: Path) -> None:
    writer = store(tmp_path, max_entries_disk=3)
    for n in range(3):
        writer.keep_on_disk(words(40, seed=n), bytes([n]))
    writer.close()
    for age, n in enumerate((1, 2, 0)):  # 0 was used last
        path = writer._path(writer._name(words(40, seed=n)))
        os.utime(path, (1_000_000 + age, 1_000_000 + age))
    again = store(tmp_path, max_entries_disk=3)
    again.keep_on_disk(words(40, seed=3), b"new")
    again.close()
    known = [n for n in range(4) if find(store(tmp_path), words(40, seed=n), 40)]
    assert known == [0, 2, 3]


def test_bytes_on_disk_are_bounded(tmp_path: Path) -> None:
    writer = store(tmp_path, max_bytes_disk=10_000)
    for n in range(12):
        writer.keep_on_disk(words(40, seed=n), bytes(3000))
        writer.close()
    assert 0 < sum(path.stat().st_size for path in files(tmp_path)) <= 10_000


def test_memory_is_bounded_by_entries_and_bytes(tmp_path: Path) -> None:
    kept = store(tmp_path, max_entries_memory=2)
    for n in range(3):
        kept.keep_in_memory(words(40, seed=n), bytes(10))
    assert [bool(find(kept, words(40, seed=n), 40)) for n in range(3)] == [False, True, True]
    small = store(tmp_path, max_bytes_memory=25)
    for n in range(3):
        small.keep_in_memory(words(40, seed=n), bytes(10))
    assert [bool(find(small, words(40, seed=n), 40)) for n in range(3)] == [False, True, True]


def test_nothing_is_kept_unless_enabled(tmp_path: Path) -> None:
    off = SnapshotStore(CacheOptions(path=tmp_path), SCOPE)
    off.keep_on_disk(words(40), b"state")
    off.close()
    assert files(tmp_path) == [] and not off.on_disk


def test_an_unwritable_directory_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    broken = store(blocked)
    broken.keep_on_disk(words(40), b"state")
    broken.close()
    assert find(broken, words(40), 40) is None


def test_files_of_a_killed_writer_are_removed_later(tmp_path: Path) -> None:
    writer = store(tmp_path)
    writer.keep_on_disk(words(40), b"state")
    writer.close()
    stale, fresh = (files(tmp_path)[0].with_name(f".writing-{name}") for name in ("stale", "fresh"))
    stale.write_bytes(b"half")
    fresh.write_bytes(b"half")
    os.utime(stale, (1_000_000, 1_000_000))
    writer.keep_on_disk(words(40, seed=1), b"state")
    writer.close()
    assert not stale.exists() and fresh.exists()


def test_a_second_process_starts_from_the_snapshot(make_scheduler: Make, tmp_path: Path) -> None:
    cache = CacheOptions(path=tmp_path, enabled=True)
    system = words(120)
    first = make_scheduler(cache=cache)
    tokens, computed, cached = run(first, request([*system, *words(10)], boundaries=(120,)))
    assert (computed, cached) == (130, 0)
    first.close()
    second = make_scheduler(cache=cache)
    other = [*system, *words(10, seed=5)]
    answer, computed, cached = run(second, request(other, boundaries=(120,)))
    assert (computed, cached) == (10, 120)
    assert answer == run(make_scheduler(), request(other))[0]
    # A saved session: the prompt, the reply, the end of its turn, and a new message.
    session = [*system, *words(10), *tokens[:-1], 7, *words(8, seed=6)]
    third = make_scheduler(cache=cache)
    answer, computed, cached = run(third, request(session, boundaries=(120,)))
    assert cached == 130 + len(tokens) - 1
    assert answer == run(make_scheduler(), request(session))[0]


@pytest.mark.slow
def test_a_damaged_snapshot_never_changes_an_answer(make_scheduler: Make, tmp_path: Path) -> None:
    cache = CacheOptions(path=tmp_path, enabled=True)
    prompt = [*words(120), *words(10, seed=1)]
    expected = run(make_scheduler(), request(prompt, boundaries=(120,)))[0]
    rng = random.Random(3)
    for _ in range(6):
        writer = make_scheduler(cache=cache)
        run(writer, request(prompt, boundaries=(120,)))
        writer.close()
        for path in files(tmp_path):
            damaged = bytearray(path.read_bytes())
            if rng.random() < 0.5:
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            else:
                del damaged[rng.randrange(len(damaged)) :]
            path.write_bytes(damaged)
        answer, computed, cached = run(make_scheduler(cache=cache), request(prompt, boundaries=(120,)))
        assert answer == expected and cached == 0


def test_a_state_of_another_layout_is_refused(make_scheduler: Make, tmp_path: Path) -> None:
    """Even if a name collided, llama.cpp's own check of the state stands behind ours."""
    cache = CacheOptions(path=tmp_path, enabled=True)
    prompt = [*words(120), *words(10, seed=1)]
    scheduler = make_scheduler(cache=cache)
    scheduler._snapshots.keep_in_memory(prompt[:120], b"\0" * 5000)
    answer, computed, cached = run(scheduler, request(prompt, boundaries=(120,)))
    assert (computed, cached) == (130, 0)
    assert answer == run(make_scheduler(), request(prompt))[0]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_processes_share_a_directory(tmp_path: Path) -> None:
    code = (
        "import sys, random\n"
        "from pathlib import Path\n"
        "from leap_core.inference.engine.snapshots import SnapshotStore\n"
        "from leap_core.conversation.options import CacheOptions\n"
        "seed = int(sys.argv[2]); rng = random.Random(seed)\n"
        "for n in range(60):\n"
        "    s = SnapshotStore(CacheOptions(path=Path(sys.argv[1]), enabled=True, max_entries_disk=8), b's' * 16)\n"
        "    keys = [rng.randrange(12)] * 40\n"
        "    found = next(s.find(keys, [40], above=0), None)\n"
        "    assert found is None or found == (40, bytes([keys[0]]) * 2000), found\n"
        "    s.keep_on_disk(keys, bytes([keys[0]]) * 2000)\n"
        "    s.close()\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(n)]) for n in range(3)]
    assert [process.wait(timeout=100) for process in started] == [0, 0, 0]
    assert len(files(tmp_path)) <= 10

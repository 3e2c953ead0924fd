"""The files that are repacked for llama.cpp, kept by content."""

from __future__ import annotations

import multiprocessing
from collections import deque
from pathlib import Path

import numpy as np
import pytest

from leap_core.errors import LeapModelLoadingError
from leap_core.inference.speech import frames
from leap_core.inference.speech import repacking as repacked_cache
from leap_core.inference.speech.frames import CodeSampler
from leap_core.inference.speech.repacking import repacked_files
from leap_core.inference.speech.speaker import Speaker
from leap_core.inference.speech.vocoder import TensorFile, Vocoder
from tests.support.numpy_layers import NumpySpeaker
from tests.support.random_vocoder import TINY, write_random_vocoder

from .conftest import opened

SAMPLERS = [CodeSampler()] * 50


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_ino) for path in sorted(directory.iterdir())}


def test_a_second_load_writes_nothing(tiny: Vocoder, tmp_path: Path) -> None:
    paths = repacked_files(tiny, tmp_path)
    before = contents(tmp_path)
    assert repacked_files(tiny, tmp_path) == paths
    assert contents(tmp_path) == before
    assert len(before) == 4


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "gone", "digest gone", "digest wrong"])
def test_damaged_files_are_recreated(tiny: Vocoder, tmp_path: Path, damage: str) -> None:
    paths = repacked_files(tiny, tmp_path)
    sound = {name: data for name, (data, _) in contents(tmp_path).items()}
    for path in paths:
        data = bytearray(path.read_bytes())
        digest = path.with_suffix(".blake2b")
        if damage == "flipped":
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        elif damage == "cut":
            path.write_bytes(data[:-100])
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "gone":
            path.unlink()
        elif damage == "digest gone":
            digest.unlink()
        else:
            digest.write_text("0" * 32)
    repacked_files(tiny, tmp_path)
    assert {name: data for name, (data, _) in contents(tmp_path).items()} == sound


def test_another_vocoder_is_kept_apart_and_an_equal_one_is_shared(tiny: Vocoder, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = repacked_files(tiny, cache)
    other = opened(write_random_vocoder(tmp_path / "vocoder-Other.gguf", seed=6))
    assert set(repacked_files(other, cache)).isdisjoint(first)
    equal = opened(write_random_vocoder(tmp_path / "vocoder-Equal.gguf"))
    assert repacked_files(equal, cache) == first
    split = write_random_vocoder(tmp_path / "vocoder-Split.gguf", detokenizer_path=tmp_path / "tokenizer-Split.gguf")
    assert repacked_files(opened(split), cache)[0] == first[0]


def test_the_cache_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repacked_cache, "MOST_FILES", 4)
    cache = tmp_path / "cache"
    for seed in range(4):
        kept = repacked_files(opened(write_random_vocoder(tmp_path / f"vocoder-{seed}.gguf", seed=seed)), cache)
    assert len(list(cache.iterdir())) == 8
    assert all(path.is_file() for path in kept)


def _repack(path: Path, cache: Path) -> None:
    repacked_files(opened(path), cache)


@pytest.mark.slow
def test_several_processes_can_create_it_concurrently(tiny_path: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_repack, args=(tiny_path, tmp_path)) for _ in range(4)]
    deque((process.start() for process in processes), maxlen=0)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert len(list(tmp_path.iterdir())) == 4
    before = contents(tmp_path)
    _repack(tiny_path, tmp_path)
    assert contents(tmp_path) == before


def test_an_unwritable_cache_is_replaced_by_a_temporary_directory(
    tiny: Vocoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speaker: Speaker
) -> None:
    (tmp_path / "blocked").write_text("")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    other = Speaker(tiny, tmp_path / "blocked")
    assert "cannot write" in (other.warning or "")
    assert list((tmp_path / "temporary").iterdir()) == [], "the files are mapped, and need no name"
    hidden = np.random.default_rng(0).standard_normal((50, TINY.hidden), np.float32)
    assert other.frames(hidden, SAMPLERS) == speaker.frames(hidden, SAMPLERS)
    other.close()


def test_an_unwritable_machine_is_one_clear_error(
    tiny: Vocoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "blocked").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "blocked"))
    with pytest.raises(LeapModelLoadingError, match="cannot write .*blocked: .*, nor a temporary file"):
        Speaker(tiny, tmp_path / "blocked")


def test_a_type_that_llama_cpp_has_no_products_for_becomes_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (repacked_cache, frames):
        monkeypatch.setattr(module, "MATRIX_TYPES", {"F32"})
    vocoder = opened(write_random_vocoder(tmp_path / "vocoder-Q8.gguf", quantization="q8_0"))
    speaker = Speaker(vocoder, tmp_path / "cache")
    assert {TensorFile(path).type("blk.0.ffn_down.weight") for path in (tmp_path / "cache").glob("*.gguf")} == {"F32"}
    hidden = np.random.default_rng(0).standard_normal((50, TINY.hidden), np.float32)
    pairs = zip(speaker.frames(hidden, SAMPLERS), NumpySpeaker(vocoder).frames(hidden, SAMPLERS), strict=True)
    assert sum(ours == reference for ours, reference in pairs) >= 45, "but for keys in half precision"
    speaker.close()


def test_files_keep_the_bytes_of_quantized_weights(tmp_path: Path) -> None:
    """Nothing is quantized a second time: the repacked file is about as large as the part of the vocoder."""
    vocoder = opened(write_random_vocoder(tmp_path / "vocoder-Q8.gguf", quantization="q8_0"))
    depthformer, detokenizer = map(TensorFile, repacked_files(vocoder, tmp_path))
    original = vocoder.file.rows("depthformer.layers.1.feed_forward.w2.weight")
    assert (depthformer.rows("blk.1.ffn_down.weight") == original).all()
    queries = vocoder.file.float32("depthformer.layers.0.operator.qkv_proj.weight")[: TINY.width]
    head = TINY.width // TINY.heads
    moved = depthformer.float32("blk.0.attn_q.weight").reshape(TINY.heads, head, -1)
    assert (moved[:, : head // 2] == queries.reshape(TINY.heads, head, -1)[:, ::2]).all()
    assert detokenizer.type("blk.0.ffn_gate.weight") == "Q8_0"

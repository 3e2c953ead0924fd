"""Layers on a GPU: how many fit, by the model's header and the free memory; and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from leap_core.conversation.options import ModelLoadingOptions
from leap_core.errors import LeapOptionsError
from leap_core.inference import model_parts as gpu_layers
from leap_core.inference.gguf.header import GGUFHeader, TensorInfo
from leap_core.inference.llama import library as gpu
from leap_core.inference.model_parts import LEAST_RESERVE, gpu_layers_for, layers_that_fit
from leap_core.models.builtin import model_path

MB = 1024**2
OPTIONS = ModelLoadingOptions(context_size=1024, slots=1, n_gpu_layers="auto")
CONTEXT = 1024 * 256 * 4
"""Bytes of keys and values of a layer of the model below."""


def header(*names: str) -> GGUFHeader:
    """Ten layers of 10 MB, embeddings of 50 MB, and what is named, of 20 MB each."""
    sizes = {f"blk.{n}.ffn_up.weight": 10 * MB for n in range(10)} | {"token_embd.weight": 50 * MB}
    sizes |= dict.fromkeys(names, 20 * MB)
    tensors = tuple(TensorInfo(name, "F16", (1,), 0, size) for name, size in sizes.items())
    metadata = {"general.architecture": "x", "x.embedding_length": 256, "x.context_length": 4096}
    return GGUFHeader(Path("x.gguf"), 3, 1, metadata, tensors)


def free_for(room: int) -> int:
    return LEAST_RESERVE + room


@pytest.mark.parametrize(
    ("room", "layers"),
    [
        (0, 0),
        (10 * MB + CONTEXT - 1, 0),
        (10 * MB + CONTEXT, 1),
        (3 * (10 * MB + CONTEXT), 3),
        (10 * (10 * MB + CONTEXT), 10),
        (10 * (10 * MB + CONTEXT) + 20 * MB, -1),
    ],
)
def test_the_last_layers_go_first_and_all_with_the_output(room, layers):
    assert layers_that_fit(header("output.weight"), free_for(room), OPTIONS) == layers


def test_embeddings_that_are_the_output_too_count_with_it():
    whole = 10 * (10 * MB + CONTEXT)
    assert layers_that_fit(header(), free_for(whole + 49 * MB), OPTIONS) == 10
    assert layers_that_fit(header(), free_for(whole + 50 * MB), OPTIONS) == -1


def test_a_larger_context_leaves_room_for_fewer():
    free = free_for(10 * (10 * MB + CONTEXT) + 20 * MB)
    large = ModelLoadingOptions(context_size=4096, slots=1, n_gpu_layers="auto")
    assert 0 < layers_that_fit(header("output.weight"), free, large) < 10
    small = ModelLoadingOptions(context_size=4096, slots=1, kv_type_k="q4_0", kv_type_v="q4_0", n_gpu_layers="auto")
    assert layers_that_fit(header(), free, small) > layers_that_fit(header(), free, large)


def test_a_part_of_a_large_memory_stays_free():
    assert layers_that_fit(header(), 100_000 * MB, OPTIONS) == -1
    assert layers_that_fit(GGUFHeader(Path("x"), 3, 1, {}, ()), 100_000 * MB, OPTIONS) == 0


def test_auto_asks_the_gpus_and_a_number_asks_nobody(monkeypatch):
    monkeypatch.setattr(gpu, "free_gpu_memory", lambda: [8 * 1024 * MB])
    assert gpu_layers_for(model_path(), ModelLoadingOptions(n_gpu_layers="auto")) == -1
    monkeypatch.setattr(gpu, "free_gpu_memory", lambda: [LEAST_RESERVE // 2, LEAST_RESERVE // 2])
    assert gpu_layers_for(model_path(), ModelLoadingOptions(n_gpu_layers="auto")) == 0
    monkeypatch.setattr(gpu, "free_gpu_memory", lambda: 1 / 0)
    assert [gpu_layers_for(model_path(), ModelLoadingOptions(n_gpu_layers=n)) for n in (-1, 0, 7)] == [-1, 0, 7]


def test_a_build_without_a_gpu_offloads_nothing(monkeypatch):
    if gpu.has_gpu_support():
        pytest.skip("this build computes on a GPU")
    assert gpu.free_gpu_memory() == [] and gpu_layers_for(model_path(), OPTIONS) == 0
    monkeypatch.setattr(gpu, "has_gpu_support", lambda: True)
    assert gpu.free_gpu_memory() == []  # there is none among the devices


@pytest.mark.parametrize("value", ["all", -2, 1.5, True])
def test_what_is_no_number_of_layers(value):
    with pytest.raises(LeapOptionsError):
        ModelLoadingOptions(n_gpu_layers=value)


def test_the_command_line(leap, monkeypatch):
    def loaded(*args: str):
        leap.script("ok")
        leap.loaded.clear()
        done = leap("generate", "-m", "some", *args, "x")
        assert (done.code, done.stdout) == (0, "ok\n")
        return leap.loaded[0][1].n_gpu_layers, done.stderr

    monkeypatch.setattr(gpu, "has_gpu_support", lambda: False)
    assert loaded() == ("auto", "") and loaded("--gpu-layers", "auto") == ("auto", "")
    assert loaded("--gpu-layers", "0") == (0, "")
    layers, note = loaded("--gpu-layers", "99")
    assert layers == 99 and note.startswith(
        "leap: this llama.cpp is built without a GPU: --gpu-layers 99 has no effect"
    )
    monkeypatch.setattr(gpu, "has_gpu_support", lambda: True)
    assert loaded("--gpu-layers", "-1") == (-1, "")
    for wrong in ("all", "-2", "1.5"):
        refused = leap("generate", "--gpu-layers", wrong, "x")
        assert refused.code == 2 and "neither a number of layers" in refused.stderr
    leap("config", "set", "options.gpu_layers", "auto")
    assert loaded()[0] == "auto" and leap("config", "get", "options.gpu_layers").stdout == "auto\n"


def test_auto_is_zero_for_the_kept_prompts_of_a_build_without_gpu(monkeypatch):
    """Snapshots of former versions stay of use."""
    from types import SimpleNamespace

    from leap_core.inference.model_parts import _snapshot_scope

    model = SimpleNamespace(fingerprint=b"x", n_gpu_layers=gpu_layers_for(model_path(), ModelLoadingOptions()))
    scopes = {_snapshot_scope(model, ModelLoadingOptions(n_gpu_layers=n)) for n in (0, "auto")}
    assert len(scopes) == 1 and gpu_layers.AUTO == "auto"

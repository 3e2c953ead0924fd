"""Layers on a GPU: how many fit, by the model's header and the free memory; and what is said where there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import ModelLoadingOptions
from leap_core.conversation.streams import last_of
from leap_core.errors import LeapModelLoadingError, LeapOptionsError
from leap_core.inference import model_parts as gpu_layers
from leap_core.inference.gguf.header import GGUFHeader, TensorInfo
from leap_core.inference.llama import devices
from leap_core.inference.llama import library as gpu
from leap_core.inference.llama.devices import Device
from leap_core.inference.llama.model import LlamaModel
from leap_core.inference.model_parts import LEAST_RESERVE, gpu_layers_for, layers_that_fit
from leap_core.inference.runner import InProcessRunner
from leap_core.models.builtin import model_path

MB = 1024**2
OPTIONS = ModelLoadingOptions(context_size=1024, slots=1, n_gpu_layers="auto")
CONTEXT = 1024 * (256 // 4) * 4
"""Bytes of keys and values of a layer of the model below, in which four heads share one of keys and values."""
COMPUTING = 512 * 4 * 4 * 256


def header(*names: str) -> GGUFHeader:
    """Ten layers of 10 MB, embeddings of 50 MB, and what is named, of 20 MB each."""
    sizes = {f"blk.{n}.ffn_up.weight": 10 * MB for n in range(10)} | {"token_embd.weight": 50 * MB}
    sizes |= dict.fromkeys(names, 20 * MB)
    tensors = tuple(TensorInfo(name, "F16", (1,), 0, size) for name, size in sizes.items())
    metadata = {"general.architecture": "x", "x.embedding_length": 256, "x.context_length": 4096, "x.block_count": 10}
    metadata |= {"x.attention.head_count": 8, "x.attention.head_count_kv": 2}
    return GGUFHeader(Path("x.gguf"), 3, 1, metadata, tensors)


def free_for(room: int) -> list[int]:
    return [LEAST_RESERVE + COMPUTING + room]


def device(name: str, description: str = "a card", *, free: int = 8 * 1024 * MB, integrated: bool = False) -> Device:
    return Device(1, name, description, integrated, free, free)


def names(*shown: Device, asked: tuple[str, ...] = ()) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "all_gpus", lambda: list(shown))
        return [each.name for each in devices.usable_gpus(asked)]


def test_a_card_counts_once_and_integrated_ones_where_there_is_no_other():
    cuda, vulkan, other = device("CUDA0"), device("Vulkan0"), device("CUDA1")
    shared = device("Vulkan1", "graphics of the processor", integrated=True)
    assert names(cuda, vulkan) == ["CUDA0"] and names(cuda, other, vulkan, device("Vulkan2")) == ["CUDA0", "CUDA1"]
    assert names(cuda, shared) == ["CUDA0"] and names(shared) == ["Vulkan1"] and names() == []


def test_devices_by_name():
    assert names(device("CUDA0"), device("CUDA1"), asked=("cuda1",)) == ["CUDA1"]
    assert names(device("CUDA0"), asked=("none",)) == []
    with pytest.raises(LeapOptionsError, match="there is no device Vulkan7"):
        names(device("CUDA0"), asked=("Vulkan7",))


def test_layers_with_states_keep_no_keys():
    hybrid = header()
    hybrid.metadata["x.attention.head_count_kv"] = [0, 2] * 5
    room = 10 * 10 * MB + 5 * CONTEXT + 50 * MB
    assert layers_that_fit(hybrid, free_for(room), OPTIONS) == -1
    assert layers_that_fit(hybrid, free_for(room - 1), OPTIONS) == 10


def test_experts_on_the_processor_take_no_room():
    experts = header("output.weight", *(f"blk.{n}.ffn_down_exps.weight" for n in range(10)))
    room = 10 * (10 * MB + CONTEXT) + 20 * MB
    some = replace(OPTIONS, cpu_moe=10)
    assert 0 < layers_that_fit(experts, free_for(room), OPTIONS) < 10
    assert layers_that_fit(experts, free_for(room), some) == -1
    assert layers_that_fit(experts, free_for(room), replace(OPTIONS, cpu_moe=-1)) == -1


def test_each_gpu_keeps_its_reserve():
    whole = 10 * (10 * MB + CONTEXT) + 20 * MB
    assert layers_that_fit(header("output.weight"), free_for(whole), OPTIONS) == -1
    half = [*free_for(whole // 2), *free_for(whole // 2)]
    assert layers_that_fit(header("output.weight"), half, OPTIONS) == -1
    assert layers_that_fit(header("output.weight"), [half[0], half[1] - 100], OPTIONS) == 10


def test_auto_tries_again_with_fewer_layers(monkeypatch):
    tried = []

    def too_large(path, options, layers):
        tried.append(layers)
        if layers:
            raise LeapModelLoadingError("out of memory")
        return open_model(path, options, layers)

    open_model = gpu_layers.open_model
    monkeypatch.setattr(gpu_layers, "open_model", too_large)
    monkeypatch.setattr(gpu_layers, "gpu_layers_for", lambda *_: -1)
    model, context = gpu_layers.open_with_fewer_layers(model_path(), ModelLoadingOptions(n_gpu_layers="auto"))
    model.close()
    assert context is None and tried[0] == -1 and tried[-1] == 0 and tried[1:] == sorted(tried[1:], reverse=True)
    with pytest.raises(LeapModelLoadingError):
        gpu_layers.open_with_fewer_layers(model_path(), ModelLoadingOptions(n_gpu_layers=-1))


@pytest.fixture
def on_a_gpu(monkeypatch) -> list[int | None]:
    """A model whose layers seem to be on a GPU; the layers of each try."""
    tried, open_model = [], gpu_layers.open_model

    def opened(path, options, layers=None):
        tried.append(layers)
        return open_model(path, options, 0)

    monkeypatch.setattr(gpu_layers, "open_model", opened)
    monkeypatch.setattr(gpu_layers, "gpu_layers_for", lambda *_: -1)
    return tried


def test_a_context_that_is_too_large_is_refused_after_one_try(on_a_gpu):
    with pytest.raises(LeapModelLoadingError, match="than the [0-9]+ that builtin was trained for"):
        InProcessRunner(model_path(), "builtin", ModelLoadingOptions(n_gpu_layers="auto", context_size=1 << 30))
    assert on_a_gpu == [-1]


def test_a_model_whose_context_fails_is_freed(on_a_gpu, monkeypatch):
    freed, close = [], LlamaModel.close
    monkeypatch.setattr(LlamaModel, "close", lambda self: freed.append(self) or close(self))
    monkeypatch.setattr(gpu_layers, "open_context", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gpu_layers.open_with_fewer_layers(model_path(), ModelLoadingOptions(n_gpu_layers="auto"))
    assert len(freed) == 1


def test_without_devices_no_layer_is_on_a_gpu(monkeypatch):
    monkeypatch.setattr("leap_core.inference.llama.model.has_gpu_support", lambda: True)
    for layers in (-1, 7, "auto"):
        model = gpu_layers.open_model(model_path(), ModelLoadingOptions(n_gpu_layers=layers, devices=["none"]))
        assert (model.n_gpu_layers, model.on_gpu) == (0, False)
        model.close()


def test_more_layers_and_devices_than_llama_cpp_knows():
    options = ModelLoadingOptions(cpu_moe=2**31 - 1, tensor_split=[1.0] * 1000)
    gpu_layers.open_model(model_path(), options).close()
    for wrong in ([-1.0], [float("nan")], [float("inf")], ["1"]):
        with pytest.raises(LeapOptionsError, match="tensor_split"):
            ModelLoadingOptions(tensor_split=wrong)


def test_a_model_with_experts_on_the_processor_answers_the_same():
    def tokens(options: ModelLoadingOptions) -> str:
        with InProcessRunner(model_path(), "builtin", options) as runner:
            return last_of(runner.start([ChatMessage("user", "What is the capital of France?")])).full_message.text

    assert tokens(ModelLoadingOptions(cpu_moe=-1, devices=("none",))) == tokens(ModelLoadingOptions())


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
    large = ModelLoadingOptions(context_size=4096, slots=8, n_gpu_layers="auto")
    assert 0 < layers_that_fit(header("output.weight"), free, large) < 10
    small = ModelLoadingOptions(context_size=4096, slots=8, kv_type_k="q4_0", kv_type_v="q4_0", n_gpu_layers="auto")
    assert layers_that_fit(header(), free, small) > layers_that_fit(header(), free, large)


def test_a_part_of_a_large_memory_stays_free():
    assert layers_that_fit(header(), [100_000 * MB], OPTIONS) == -1
    assert layers_that_fit(GGUFHeader(Path("x"), 3, 1, {}, ()), [100_000 * MB], OPTIONS) == 0


def test_auto_asks_the_gpus_and_a_number_asks_nobody(monkeypatch):
    monkeypatch.setattr(devices, "all_gpus", lambda: [device("CUDA0")])
    assert gpu_layers_for(model_path(), ModelLoadingOptions(n_gpu_layers="auto")) == -1
    monkeypatch.setattr(devices, "all_gpus", lambda: [device("CUDA0", free=LEAST_RESERVE // 2)])
    assert gpu_layers_for(model_path(), ModelLoadingOptions(n_gpu_layers="auto")) == 0
    monkeypatch.setattr(devices, "all_gpus", lambda: 1 / 0)
    assert [gpu_layers_for(model_path(), ModelLoadingOptions(n_gpu_layers=n)) for n in (-1, 0, 7)] == [-1, 0, 7]


def test_a_build_without_a_gpu_offloads_nothing(monkeypatch):
    if gpu.has_gpu_support():
        pytest.skip("this build computes on a GPU")
    assert devices.all_gpus() == [] and gpu_layers_for(model_path(), OPTIONS) == 0
    monkeypatch.setattr(devices, "has_gpu_support", lambda: True)
    assert devices.all_gpus() == []  # there is none among the devices


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
    assert layers == 99 and note.startswith("leap: the engine sees no GPU: --gpu-layers 99 has no effect")
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

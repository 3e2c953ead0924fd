"""Layers on a GPU: how many fit, by the model's header and the free memory; and what is said where there is none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import ModelLoadingOptions
from leap_core.conversation.streams import last_of
from leap_core.errors import LeapModelLoadingError, LeapOptionsError
from leap_core.inference import model_parts as gpu_layers
from leap_core.inference.gguf.header import GGUFHeader, TensorInfo
from leap_core.inference.gguf.offloading import (
    LEAST_RESERVE,
    Offload,
    memory_beside,
    offload_of,
    offload_that_fits,
)
from leap_core.inference.llama import devices
from leap_core.inference.llama import library as gpu
from leap_core.inference.llama.devices import Device, Placement
from leap_core.inference.llama.model import LlamaModel
from leap_core.inference.model_parts import placement_for
from leap_core.inference.runner import InProcessRunner
from leap_core.inference.trial import layers as layer_trial
from leap_core.models.builtin import model_path
from leap_core.opening import Leap
from leap_core.system.child import answers_of

MB = 1024**2
OPTIONS = ModelLoadingOptions(context_size=1024, slots=1, n_gpu_layers="auto")
CONTEXT = 1024 * (256 // 4) * 4
"""Bytes of keys and values of a layer of the model below, in which four heads share one of keys and values."""
COMPUTING = 512 * 4 * 4 * 256 + 512 * 1024 * 6
LAYER = 10 * MB + CONTEXT


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


def layers_that_fit(header: GGUFHeader, free: list[int], options: ModelLoadingOptions) -> int:
    return offload_that_fits(header, options, free).layers


def gpu_layers_for(path: Path, options: ModelLoadingOptions) -> int:
    return placement_for(path, options).n_gpu_layers


@pytest.fixture
def see(monkeypatch):
    """Let the engine see these devices, whose memory is what they say."""

    def seen(*shown: Device) -> None:
        monkeypatch.setattr(devices, "all_gpus", lambda: list(shown))
        monkeypatch.setattr(devices, "measured", list)

    return seen


def device(name: str, description: str = "a card", *, free: int = 8 * 1024 * MB, integrated: bool = False) -> Device:
    return Device(1, name, description, integrated, free, free)


def names(*shown: Device, asked: tuple[str, ...] = ()) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "all_gpus", lambda: list(shown))
        return [each.name for each in devices.usable_gpus(asked)]


def test_a_gpu_counts_once_and_integrated_ones_only_alone():
    cuda, vulkan, other = device("CUDA0"), device("Vulkan0"), device("CUDA1")
    shared = device("Vulkan1", "graphics of the processor", integrated=True)
    assert names(cuda, vulkan) == ["CUDA0"] and names(cuda, other, vulkan, device("Vulkan2")) == ["CUDA0", "CUDA1"]
    assert names(cuda, shared) == ["CUDA0"] and names(shared) == ["Vulkan1"] and names() == []


def test_devices_are_chosen_by_name():
    assert names(device("CUDA0"), device("CUDA1"), asked=("cuda1",)) == ["CUDA1"]
    assert names(device("CUDA0"), asked=("none",)) == []
    with pytest.raises(LeapOptionsError, match="there is no device Vulkan7"):
        names(device("CUDA0"), asked=("Vulkan7",))


def test_recurrent_layers_have_no_kv_cache():
    hybrid = header()
    hybrid.metadata["x.attention.head_count_kv"] = [0, 2] * 5
    room = 10 * 10 * MB + 5 * CONTEXT + 50 * MB
    assert layers_that_fit(hybrid, free_for(room), OPTIONS) == -1
    assert layers_that_fit(hybrid, free_for(room - 1), OPTIONS) == 10
    hybrid.metadata["x.shortconv.l_cache"] = 3
    states = [
        offload_of(hybrid, replace(OPTIONS, slots=16, prompt_lookup=each), -1, [0]).context for each in (False, True)
    ]
    size = 4 * 5 * 2 * 256
    assert states[1] - states[0] == (8 * 16 - 2 * 16) * size, "states that drafts may need, and those kept for prompts"


def test_experts_on_the_cpu_take_no_gpu_memory():
    experts = header("output.weight", *(f"blk.{n}.ffn_down_exps.weight" for n in range(10)))
    room = 10 * (10 * MB + CONTEXT) + 20 * MB
    some = replace(OPTIONS, cpu_moe=10)
    assert 0 < layers_that_fit(experts, free_for(room), OPTIONS) < 10
    assert layers_that_fit(experts, free_for(room), some) == -1
    assert layers_that_fit(experts, free_for(room), replace(OPTIONS, cpu_moe=-1)) == -1


def test_each_gpu_keeps_its_reserve():
    whole = 10 * LAYER + 20 * MB
    assert layers_that_fit(header("output.weight"), free_for(whole), OPTIONS) == -1
    halves = [*free_for(6 * LAYER), *free_for(5 * LAYER + 20 * MB)]
    assert layers_that_fit(header("output.weight"), halves, OPTIONS) == -1
    assert layers_that_fit(header("output.weight"), [halves[0] - LAYER, halves[1] - LAYER], OPTIONS) == 10


def test_layers_are_split_by_the_free_memory_of_two_gpus():
    sizes = offload_of(header("output.weight"), OPTIONS, -1, [*free_for(100 * MB), *free_for(25 * MB)]).by_gpu
    assert sizes == [9 * LAYER + COMPUTING, LAYER + 20 * MB + COMPUTING], "the output is the last card's"
    assert layers_that_fit(header("output.weight"), [*free_for(100 * MB), *free_for(25 * MB)], OPTIONS) == 9
    assert layers_that_fit(header("output.weight"), [*free_for(25 * MB), *free_for(100 * MB)], OPTIONS) == 10
    asked = replace(OPTIONS, tensor_split=[1, 3])
    sizes = offload_of(header("output.weight"), asked, -1, [*free_for(100 * MB), *free_for(25 * MB)]).by_gpu
    assert sizes == [3 * LAYER + COMPUTING, 7 * LAYER + 20 * MB + COMPUTING]
    assert offload_of(header(), replace(OPTIONS, tensor_split=[0, 1]), -1, [0, 0]).by_gpu[0] == 0


def test_a_projector_and_adapters_take_memory_on_the_first_gpu(tmp_path):
    projector = tmp_path / "mmproj.gguf"
    projector.write_bytes(b"x" * 5 * MB)
    without, with_it = (
        offload_of(header(), replace(OPTIONS, mm_proj_path=path), -1, [0, 0]) for path in (None, projector)
    )
    assert with_it.by_gpu[0] - without.by_gpu[0] == 261 * MB and with_it.by_gpu[1:] == without.by_gpu[1:]
    assert with_it.total - without.total == 261 * MB


def test_a_model_for_embeddings_computes_a_whole_text_at_once():
    embedder = header()
    embedder.metadata["x.pooling_type"] = 1
    options = replace(OPTIONS, context_size=None)
    assert offload_of(embedder, options, -1, [0]).computing > 3 * offload_of(header(), options, -1, [0]).computing


def test_what_is_not_on_a_gpu_stays_in_memory():
    model = header("output.weight", *(f"blk.{n}.ffn_down_exps.weight" for n in range(10)))
    nothing, everything = (memory_beside(model, OPTIONS, offload_of(model, OPTIONS, n, [0])) for n in (0, -1))
    assert nothing.weights == 370 * MB and everything.weights == 50 * MB and everything.context == 0
    part = offload_of(model, OPTIONS, 4, [0])
    assert (part.layers, part.weights) == (4, 110 * MB), "the output and three layers"
    assert memory_beside(model, OPTIONS, part).weights == 260 * MB
    kept = replace(OPTIONS, cpu_moe=-1)
    assert memory_beside(model, kept, offload_of(model, kept, -1, [0])).weights == 250 * MB
    assert offload_of(model, OPTIONS, 0, [0]) == offload_of(model, OPTIONS, -1, []) == Offload()


def test_auto_tries_again_with_fewer_layers(monkeypatch, see):
    tried = []

    def too_large(path, options, placement):
        tried.append(placement.n_gpu_layers)
        if placement.n_gpu_layers:
            raise LeapModelLoadingError("out of memory")
        return open_placed(path, options, placement)

    open_placed = gpu_layers._open_placed
    monkeypatch.setattr(gpu_layers, "_open_placed", too_large)
    see(device("CUDA0", free=80 * 1024 * MB))
    model, context = gpu_layers.open_with_fewer_layers(model_path(), ModelLoadingOptions(n_gpu_layers="auto"))
    model.close()
    assert context is None and tried[0] == -1 and tried[-1] == 0 and tried[1:] == sorted(tried[1:], reverse=True)
    with pytest.raises(LeapModelLoadingError):
        gpu_layers.open_with_fewer_layers(model_path(), ModelLoadingOptions(n_gpu_layers=-1))


@pytest.fixture
def on_a_gpu(monkeypatch, see) -> list[int]:
    """A model whose layers seem to be on a GPU; the layers of each try."""
    tried, open_placed = [], gpu_layers._open_placed

    def opened(path, options, placement):
        tried.append(placement.n_gpu_layers)
        return open_placed(path, options, Placement())

    monkeypatch.setattr(gpu_layers, "_open_placed", opened)
    see(device("CUDA0", free=1 << 60))
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
    monkeypatch.setattr(devices, "all_gpus", lambda: 1 / 0)
    for layers in (-1, 7, "auto"):
        model = gpu_layers.open_model(model_path(), ModelLoadingOptions(n_gpu_layers=layers, devices=["none"]))
        assert (model.n_gpu_layers, model.on_gpu) == (0, False)
        model.close()


def test_more_layers_and_devices_than_llama_cpp_supports():
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
    [(0, 0), (20 * MB - 1, 0), (20 * MB, 1), (3 * LAYER + 20 * MB, 4), (10 * LAYER, 9), (10 * LAYER + 20 * MB, -1)],
)
def test_the_output_goes_first_and_then_the_last_layers(room, layers):
    """As llama.cpp counts: with one layer the output alone is on the GPU."""
    assert layers_that_fit(header("output.weight"), free_for(room), OPTIONS) == layers


def test_embeddings_that_are_the_output_too_count_with_it():
    assert layers_that_fit(header(), free_for(10 * LAYER + 49 * MB), OPTIONS) == 10
    assert layers_that_fit(header(), free_for(10 * LAYER + 50 * MB), OPTIONS) == -1


def test_a_larger_context_leaves_memory_for_fewer_layers():
    free = free_for(10 * (10 * MB + CONTEXT) + 20 * MB)
    large = ModelLoadingOptions(context_size=4096, slots=8, n_gpu_layers="auto")
    assert 0 < layers_that_fit(header("output.weight"), free, large) < 10
    small = ModelLoadingOptions(context_size=4096, slots=8, kv_type_k="q4_0", kv_type_v="q4_0", n_gpu_layers="auto")
    assert layers_that_fit(header(), free, small) > layers_that_fit(header(), free, large)


def test_a_part_of_a_large_memory_stays_free():
    assert layers_that_fit(header(), [100_000 * MB], OPTIONS) == -1
    assert layers_that_fit(GGUFHeader(Path("x"), 3, 1, {}, ()), [100_000 * MB], OPTIONS) == 0


def test_auto_takes_what_fits_and_a_number_is_a_number(see):
    auto = ModelLoadingOptions(n_gpu_layers="auto")
    see(device("CUDA0"))
    assert gpu_layers_for(model_path(), auto) == -1
    assert [gpu_layers_for(model_path(), replace(auto, n_gpu_layers=n)) for n in (-1, 0, 7)] == [-1, 0, 7]
    see(device("CUDA0", free=300 * MB))
    assert gpu_layers_for(model_path(), auto) == 0


def test_auto_does_not_use_a_full_gpu(see):
    """A backend takes some memory of each card that it is given, and ends the process where there is none."""
    see(device("CUDA0", free=300 * MB), device("CUDA1"), device("CUDA2", free=4096 * MB))
    chosen = placement_for(model_path(), ModelLoadingOptions(n_gpu_layers="auto"))
    assert [each.name for each in chosen.devices] == ["CUDA1", "CUDA2"] and chosen.n_gpu_layers == -1
    first, second = chosen.tensor_split
    assert first / second == pytest.approx((8192 - 819.2) / (4096 - 512), rel=0.01)
    every = placement_for(model_path(), ModelLoadingOptions(n_gpu_layers=-1))
    assert [each.name for each in every.devices] == ["CUDA1", "CUDA2"], "a number of layers does not ask for it either"
    named = placement_for(model_path(), ModelLoadingOptions(n_gpu_layers=-1, devices=["cuda0", "CUDA0"]))
    assert [each.name for each in named.devices] == ["CUDA0"]
    params = gpu.library().llama_model_default_params()
    kept = chosen.fill(params)
    assert list(kept[0]) == [1, 1, None] and params.n_gpu_layers == -1


def test_layers_without_a_device_stay_on_the_cpu():
    """A model on the processor keeps what makes its answers the same."""
    if gpu.has_gpu_support():
        pytest.skip("this build computes on a GPU")
    assert devices.all_gpus() == []
    assert [gpu_layers_for(model_path(), ModelLoadingOptions(n_gpu_layers=n)) for n in (-1, 7, "auto")] == [0, 0, 0]


@pytest.mark.parametrize("value", ["all", -2, 1.5, True])
def test_invalid_numbers_of_layers_are_refused(value):
    with pytest.raises(LeapOptionsError):
        ModelLoadingOptions(n_gpu_layers=value)


def test_gpu_layers_on_the_command_line(leap, monkeypatch):
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
    assert layers == 99 and "is built without a GPU: --gpu-layers 99 has no effect" in note
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

    layers = gpu_layers_for(model_path(), ModelLoadingOptions())
    model = SimpleNamespace(fingerprint=b"x", n_gpu_layers=layers, metadata=lambda _name: "7")
    scopes = {_snapshot_scope(model, ModelLoadingOptions(n_gpu_layers=n)) for n in (0, "auto")}
    assert len(scopes) == 1 and gpu_layers.AUTO == "auto"


# Almost no memory is free.


NVML_SOURCE = """
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned n, void **h) { *h = (void *)(long)(n + 1); return 0; }
int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *m) { m[1] = h == (void *)1 ? 7000 : 300; return 0; }
int nvmlShutdown(void) { return 0; }
"""


def test_free_gpu_memory_comes_from_the_driver(tmp_path, monkeypatch):
    library = tmp_path / "libnvml.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=NVML_SOURCE, text=True, check=True)
    monkeypatch.setattr(devices, "NVML", str(library))
    assert [*devices._free_of_nvidia()] == [7000, 300] and devices._least_free([device("CUDA0")]) == 300
    assert devices._least_free([device("Vulkan0"), device("ROCm0")]) is None, "of another maker, or asked without risk"
    monkeypatch.setattr(devices, "NVML", "libnot-there.so.1")
    assert [*devices._free_of_nvidia()] == []
    card = tmp_path / "card0" / "device"
    card.mkdir(parents=True)
    (card / "mem_info_vram_total").write_text("9000\n")
    assert [*devices._free_of_amd(tmp_path)] == []
    (card / "mem_info_vram_used").write_text("8500\n")
    assert [*devices._free_of_amd(tmp_path)] == [500]


def dying_memory(request, answer):
    """In a child: as ``answer_memory`` over a backend that ends the process over the card CUDA1."""
    for name in request["names"]:
        if name == "CUDA1":
            os.abort()
        answer({"memory": [5000, 8000]})


@pytest.fixture
def crowded(monkeypatch):
    """The driver says that a card is almost full; children look for their tasks here."""
    monkeypatch.setattr(devices, "_least_free", lambda _: 300 * MB)
    monkeypatch.setattr(devices, "TASK", "tests.inference.test_gpu_layers:dying_memory")
    monkeypatch.setattr(devices, "_memory", lambda _: pytest.fail("a full card is asked in this process"))
    monkeypatch.setattr(layer_trial, "TASK", "tests.inference.test_gpu_layers:dying_load")


@pytest.mark.slow
def test_a_full_gpu_is_queried_in_a_child_that_may_die(crowded):
    shown = [device(f"CUDA{n}", free=0) for n in range(3)]
    assert [(each.free, each.total) for each in devices.measured(shown)] == [(5000, 8000), (0, 0), (5000, 8000)]


def dying_load(request, answer):
    """In a child: as ``try_layers`` where no more than two layers have room."""
    if not 0 <= request["options"]["n_gpu_layers"] <= 2:
        print("CUDA error: out of memory\n  in function alloc at /src/ggml-cuda.cu:7", file=sys.stderr, flush=True)
        os.abort()
    return {}


@pytest.fixture
def tight(crowded, see, on_a_gpu, monkeypatch) -> list[int]:
    """A card that may have room for the model; the layers of each model that is loaded in this process."""
    monkeypatch.setattr(layer_trial, "SLACK", 100 * 1024 * MB)
    monkeypatch.setenv("LEAP_TRY_MODELS", "1")
    see(device("CUDA0"))
    return on_a_gpu


@pytest.mark.slow
def test_a_child_detects_too_many_layers_and_auto_uses_fewer(tight):
    options = ModelLoadingOptions(n_gpu_layers="auto", slots=1)
    assert placement_for(model_path(), options).n_gpu_layers == -1
    gpu_layers.open_with_fewer_layers(model_path(), options)[0].close()
    assert tight == [2]


@pytest.mark.slow
def test_a_trial_is_not_repeated_until_less_memory_is_free(tight, see, monkeypatch):
    options, trials = ModelLoadingOptions(n_gpu_layers=1), []
    answers_of = layer_trial.answers_of
    monkeypatch.setattr(layer_trial, "answers_of", lambda *each: trials.append(each) or answers_of(*each))
    for free, tried in ((8192, 1), (8192, 1), (9000, 1), (8150, 1), (8000, 2)):
        see(device("CUDA0", free=free * MB))
        gpu_layers.open_with_fewer_layers(model_path(), options)[0].close()
        assert len(trials) == tried
    gpu_layers.open_with_fewer_layers(model_path(), replace(options, slots=9))[0].close()
    assert len(trials) == 3, "a larger context is another thing"


@pytest.mark.slow
@pytest.mark.parametrize("load", [Leap.load, Leap.load_for_embedding])
def test_a_number_of_layers_that_does_not_fit_is_refused_in_one_line(tight, load):
    name = "builtin" if load is Leap.load else "builtin-embed"
    with pytest.raises(LeapModelLoadingError) as caught:
        load(name, ModelLoadingOptions(n_gpu_layers=99))
    assert re.fullmatch(
        r"99 layers of .*\.gguf do not fit on the GPU \(8590 MB free on CUDA0\): a trial ended with code -6 "
        r"\(CUDA error: out of memory\)",
        caught.value.message,
    )
    assert "--gpu-layers auto" in caught.value.hint and tight == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["builtin", "builtin-embed"])
def test_a_trial_of_layers_computes_as_the_model_does_later(name):
    """On the processor, where there is always room."""
    options = layer_trial._wanted(ModelLoadingOptions(slots=2, prompt_lookup=True), Placement())
    request = {"task": layer_trial.TASK, "path": str(model_path(name)), "options": options}
    answers, code, words = answers_of(request, 100)
    assert answers == [{"result": {}}] and code == 0, words

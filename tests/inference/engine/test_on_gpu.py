"""What the engine does differently where layers are on a GPU, seen on a model that only says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from leap_core.conversation.options import ModelLoadingOptions
from leap_core.errors import LeapModelLoadingError
from leap_core.inference.engine.request import PromptTokens, Tokens
from leap_core.inference.engine.scheduler import Scheduler
from leap_core.inference.engine.slots import checkpoints_for
from leap_core.inference.llama import context as context_module
from leap_core.inference.llama import model as model_module
from leap_core.inference.llama import projector as projector_module
from leap_core.inference.llama.devices import Device, Placement
from leap_core.inference.llama.library import library
from leap_core.inference.llama.model import LlamaModel
from leap_core.inference.model_parts import open_context

from .conftest import finish, request
from .test_scheduler import words


@pytest.fixture
def model(request: pytest.FixtureRequest, llama_path: Path):
    loaded = LlamaModel(llama_path)
    loaded.on_gpu = True
    yield loaded
    loaded.close()


def test_cells_are_not_moved_on_a_gpu(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = make_scheduler(slots=4)
    monkeypatch.setattr(scheduler._context, "_move", lambda _sequence: pytest.fail("a sequence was moved"))
    for turn in range(3):
        running = [request(words(20 + 7 * n + turn), max_tokens=10 + 9 * n) for n in range(4)]
        for each in running:
            scheduler.submit(each)
        assert [finish(each)[1].stats.completion_tokens for each in running] == [10, 19, 28, 37]
    again = request(words(20), max_tokens=3)
    scheduler.submit(again)
    assert finish(again)[1].stats.cached_prompt_tokens > 0, "what is in memory is used again"


class Watched:
    """llama.cpp, with what models and contexts were made with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self._real = library()
        self.models: list[Any] = []
        self.contexts: list[Any] = []
        for module in modules:
            monkeypatch.setattr(module, "library", lambda: self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def llama_model_load_from_file(self, path: bytes, params: Any) -> Any:
        self.models.append(params)
        return self._real.llama_model_load_from_file(path, params)

    def llama_init_from_model(self, model: Any, params: Any) -> Any:
        self.contexts.append(params)
        return self._real.llama_init_from_model(model, params)


def test_a_model_without_layers_on_a_gpu_gets_no_device(llama_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, model_module)
    LlamaModel(llama_path).close()
    LlamaModel(llama_path, placement=Placement(-1)).close()
    given = [params.devices for params in watched.models]
    assert given[0] and not given[1], "an empty list of devices, and llama.cpp's own choice"


def test_a_context_uses_a_gpu_only_with_layers_there(llama_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, context_module)
    for on_gpu in (False, True):
        loaded = LlamaModel(llama_path)
        loaded.on_gpu = on_gpu
        open_context(loaded, ModelLoadingOptions(slots=1), 4096).close()
        loaded.close()
    plain, offloaded = watched.contexts
    assert not plain.op_offload and not plain.offload_kqv, "long prompts of a model on the CPU stay there"
    assert offloaded.op_offload and offloaded.offload_kqv
    assert (plain.n_batch, plain.n_ubatch) == (512, 512) and (offloaded.n_batch, offloaded.n_ubatch) == (2048, 512)


def test_a_voice_computes_on_the_cpu(llama_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from leap_core.inference.speech import layers

    watched = Watched(monkeypatch, layers)
    stack = layers.StackModel(llama_path)
    layers._StackContext(stack, cells=64, rows=8, sequences=1, exact=True).close()
    stack.close()
    assert watched.models[0].devices and watched.models[0].n_gpu_layers == 0
    assert not watched.contexts[0].op_offload and not watched.contexts[0].offload_kqv


@pytest.mark.parametrize("has_device", [True, False])
def test_a_projector_is_on_the_first_gpu_of_its_model(
    llama_path: Path, monkeypatch: pytest.MonkeyPatch, has_device: bool
) -> None:
    """A build that takes no device uses the first of all, which may be full: then the processor is taken."""
    given = []

    class Mtmd:
        def mtmd_context_params_default(self) -> SimpleNamespace:
            return SimpleNamespace(**({"device": None} if has_device else {}))

        def mtmd_init_from_file(self, path: bytes, model: Any, params: SimpleNamespace) -> None:
            given.append((params.use_gpu, getattr(params, "device", None)))

    monkeypatch.setattr(projector_module, "multimodal_library", Mtmd)
    shown = [Device(11, "CUDA0", "a card", False), Device(22, "CUDA1", "a card", False)]
    monkeypatch.setattr(projector_module, "all_gpus", lambda: shown)
    loaded = LlamaModel(llama_path)
    for on_gpu, devices in ((False, ()), (True, shown[:1]), (True, shown[1:])):
        loaded.placement = Placement(-1 if on_gpu else 0, devices)
        with pytest.raises(LeapModelLoadingError):
            projector_module.Projector(llama_path, loaded, threads=1, use_gpu=on_gpu)._open(1)
    loaded.close()
    assert given == (
        [(False, None), (True, 11), (True, 22)] if has_device else [(False, None), (True, None), (False, None)]
    )


def test_no_state_is_kept_of_a_step_that_cannot_be_interrupted(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = make_scheduler(slots=1)
    monkeypatch.setattr(scheduler._memory, "partial_state", lambda _slot: pytest.fail("a state was copied"))
    asked = request(words(600), max_tokens=2)
    scheduler.submit(asked)
    assert finish(asked)[1].stats.completion_tokens == 2


def test_checkpoints_are_far_apart_on_a_gpu() -> None:
    prompt = PromptTokens((Tokens(tuple(range(9000))),), boundaries=(100, 3000, 6000, 8900))
    assert checkpoints_for(prompt, 0, on_gpu=True) == [100, 2048, 4096, 6144, 8192, 8900]
    assert len(checkpoints_for(prompt, 0)) > 30


FORKED = """
import os, signal, sys
from dataclasses import replace
from leap_core import GenerationOptions, Leap, LeapError, ModelLoadingOptions
from leap_core.inference import model_parts
from leap_core.inference.llama import devices, library
from leap_core.inference.llama.devices import Device
from leap_core.inference.llama.model import LlamaModel

# a device that is the processor itself: what a driver would do in a forked child is to end it
parent = os.getpid()
real = library.library()

class Driver:
    def __getattr__(self, name):
        if os.getpid() != parent and name in ENDS and Driver.on_gpu:
            os.abort()
        return getattr(real, name)

ENDS = ("llama_free", "llama_model_free", "llama_init_from_model", "llama_adapter_lora_init", "llama_decode")
Driver.on_gpu = True
for module in ("context", "embedding_context", "model"):
    __import__(f"leap_core.inference.llama.{module}", fromlist=["library"]).library = Driver
for module in (library, __import__("leap_core.inference.llama.model", fromlist=["x"])):
    module.has_gpu_support = lambda: True
devices.all_gpus = lambda: [Device(1, "CUDA0", "a card", False)]
devices._memory = lambda _: (80 << 30, 80 << 30)
devices.Placement.fill = lambda self, params: []

def answer(runner):
    options = GenerationOptions(max_tokens=4, temperature=0.0)
    return "".join(getattr(part, "text", "") for part in runner.start_text("Hello", options))

gpu, cpu = ModelLoadingOptions(cpu_threads=1, n_gpu_layers=-1), ModelLoadingOptions(cpu_threads=1)
chat, vectors = Leap.load("builtin", gpu), Leap.load_for_embedding("builtin-embed", gpu)
assert chat.on_gpu.layers == vectors.on_gpu.layers == -1
text = answer(chat)
child = os.fork()
if not child:
    signal.alarm(90)
    uses = {
        "answer": lambda: answer(chat),
        "states": lambda: chat.hidden_states("a"),
        "vectors": lambda: vectors.embed(["a"]),
        "number": lambda: Leap.load("builtin", gpu),
        "auto": lambda: Leap.load("builtin", replace(gpu, n_gpu_layers="auto")),
    }
    for name, use in uses.items():
        try:
            use()
        except LeapError as error:
            print(name, error.message, "|", error.hint, flush=True)
    chat.unload()
    vectors.unload()
    Driver.on_gpu = False
    with Leap.load("builtin", cpu) as after:
        assert answer(after) == text
    print("on the CPU it answers", flush=True)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert answer(chat) == text
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_refuses_to_use_a_gpu_and_lives():
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    *refused, after = done.stdout.splitlines()
    assert [line.partition(" ")[0] for line in refused] == ["answer", "states", "vectors", "number", "auto"]
    assert "before this process was forked" in refused[0] and after == "on the CPU it answers"
    assert all("spawn" in line for line in refused[1:])

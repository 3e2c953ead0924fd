"""What the engine does differently where layers are on a GPU, seen on a model that only says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from leap_core.inference.engine.request import PromptTokens, Tokens
from leap_core.inference.engine.scheduler import Scheduler
from leap_core.inference.engine.slots import checkpoints_for
from leap_core.inference.llama.devices import Placement
from leap_core.inference.llama.model import LlamaModel

from .conftest import finish, request
from .test_scheduler import words


@pytest.fixture
def model(request: pytest.FixtureRequest, llama_path: Path):
    loaded = LlamaModel(llama_path)
    loaded.on_gpu = True
    yield loaded
    loaded.close()


def test_cells_stay_where_they_are(make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_model_without_layers_on_a_gpu_gets_no_device(llama_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from leap_core.inference.llama import model as module

    seen = []
    load = module.library().llama_model_load_from_file

    class Library:
        def __getattr__(self, name: str):
            return getattr(module_library, name)

        def llama_model_load_from_file(self, path: bytes, params):
            seen.append(params.devices)
            return load(path, params)

    module_library = module.library()
    monkeypatch.setattr(module, "library", lambda: Library())
    LlamaModel(llama_path).close()
    LlamaModel(llama_path, placement=Placement(-1)).close()
    assert seen[0] and not seen[1], "an empty list of devices, and llama.cpp's own choice"


def test_checkpoints_are_far_apart() -> None:
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

"""What the commands say of GPUs: the devices are made up, the models are the built-in ones."""

from __future__ import annotations

import json

import pytest

from leap_cli.diagnosis import checks as diagnosis
from leap_core.conversation.generator import OnGpu
from leap_core.inference.llama import devices, library
from leap_core.inference.llama.devices import Device
from leap_core.testing import ScriptedModelRunner
from tests.support.random_models import write_random_model

GB = 10**9


@pytest.fixture
def see(monkeypatch):
    """Let the engine see cards with so much free memory."""

    def seen(*free: float) -> None:
        shown = [Device(1, f"CUDA{n}", f"card {n}", False, int(each * GB), 8 * GB) for n, each in enumerate(free)]
        monkeypatch.setattr(devices, "all_gpus", lambda: shown)
        monkeypatch.setattr(devices, "measured", list)

    return seen


def fitting(leap, *arguments: str) -> dict[str, dict]:
    done = leap("models", "fit", *arguments, "--format", "json")
    assert done.code == 0, done.stderr
    return {each["name"]: each for each in json.loads(done.stdout)}


def test_models_fit_shows_what_is_on_the_gpu_and_what_is_not(leap, see):
    asked = ("builtin", "LFM2.5-2.6B:Q8_0", "LFM2.5-24B-A2B")
    see()
    without = fitting(leap, *asked)
    assert all((each["gpu_layers"], each["gpu_memory"]) == (0, 0) for each in without.values())
    assert "GPU" not in leap("models", "fit", "builtin").stdout
    see(6)
    with_one = fitting(leap, *asked)
    builtin = with_one["builtin"]
    assert builtin["gpu_layers"] == -1 and 0 < builtin["gpu_memory"] < 100_000_000
    assert builtin["memory"] < without["builtin"]["memory"]
    whole, part = with_one["LFM2.5-2.6B:Q8_0"], with_one["LFM2.5-24B-A2B:Q4_0"]
    assert whole["gpu_layers"] == -1 and whole["memory"] < 1 * GB < whole["gpu_memory"]
    assert part["gpu_layers"] is None and 4 * GB < part["gpu_memory"] < 6 * GB, "how many layers, nobody knows yet"
    shown = leap("models", "fit", *asked)
    assert "all layers, " in shown.stdout and "in part, " in shown.stdout and "6.0 GB free on the GPU" in shown.stderr


def test_a_model_too_large_for_memory_fits_with_a_card(leap, see):
    see()
    assert not fitting(leap, "LFM2.5-2.6B:Q8_0", "--memory", "3GB")["LFM2.5-2.6B:Q8_0"]["fits"]
    see(2, 4)
    assert fitting(leap, "LFM2.5-2.6B:Q8_0", "--memory", "3GB")["LFM2.5-2.6B:Q8_0"]["fits"]
    see(0.3)
    assert fitting(leap, "LFM2.5-2.6B:Q8_0")["LFM2.5-2.6B:Q8_0"]["gpu_memory"] == 0


def test_models_info_counts_the_card(leap, see):
    see(6)
    info = json.loads(leap("models", "info", "builtin", "--format", "json").stdout)
    assert info["gpu_layers"] == -1 and 0 < info["gpu_memory"] < 100_000_000 and info["memory"] > 0
    assert "all layers, " in leap("models", "info", "builtin").stdout


def test_a_gpu_with_shared_memory_adds_none(leap, monkeypatch):
    shared = Device(1, "Vulkan0", "graphics", True, 10 * GB, 16 * GB)
    monkeypatch.setattr(devices, "all_gpus", lambda: [shared])
    monkeypatch.setattr(devices, "measured", list)
    assert fitting(leap, "builtin")["builtin"]["gpu_memory"] == 0


def test_a_header_with_absurd_numbers_is_counted_at_once(leap, tmp_path, see):
    see(6)
    file = write_random_model(tmp_path / "absurd.gguf")
    data = file.read_bytes()
    for key in ("block_count", "embedding_length"):
        place = data.index(key.encode()) + len(key) + 4
        absurd = data[:place] + b"\xff\xff\xff\x7f" + data[place + 4 :]
        file.write_bytes(absurd)
        done = leap("models", "info", str(file), "--format", "json")
        assert done.code in (0, 3) and "Traceback" not in done.stderr, done.stderr


def facts(**changes: object) -> dict:
    cpu = {"name": "CPU", "description": "a processor", "memory": 16 * GB}
    known = {"engine": "default", "version": "1.0", "devices": [cpu], "gpu_offload": False, "gpu_backends": []}
    unseen = "the engine default is built without a GPU"
    return {**known, "unseen_gpu": unseen, "features": ["AVX2"], **changes}


def test_doctor_says_how_much_of_a_card_is_free():
    card = {"name": "CUDA0", "description": "a card", "memory": 8 * GB, "free": 3 * GB}
    check = diagnosis._engine_check(facts(devices=[card], gpu_offload=True))
    assert check.state == "ok" and "CUDA0 (a card, 3.0 GB of 8.0 GB free); GPU offload" in check.detail


def test_doctor_warns_of_a_build_for_gpus_that_sees_none():
    assert diagnosis._engine_check(facts()).state == "ok"
    unseen = "the engine mine has CUDA and sees no GPU, for CUDA_VISIBLE_DEVICES hides all"
    check = diagnosis._engine_check(facts(engine="mine", gpu_backends=["CUDA"], unseen_gpu=unseen))
    assert check.state == "warning" and unseen in check.detail and "CMAKE_ARGS" not in check.advice


@pytest.mark.parametrize(
    ("backends", "hidden", "says"),
    [
        ([], None, "the engine default is built without a GPU: --gpu-layers 20 has no effect"),
        (["CUDA"], None, "the engine default has CUDA and sees no GPU: --gpu-layers 20 has no effect"),
        (["CUDA"], "", "the engine default has CUDA and sees no GPU, for CUDA_VISIBLE_DEVICES hides all: --gpu-layers"),
        (["CUDA"], "0", "the engine default has CUDA and sees no GPU: --gpu-layers 20 has no effect"),
    ],
)
def test_doctor_explains_why_no_gpu_is_found(leap, monkeypatch, backends, hidden, says):
    monkeypatch.setattr(library, "has_gpu_support", lambda: False)
    monkeypatch.setattr(library, "gpu_backends", lambda: backends)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    leap.script("ok")
    done = leap("generate", "-m", "some", "--gpu-layers", "20", "x")
    assert (done.code, done.stdout) == (0, "ok\n") and done.stderr.startswith(f"leap: {says}"), done.stderr


def test_the_backends_of_a_build_are_listed_without_a_gpu(tmp_path, monkeypatch):
    if library.has_gpu_support():
        pytest.skip("this build computes on a GPU")
    assert library.gpu_backends() == []
    (tmp_path / "libggml-cuda.so").touch()
    (tmp_path / "libggml-cpu.so").touch()
    engine = library.current_engine()
    monkeypatch.setattr(library, "current_engine", lambda: type(engine)("mine", tmp_path, "", ""))
    assert library.gpu_backends() == ["CUDA"]
    assert "the engine mine has CUDA and sees no GPU" in library.unseen_gpu()


def test_a_build_with_only_rpc_has_no_gpu(monkeypatch):
    """llama.cpp's own question says yes for it."""

    class Rpc:
        def llama_supports_gpu_offload(self) -> bool:
            return True

        def ggml_backend_dev_count(self) -> int:
            return 1

        def ggml_backend_dev_get(self, _: int) -> int:
            return 1

        def ggml_backend_dev_type(self, _: int) -> int:
            return library.CPU

    monkeypatch.setattr(library, "library", Rpc)
    assert not library.has_gpu_support()


def test_auto_reports_that_the_gpu_is_too_full(leap, see, monkeypatch):
    see(0.3)
    monkeypatch.setattr(ScriptedModelRunner, "on_gpu", OnGpu())

    def noted(*arguments: str) -> str:
        leap.script("ok")
        done = leap("generate", "-m", "some", *arguments, "x")
        assert (done.code, done.stdout) == (0, "ok\n")
        return done.stderr

    assert "runs on the CPU: no layer fits into the free memory of the GPU (300 MB on CUDA0)" in noted()
    assert noted("--device", "none") == noted("--gpu-layers", "0") == ""
    monkeypatch.setattr(ScriptedModelRunner, "on_gpu", OnGpu(3, 5))
    assert noted() == ""


def test_ps_shows_what_is_on_the_gpu(leap, monkeypatch):
    from leap_core.protocols.host import served_models

    model = {"model": "A", "state": "ready", "size": 5, "memory": 10**6, "context_size": 512, "slots": 1}
    model |= {"slots_in_use": 0, "waiting": 0, "tokens_per_second": None, "expires_in": None, "keep_alive": 0}
    model |= {"gpu_layers": 0, "gpu_memory": 0, "pid": 1, "port": 2}
    monkeypatch.setattr(served_models, "served_models", lambda _: [model])
    assert "GPU" not in leap("ps").stdout
    other = model | {"model": "B", "gpu_layers": 12, "gpu_memory": 2 * GB}
    monkeypatch.setattr(served_models, "served_models", lambda _: [model, other])
    heading, first, second = leap("ps").stdout.splitlines()
    assert heading.split()[:4] == ["MODEL", "SIZE", "MEMORY", "GPU"] and "12 layers, 2.0 GB" in second
    assert [each["gpu_memory"] for each in json.loads(leap("ps", "--format", "json").stdout)] == [0, 2 * GB]


def test_ps_shows_prompt_progress_and_the_queue(leap, monkeypatch):
    from leap_core.protocols.host import served_models

    model = {"model": "A", "state": "ready", "size": 5, "memory": 10**6, "context_size": 512, "slots": 1, "pid": 1}
    model |= {"slots_in_use": 1, "waiting": 3, "tokens_per_second": None, "expires_in": None, "keep_alive": 0}
    model |= {"waiting_by_level": {"interactive": 1, "batch": 2}, "port": 2}
    model |= {"reading": [{"total": 8000, "cache": 0, "processed": 3400, "time_ms": 900}] * 2}
    monkeypatch.setattr(served_models, "served_models", lambda _: [model])
    shown = leap("ps").stdout
    assert "6800/16000 tokens" in shown and "1/1 (+3 waiting: 1 interactive, 2 batch)" in shown


def test_the_same_answer_is_promised_on_a_cpu_alone(leap):
    info = json.loads(leap("models", "info", "builtin", "--format", "json").stdout)
    assert info["same_answer"].startswith("on a CPU")
    (answers,) = diagnosis._answers(leap.environment("", terminal=False, stdin_terminal=False), {})
    assert "the same request gets the same answer on a CPU" in answers
    assert "On a CPU, give the same request" in " ".join(leap("generate", "--help-all").stdout.split())

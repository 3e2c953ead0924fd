"""``leap models quantize``: what is made, what is refused, and what is left when it is given up."""

from __future__ import annotations

import json
import threading

import pytest

from leap_core.errors import LeapError, LeapModelLoadingError, LeapOptionsError
from leap_core.inference.gguf.header import read_gguf_header
from leap_core.inference.gguf.quantize_request import QuantizeRequest
from leap_core.models.builtin import model_path
from leap_core.models.conversion.conversion_child import Stopped
from leap_core.models.conversion.quantizing import (
    Making,
    quantize_into_store,
    quantize_to_file,
    read_importance,
)
from leap_core.models.resolving import resolve_local
from leap_core.models.store import Store


def types_of(path) -> set[str]:
    return {tensor.type for tensor in read_gguf_header(path).tensors}


@pytest.mark.slow
def test_types_are_created_measured_and_found_by_name(leap, whole_model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("What is the capital of France? The capital of France is Paris.\n" * 4)
    arguments = ("--to", "q8_0,Q4_0", "--name", "Small", "--measure", str(text), "--format", "json")
    done = leap("models", "quantize", str(whole_model), *arguments)
    assert done.code == 0, done
    q8, q4 = json.loads(done.stdout)
    assert (q8["name"], q4["name"]) == ("Small-Q8_0", "Small-Q4_0")
    assert q8["before"] > q8["after"] > q4["after"]
    assert 0 <= q8["kl_divergence"] < q4["kl_divergence"]
    assert q8["top1_agreement"] >= q4["top1_agreement"] > 0.3
    assert abs(q8["perplexity"] / q8["source_perplexity"] - 1) < 0.1
    assert "Small-Q8_0: " in done.stderr
    assert resolve_local("Small:Q4_0").path.parent.name == "Small-Q4_0"
    assert "Q4_0" in types_of(resolve_local("Small:Q4_0").path)
    again = leap("models", "quantize", str(whole_model), "--to", "Q8_0", "--name", "Small")
    assert again.code != 0 and "there is a model Small-Q8_0 already" in again.stderr


@pytest.mark.slow
def test_companions_are_copied(leap_home):
    store = Store(leap_home / "models")
    local = resolve_local("builtin-vl")
    request = QuantizeRequest("Q5_0", requantize=True)
    made = quantize_into_store(local, "Eyes", request, store, Making())
    assert resolve_local("Eyes:Q5_0").mm_proj_path == made.path.parent / local.mm_proj_path.name
    assert resolve_local("Eyes:Q5_0").kind == "vision"


@pytest.mark.slow
def test_single_tensors_get_types_of_their_own(whole_model, tmp_path):
    request = QuantizeRequest("Q8_0", tensor_types=(("ffn_down", "Q4_1"),), embedding_type="F16")
    quantize_to_file(whole_model, tmp_path / "mixed.gguf", request, Making())
    header = read_gguf_header(tmp_path / "mixed.gguf")
    types = {tensor.name: tensor.type for tensor in header.tensors}
    assert types["token_embd.weight"] == "F16"
    assert {types[name] for name in types if "ffn_down" in name} == {"Q4_1"}


@pytest.mark.slow
def test_a_projector_is_quantized_to_a_file(tmp_path):
    source = model_path("builtin").with_name("mmproj-builtin-vl.gguf")
    quantize_to_file(source, tmp_path / "mmproj.gguf", QuantizeRequest("Q8_0", requantize=True), Making())
    assert read_gguf_header(tmp_path / "mmproj.gguf").is_projector


@pytest.mark.slow
@pytest.mark.parametrize(
    ("to", "problem"),
    [("IQ2_XXS", "needs to know which weights count"), ("Q1_0", "cannot")],
)
def test_impossible_conversions_are_refused_before_any_work(whole_model, leap_home, to, problem):
    steps = []
    making = Making(lambda *step: steps.append(step))
    with pytest.raises(LeapModelLoadingError, match=problem):
        quantize_into_store(resolve_local(str(whole_model)), "X", QuantizeRequest(to), Store(leap_home / "m"), making)
    assert steps == [] and not list((leap_home / "m").glob("*"))


def test_a_quantized_model_is_not_quantized_again(leap):
    done = leap("models", "quantize", "builtin", "--to", "Q4_0")
    assert done.code != 0 and "quantized already" in done.stderr and "--allow-requantize" in done.stderr


def test_an_unknown_type_lists_the_known_ones():
    with pytest.raises(LeapOptionsError, match="Q4_K_M"):
        QuantizeRequest("Q9_9")


@pytest.mark.slow
def test_a_full_disk_is_reported_before_any_work(whole_model, leap_home, monkeypatch):
    from leap_core.models.conversion import quantizing

    monkeypatch.setattr(quantizing.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1_000_000}))
    store = Store(leap_home / "models")
    with pytest.raises(LeapError, match="GB are needed"):
        quantize_into_store(resolve_local(str(whole_model)), "X", QuantizeRequest("Q8_0"), store, Making())
    assert not list(store.root.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("when", ["first", "last"])
def test_cancelling_leaves_nothing(whole_model, leap_home, monkeypatch, when):
    """Even where the child is done before anyone looks: ``first`` and ``last`` tensors."""
    from leap_core.system import child

    monkeypatch.setattr(child, "LOOK_SECONDS", 3600)
    store, stop = Store(leap_home / "models"), threading.Event()

    def on_tensor(done: int, total: int, name: str) -> None:
        if when == "first" or done == total:
            stop.set()

    making = Making(on_tensor, stop)
    with pytest.raises(Stopped):
        quantize_into_store(resolve_local(str(whole_model)), "X", QuantizeRequest("Q4_K_M"), store, making)
    assert not list(store.root.iterdir())


@pytest.mark.slow
def test_an_importance_matrix_changes_the_weights(whole_model, tmp_path):
    import numpy as np
    from gguf import GGUFWriter

    writer = GGUFWriter(tmp_path / "imatrix.gguf", "imatrix")
    for tensor in read_gguf_header(whole_model).tensors:
        if len(tensor.shape) == 2:
            sums = np.linspace(0.01, 50, tensor.shape[0], dtype=np.float32)[None]
            writer.add_tensor(f"{tensor.name}.in_sum2", sums)
            writer.add_tensor(f"{tensor.name}.counts", np.array([[2.0]], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert read_importance(tmp_path / "imatrix.gguf")["token_embd.weight"][-1] == 25
    for name, imatrix in (("plain", None), ("weighed", tmp_path / "imatrix.gguf")):
        quantize_to_file(whole_model, tmp_path / name, QuantizeRequest("Q4_0", imatrix=imatrix), Making())
    assert (tmp_path / "plain").read_bytes() != (tmp_path / "weighed").read_bytes()
    (tmp_path / "none").write_bytes(b"\x05\x00\x00\x00abc")
    with pytest.raises(LeapModelLoadingError, match="no importance matrix"):
        read_importance(tmp_path / "none")


@pytest.mark.parametrize(
    ("types", "code", "problem"),
    [("Q8_0,Q5_0", 1, "there is a model Two-Q5_0 already"), ("Q4_1,IQ2_XXS", 3, "IQ2_XXS needs to know")],
)
def test_one_refused_type_is_found_before_the_first_is_created(leap, leap_home, whole_model, types, code, problem):
    taken = leap_home / "models" / "Two-Q5_0"
    taken.mkdir(parents=True)
    (taken / "Two-Q5_0.gguf").symlink_to(whole_model)
    done = leap("models", "quantize", str(whole_model), "--to", types, "--name", "Two")
    assert done.code == code and problem in done.stderr
    assert [path.name for path in (leap_home / "models").iterdir() if path.is_dir()] == ["Two-Q5_0"]


@pytest.mark.slow
def test_a_file_is_replaced_only_when_that_is_asked_for(leap, whole_model, tmp_path):
    source, target = tmp_path / "source.gguf", tmp_path / "target.gguf"
    source.write_bytes(whole_model.read_bytes())
    target.write_bytes(b"mine")
    command = ("models", "quantize", "source.gguf", "--to", "Q8_0", "-o")
    for arguments, problem in (
        (("target.gguf",), "target.gguf exists; --replace takes its place"),
        (("source.gguf", "--replace"), "name the same file"),
        (("nowhere/x.gguf",), "there is no directory"),
    ):
        done = leap(*command, *arguments)
        assert done.code == 2 and problem in done.stderr, done
    assert target.read_bytes() == b"mine" and source.read_bytes() == whole_model.read_bytes()
    assert leap(*command, "target.gguf", "--replace").code == 0
    assert "Q8_0" in types_of(target)

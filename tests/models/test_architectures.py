"""What llama.cpp runs is not refused: models of many architectures, all types of tensors, vocabularies on their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from leap_core import Leap
from leap_core.errors import LeapModelLoadingError
from leap_core.inference.gguf.header import read_gguf_header
from leap_core.inference.gguf.tensor_types import TENSOR_TYPES
from leap_core.inference.llama.architectures import check_architecture
from leap_core.inference.trial.trial_child import REFUSED, Subject
from leap_core.inference.trial.verdicts import verdict_on
from tests.support.lengths import usually

from .architectures import ARCHITECTURES, Sizes, architecture_file, write_architecture

NEVER_STORED = {"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64"}
"""Types of values in between, or of tensors that are no matrices."""


@pytest.mark.slow
@pytest.mark.parametrize("label", usually(list(ARCHITECTURES)[::4], ARCHITECTURES))
def test_every_architecture_is_found_sound(tmp_path: Path, label: str) -> None:
    verdict = verdict_on(Subject(write_architecture(tmp_path / f"{label}.gguf", label)), again=True)
    assert verdict is not None and verdict.is_sound and verdict.template is None, verdict
    assert verdict.facts["answers_numbers"], label


@pytest.mark.slow
def test_every_type_of_tensor_that_is_stored_runs(tmp_path: Path) -> None:
    """All in one model, a layer's matrix each, so that one trial does."""
    file = architecture_file("llama", Sizes(width=256, feed_forward=256))
    kinds = [number for number, kind in TENSOR_TYPES.items() if kind.name not in NEVER_STORED]
    matrices = [tensor for tensor in file.tensors if len(tensor.shape) == 2 and b"token_embd" not in tensor.name]
    begun, outcomes = 0, []
    while begun < len(kinds):
        for tensor, kind in zip(matrices, kinds[begun:], strict=False):
            tensor.kind, tensor.data = kind, b"\0"
        begun += len(matrices)
        verdict = verdict_on(Subject(file.write(tmp_path / f"mixed-{begun}.gguf")), again=True)
        outcomes.append(verdict)
    assert len(kinds) >= 25 and all(verdict.is_sound for verdict in outcomes), outcomes


@pytest.mark.slow
@pytest.mark.parametrize("kind", [number for number, kind in TENSOR_TYPES.items()])
def test_the_header_lets_every_type_pass(tmp_path: Path, kind: int) -> None:
    file = architecture_file("llama", Sizes(width=256, feed_forward=256))
    file.tensors[-1].kind, file.tensors[-1].data = kind, b"\0"
    header = read_gguf_header(file.write(tmp_path / "typed.gguf"))
    assert header.tensors[-1].type == TENSOR_TYPES[kind].name


@pytest.mark.slow
@pytest.mark.parametrize("label", ["llama", "bert"])
def test_a_vocabulary_alone_lacks_its_tensors_and_nothing_else(tmp_path: Path, label: str) -> None:
    file = architecture_file(label)
    file.tensors = []
    path = file.write(tmp_path / "vocabulary.gguf")
    assert read_gguf_header(path).vocabulary_size == 600
    verdict = verdict_on(Subject(path), again=True)
    assert verdict.outcome == REFUSED and "'token_embd.weight' not found" in verdict.message


@pytest.mark.slow
def test_unusual_but_sound_headers_pass(tmp_path: Path) -> None:
    file = architecture_file("llama")
    file.set(b"\xff\xfe not UTF-8", 1)
    file.set("general.description", b"x" * (17 * 1024**2), 8)
    file.set(".attention.layer_norm_rms_epsilon", 1.5, 6)
    header = read_gguf_header(path := file.write(tmp_path / "unusual.gguf"))
    assert "\\xff\\xfe not UTF-8" in header.metadata
    assert verdict_on(Subject(path), again=True).is_sound


def test_the_reason_is_told_and_not_the_log_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = architecture_file("phi3")  # which makes llama.cpp warn first
    file.tensors = [tensor for tensor in file.tensors if tensor.name != b"output_norm.weight"]
    path = file.write(tmp_path / "short.gguf")
    with pytest.raises(LeapModelLoadingError) as caught:
        Leap.load(path)
    assert caught.value.message == (
        f"llama.cpp cannot load {path}: check_tensor_dims: tensor 'output_norm.weight' not found"
    )


def test_a_type_of_decision_is_no_architecture():
    with pytest.raises(LeapModelLoadingError) as caught:
        check_architecture("lfm2-d1", "a model")
    assert "b11361" not in str(caught.value.hint)

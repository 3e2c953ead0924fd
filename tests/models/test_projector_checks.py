"""Projector files: each tensor and key over which llama.cpp ends the process is missed in Python first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leap_core.errors import LeapModelLoadingError
from leap_core.inference.gguf.checks import check_projector
from leap_core.inference.gguf.header import GGUFHeader, read_gguf_header
from tests.support.random_models import write_random_model
from tests.support.random_projectors import TINY_AUDIO, TINY_VISION, write_random_projector


@pytest.fixture(scope="module")
def vision(tmp_path_factory: pytest.TempPathFactory) -> GGUFHeader:
    path = tmp_path_factory.mktemp("vision") / "mmproj.gguf"
    return read_gguf_header(write_random_projector(path, 64, vision=TINY_VISION))


@pytest.fixture(scope="module")
def audio(tmp_path_factory: pytest.TempPathFactory) -> GGUFHeader:
    path = tmp_path_factory.mktemp("audio") / "mmproj.gguf"
    return read_gguf_header(write_random_projector(path, 64, audio=TINY_AUDIO, quantization="q8_0"))


def without(header: GGUFHeader, name: str) -> GGUFHeader:
    return replace(header, tensors=tuple(tensor for tensor in header.tensors if tensor.name != name))


def changed(header: GGUFHeader, name: str, **fields: Any) -> GGUFHeader:
    tensors = (replace(tensor, **fields) if tensor.name == name else tensor for tensor in header.tensors)
    return replace(header, tensors=tuple(tensors))


def keyed(header: GGUFHeader, **values: Any) -> GGUFHeader:
    metadata = dict(header.metadata)
    for name, value in values.items():
        key = "clip." + name.replace("__", ".")
        metadata.pop(key, None)
        if value is not None:
            metadata[key] = value
    return replace(header, metadata=metadata)


def test_media_types_of_a_projector(vision: GGUFHeader, audio: GGUFHeader, tmp_path: Path) -> None:
    eyes, ears = check_projector(vision), check_projector(audio)
    assert (eyes.sees, eyes.hears, eyes.width, eyes.longest_seconds) == (True, False, 64, 0.0)
    assert (ears.sees, ears.hears, ears.width, ears.longest_seconds) == (False, True, 64, 60.0)
    both = write_random_projector(tmp_path / "both.gguf", 64, vision=TINY_VISION, audio=TINY_AUDIO)
    info = check_projector(read_gguf_header(both))
    assert info.sees and info.hears


OPTIONAL = ("ln1", "ln2", "v.post_ln", "v.patch_embd.bias", "mm.input_norm")


def is_optional(name: str, header: GGUFHeader) -> bool:
    if any(part in name for part in OPTIONAL):
        return True
    is_vision = name.startswith("v.")
    return name.endswith(".bias") and (is_vision or "ffn_up.bias" in name or "ffn_down.bias" in name)


@pytest.mark.parametrize("which", ["vision", "audio"])
def test_a_missing_required_tensor_is_detected(which: str, request: pytest.FixtureRequest) -> None:
    header = request.getfixturevalue(which)
    for tensor in header.tensors:
        if is_optional(tensor.name, header):
            check_projector(without(header, tensor.name))
        else:
            with pytest.raises(LeapModelLoadingError, match=f"lacks the tensor {tensor.name}"):
                check_projector(without(header, tensor.name))


@pytest.mark.parametrize("which", ["vision", "audio"])
@pytest.mark.parametrize(
    "distort",
    [
        lambda shape: (shape[0] * 2, *shape[1:]),
        lambda shape: (*shape[:-1], shape[-1] + 1),
        lambda shape: (*shape, 2),
        lambda shape: (1,),
    ],
)
def test_every_tensor_of_another_shape_is_refused(
    which: str, distort: Callable[[tuple[int, ...]], tuple[int, ...]], request: pytest.FixtureRequest
) -> None:
    header = request.getfixturevalue(which)
    # Of this table the number of rows is free: it says how long a sound may be.
    for tensor in header.tensors:
        shape = distort(tensor.shape)
        if tensor.name == "a.position_embd.weight" and shape[0] == tensor.shape[0] and len(shape) == 2:
            continue
        with pytest.raises(LeapModelLoadingError, match="no usable projector"):
            check_projector(changed(header, tensor.name, shape=shape))


@pytest.mark.parametrize("which", ["vision", "audio"])
def test_types_that_cannot_be_computed_with_are_refused(which: str, request: pytest.FixtureRequest) -> None:
    header = request.getfixturevalue(which)
    for tensor in header.tensors:
        if tensor.name != "a.position_embd.weight":
            with pytest.raises(LeapModelLoadingError, match="is of type I32"):
                check_projector(changed(header, tensor.name, type="I32"))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"has_vision_encoder": None}, "neither a vision nor an audio encoder"),
        ({"vision__projector_type": "mlp"}, "'mlp'; 'lfm2' can be used"),
        ({"use_gelu": None}, "use_gelu"),
        ({"vision__embedding_length": None}, "lacks the key clip.vision.embedding_length"),
        ({"vision__embedding_length": 63}, "no multiple of its 4 heads"),
        ({"vision__feed_forward_length": 4}, "ffn_up.weight is 64 x 128"),
        ({"vision__block_count": 3}, "lacks the tensor v.blk.2"),
        ({"vision__block_count": 1}, "v.blk.1"),
        ({"vision__block_count": 100_000}, "block_count is 100000"),
        ({"vision__attention__head_count": 0}, "head_count is 0"),
        ({"vision__attention__layer_norm_epsilon": float("nan")}, "epsilon is nan"),
        ({"vision__projection_dim": None}, "projection_dim"),
        ({"vision__image_size": None}, "image_size"),
        ({"vision__patch_size": 14}, "patches of 14 pixels"),
        ({"vision__projector__scale_factor": None}, "scale_factor"),
        ({"vision__projector__scale_factor": 1}, "by 1; 16 by 2"),
        ({"vision__image_mean": [0.5, 0.5]}, "image_mean"),
        ({"vision__image_std": [0.5, 0.0, 0.5]}, "image_std"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_every_key_of_a_vision_tower_is_checked(vision: GGUFHeader, values: dict[str, Any], says: str) -> None:
    with pytest.raises(LeapModelLoadingError, match=says):
        check_projector(keyed(vision, **values))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"audio__projector_type": "ultravox"}, "'lfm2a' can be used"),
        ({"audio__num_mel_bins": 80}, "num_mel_bins is 80"),
        ({"audio__num_mel_bins": None}, "num_mel_bins"),
        ({"audio__attention__head_count": 8}, "pos_bias_u"),
        ({"audio__block_count": 1}, "a.blk.1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_every_key_of_a_conformer_is_checked(audio: GGUFHeader, values: dict[str, Any], says: str) -> None:
    with pytest.raises(LeapModelLoadingError, match=says):
        check_projector(keyed(audio, **values))


def test_unknown_tensors_that_llama_cpp_would_use_are_refused(vision: GGUFHeader) -> None:
    extra = replace(vision.tensors[0], name="v.blk.0.attn_q_norm.weight")
    with pytest.raises(LeapModelLoadingError, match="attn_q_norm.weight has no place"):
        check_projector(replace(vision, tensors=(*vision.tensors, extra)))


def test_a_model_as_projector_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LeapModelLoadingError, match="is a model, not a projector"):
        check_projector(read_gguf_header(write_random_model(tmp_path / "model.gguf")))

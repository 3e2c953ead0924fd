"""The part of an LFM2-VL checkpoint that sees: its tensors and settings as llama.cpp's clip takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import LeapModelLoadingError
from .family import Family
from .safetensors_file import StoredTensor, read_json
from .tensor_plan import PlannedTensor, type_of

PATCH, CHANNELS = 16, 3
IMAGE_SIZE = 256
"""LFM2-VL takes pictures of any size; llama.cpp wants a number."""
LEAST_NAMES = 3
"""Of the name table: the projector's layers count as blocks."""


def plan_projector(family: Family, stored: Mapping[str, StoredTensor], to: str) -> list[PlannedTensor]:
    """The tensors of encoder and projector. Raises LeapModelLoadingError for names that such a model does not have."""
    from gguf import MODEL_ARCH, get_tensor_name_map

    names = get_tensor_name_map(MODEL_ARCH.MMPROJ, max(LEAST_NAMES, _vision(family)["num_hidden_layers"]))
    planned: dict[str, PlannedTensor] = {}
    for tensor in stored.values():
        if "language_model." in tensor.name or tensor.name.startswith("lm_head."):
            continue
        name = tensor.name.replace("model.vision_tower.", "vision_tower.")
        name = name.replace("model.multi_modal_projector.", "multi_modal_projector.")
        new = names.get_name(name, (".weight", ".bias"))
        if new is None or new in planned:
            raise family.refused(f"{tensor.path} has a tensor {tensor.name[:80]!r}, which a {family.hf_name} has not")
        shape, patches = tensor.shape, 0
        if new == "v.patch_embd.weight":
            if len(shape) != 2 or shape[1] != PATCH * PATCH * CHANNELS:
                raise LeapModelLoadingError(f"{family.directory}: patches are {shape}, not {PATCH} x {PATCH} pixels")
            shape, patches = (shape[0], CHANNELS, PATCH, PATCH), PATCH
        if not shape or 0 in shape:
            raise LeapModelLoadingError(f"{family.directory}: {tensor.name} has the shape {shape}")
        planned[new] = PlannedTensor(new, shape, type_of(new, shape, to), (tensor,), patches=patches)
    if not any(name.startswith("mm.") for name in planned) or "v.patch_embd.weight" not in planned:
        raise LeapModelLoadingError(f"{family.directory} lacks its encoder of pictures, or the projector")
    return list(planned.values())


def write_projector_settings(writer: Any, family: Family) -> None:
    """The keys by which clip builds the encoder."""
    vision = _vision(family)
    writer.add_clip_has_vision_encoder(True)
    writer.add_vision_projection_dim(family.number("hidden_size"))
    writer.add_vision_image_size(IMAGE_SIZE)
    writer.add_vision_patch_size(int(vision["patch_size"]))
    writer.add_vision_embedding_length(int(vision["hidden_size"]))
    writer.add_vision_feed_forward_length(int(vision["intermediate_size"]))
    layer = family.whole.get("vision_feature_layer", -1)
    writer.add_vision_block_count(int(vision["num_hidden_layers"]) + int(layer) + 1)
    writer.add_vision_head_count(int(vision["num_attention_heads"]))
    preprocessing: dict[str, Any] = {}
    for name in ("preprocessor_config.json", "processor_config.json"):
        if (family.directory / name).exists():
            value = read_json(family.directory / name)
            preprocessing |= value | dict(value.get("image_processor") or {})
    for key, add in (("image_mean", writer.add_vision_image_mean), ("image_std", writer.add_vision_image_std)):
        values = preprocessing.get(key)
        if not isinstance(values, list) or len(values) != CHANNELS:
            raise LeapModelLoadingError(f"{family.directory / 'preprocessor_config.json'}: {key} is missing")
        add([float(value) for value in values])
    writer.add_clip_projector_type("lfm2")
    writer.add_vision_attention_layernorm_eps(float(vision["layer_norm_eps"]))
    writer.add_vision_projector_scale_factor(int(family.whole.get("downsample_factor", 2)))
    writer.add_vision_use_gelu(True)


def _vision(family: Family) -> dict[str, Any]:
    value = family.whole.get("vision_config")
    if not isinstance(value, dict) or type(value.get("num_hidden_layers")) is not int:
        raise family.unclear("vision_config", value if value is None else "damaged")
    if not 0 < value["num_hidden_layers"] <= 1024:
        raise family.unclear("vision_config.num_hidden_layers", value["num_hidden_layers"])
    return value

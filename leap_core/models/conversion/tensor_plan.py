"""What becomes of a checkpoint's tensors, those of the part that sees included."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import LeapModelLoadingError
from ...system.dataclass import dataclass
from . import bert
from .checkpoint import BERT, LLAMA, MOE, MOST_TOKENS, Family, StoredTensor, read_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

PIECE = 32 * 1024**2
"""Bytes that are read, converted and written at once."""
ALWAYS_F32 = (".ffn_gate_inp.weight", ".shortconv.conv.weight", "position_embd.weight", "token_types.weight")
EXPERT = re.compile(r"model\.layers\.(\d+)\.feed_forward\.experts\.(\d+)\.(w[123])\.weight")
IGNORED = (".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias")
NOT_TEXT = ("vision_", "vision.", "visual.", "projector.", "audio_", "audio.", "patch_embed")


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor of the GGUF, ``shape`` with the fastest dimension last. ``parts``: its pieces along the first dimension.
    ``heads``: of a matrix whose rows llama.cpp wants in another order, 0 where it does not. ``patches``: the side of
    a picture's patches, whose pixels come channel by channel."""

    name: str
    shape: tuple[int, ...]
    type: str
    parts: tuple[StoredTensor, ...]
    heads: int = 0
    patches: int = 0

    @property
    def size(self) -> int:
        """Bytes in the GGUF."""
        elements = 1
        for each in self.shape:
            elements *= each
        return elements // 32 * 34 if self.type == "Q8_0" else elements * (4 if self.type == "F32" else 2)

    def pieces(self) -> Iterator[NDArray[Any]]:
        """Its content, piece by piece, as it is written."""
        for part in self.parts:
            if self.heads or self.patches:
                yield converted(self._rearranged(part), part.dtype, self.type, self.shape[-1])
                continue
            rows = max(1, PIECE // max(1, part.size // max(part.rows, 1)))
            for first in range(0, part.rows, rows):
                yield converted(part.read(first, rows), part.dtype, self.type, self.shape[-1])

    def _rearranged(self, part: StoredTensor) -> NDArray[Any]:
        values = part.read()
        if self.patches:
            side = self.patches
            pictures: NDArray[Any] = values.reshape(len(values), side, side, -1).transpose(0, 3, 1, 2)
            return pictures
        half = values.shape[0] // self.heads // 2
        rows: NDArray[Any] = values.reshape(self.heads, 2, half, *values.shape[1:]).swapaxes(1, 2)
        return rows.reshape(values.shape)


def converted(values: NDArray[Any], source: str, target: str, row: int) -> NDArray[Any]:
    """Values of one of the stored types as those of another, rows of ``row``."""
    import numpy as np
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    if source == target:
        return np.ascontiguousarray(values)
    values = np.ascontiguousarray(values).reshape(-1, row) if row else values
    whole: NDArray[Any] = (
        (values.astype(np.uint32) << 16).view(np.float32) if source == "BF16" else values.astype(np.float32)
    )
    if target == "F32":
        return whole
    with np.errstate(over="ignore", invalid="ignore"):
        result: NDArray[Any] = quantize(whole, GGMLQuantizationType[target])
        return result


def type_of(name: str, shape: tuple[int, ...], to: str) -> str:
    """The type that llama.cpp's converter gives a tensor."""
    if (
        len(shape) <= 1
        or name.endswith(("_norm.weight", *ALWAYS_F32))
        or not name.endswith((".weight", ".lora_a", ".lora_b"))
    ):
        return "F32"
    if name.endswith(".patch_embd.weight"):
        return "F16" if to == "F16" else "F32"
    return "F16" if to == "Q8_0" and shape[-1] % 32 else to


def plan_text(family: Family, stored: Mapping[str, StoredTensor], to: str) -> list[PlannedTensor]:
    """The tensors of the text model. Raises LeapModelLoadingError for names or shapes that its family does not have."""
    from gguf import MODEL_ARCH, get_tensor_name_map

    names = get_tensor_name_map(MODEL_ARCH[family.architecture.upper()], family.blocks)
    planned, experts = dict[str, PlannedTensor](), dict[tuple[str, str], dict[int, StoredTensor]]()
    for tensor in stored.values():
        name = _text_name(family, tensor.name)
        if name is None or name.endswith(IGNORED):
            continue
        if family.architecture == MOE and (match := EXPERT.fullmatch(name)):
            experts.setdefault((match[1], match[3]), {})[int(match[2])] = tensor
            continue
        if name.endswith(".expert_bias"):
            name += ".bias"
        new = names.get_name(name, (".weight", ".bias"))
        if new is None or new in planned:
            raise family.refused(f"{tensor.path} has a tensor {tensor.name[:80]!r}, which a {family.hf_name} has not")
        planned[new] = _planned(new, tensor, family, to)
    for (block, matrix), parts in experts.items():
        new = names.get_name(f"layers.{block}.feed_forward.experts.{matrix}.weight", (".weight",))
        planned[str(new)] = _stacked(family, str(new), f"{block}.{matrix}", parts, to)
    _check(family, planned)
    return list(planned.values())


def _text_name(family: Family, name: str) -> str | None:
    """A tensor's name in a plain text model; None for one of another part of the model."""
    if family.architecture == BERT:
        return bert.tensor_name(name)
    if any(part in name for part in NOT_TEXT):
        return None
    name = name.replace("language_model.", "")
    if family.is_bare and not name.startswith("model."):
        return f"model.{name}"
    if family.sees and not name.startswith(("model.", "lm_head.")):
        return f"model.{name}"
    return name


def _planned(name: str, tensor: StoredTensor, family: Family, to: str) -> PlannedTensor:
    shape, heads = tensor.shape, 0
    if ".shortconv.conv." in name and len(shape) == 3 and shape[1] == 1:
        shape = (shape[0], shape[2])
    if family.architecture == LLAMA and name.endswith(
        (".attn_q.weight", ".attn_k.weight", ".attn_q.bias", ".attn_k.bias")
    ):
        heads = family.number("num_attention_heads")
        if ".attn_k." in name and family.settings.get("num_key_value_heads") is not None:
            heads = family.number("num_key_value_heads")
        if not shape or shape[0] % (2 * heads):
            raise family.refused(f"{tensor.name} has {shape} rows, which {heads} heads cannot share")
    return PlannedTensor(name, shape, type_of(name, shape, to), (tensor,), heads)


def _stacked(family: Family, name: str, what: str, parts: Mapping[int, StoredTensor], to: str) -> PlannedTensor:
    count = family.number("num_experts", most=65536)
    ordered = tuple(parts[n] for n in range(count) if n in parts)
    if len(ordered) != count or len(parts) != count or len({part.shape for part in ordered}) != 1:
        raise LeapModelLoadingError(
            f"{family.directory}: {len(parts)} experts have {what}, and {count} should, all alike"
        )
    shape = (count, *ordered[0].shape)
    return PlannedTensor(name, shape, type_of(name, shape, to), ordered)


def _check(family: Family, planned: Mapping[str, PlannedTensor]) -> None:
    """Hold what every model of these families has against config.json."""
    width, vocabulary = family.number("hidden_size"), family.number("vocab_size", most=MOST_TOKENS)
    embeddings = planned.get("token_embd.weight")
    if embeddings is None:
        raise LeapModelLoadingError(f"{family.directory} has no token embeddings")
    if embeddings.shape != (vocabulary, width):
        raise LeapModelLoadingError(
            f"{family.directory}: the token embeddings have the shape {embeddings.shape}, and config.json says "
            f"{(vocabulary, width)}"
        )
    if family.architecture == BERT:
        bert.check_blocks(family, planned)
    for block in range(family.blocks if family.architecture != BERT else 0):
        for name in (f"blk.{block}.attn_norm.weight", f"blk.{block}.ffn_norm.weight"):
            if name not in planned:
                raise LeapModelLoadingError(f"{family.directory} lacks layer {block}, or parts of it")
            if planned[name].shape != (width,):
                raise LeapModelLoadingError(f"{family.directory}: a norm of layer {block} is not {width} wide")
    for each in planned.values():
        if not each.shape or 0 in each.shape or len(each.shape) > 4:
            raise LeapModelLoadingError(f"{family.directory}: {each.name} has the shape {each.shape}")


def total(planned: Iterable[PlannedTensor]) -> int:
    """Bytes of all of them, with padding between."""
    return sum(each.size + 32 for each in planned)


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

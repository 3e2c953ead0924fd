"""What a LoRA adapter must hold before llama.cpp may see it: pairs of matrices that fit the model's.

Source: llama.cpp's src/llama-adapter.cpp at the pinned version, and convert_lora_to_gguf.py, which writes the files.
"""

from __future__ import annotations

import math

from ...errors import LeapModelLoadingError
from .header import GGUFHeader, TensorInfo

TYPES = {"F32", "F16", "BF16", "Q8_0"}
"""The converter writes matrices of these types."""
TRANSPOSED = "token_embd.weight"
"""Only this matrix has its first factor transposed."""


def check_adapter(adapter: GGUFHeader, model: GGUFHeader) -> None:
    """Hold an adapter's header against the model's. Raises LeapModelLoadingError, saying what does not fit."""
    problem = _problem(adapter, model)
    if problem is not None:
        raise LeapModelLoadingError(
            f"{adapter.path} cannot be used with {model.path.name}: {problem}",
            hint="an adapter belongs to the model it was trained on",
        )


def _problem(adapter: GGUFHeader, model: GGUFHeader) -> str | None:
    values = adapter.metadata
    if values.get("general.type") != "adapter" or values.get("adapter.type") != "lora":
        return "it is no LoRA adapter"
    ours, its = model.metadata.get("general.architecture"), values.get("general.architecture")
    if ours != its:
        return f"it was made for the architecture {its}, and the model's is {ours}"
    alpha = values.get("adapter.lora.alpha")
    if not isinstance(alpha, float) or not math.isfinite(alpha):
        return "its adapter.lora.alpha is no number"
    tensors = {tensor.name: tensor for tensor in adapter.tensors}
    targets = {tensor.name: tensor for tensor in model.tensors}
    names = {_base(name) for name in tensors}
    if not names:
        return "it has no tensors"
    for name in sorted(names):
        problem = _problem_of_pair(name, tensors, targets)
        if problem is not None:
            return problem
    return None


def _base(name: str) -> str:
    for ending in (".lora_a", ".lora_b"):
        if name.endswith(ending):
            return name[: -len(ending)]
    return name


def _problem_of_pair(name: str, tensors: dict[str, TensorInfo], targets: dict[str, TensorInfo]) -> str | None:
    if name in tensors:
        if name.endswith("_norm.weight"):
            return None  # llama.cpp leaves norms out
        return f"its tensor {name} is neither lora_a nor lora_b"
    first, second, target = tensors.get(f"{name}.lora_a"), tensors.get(f"{name}.lora_b"), targets.get(name)
    if first is None or second is None:
        return f"its {name} is half a pair"
    if target is None:
        return f"the model has no tensor {name}"
    for tensor in (first, second):
        if tensor.type not in TYPES:
            return f"its tensor {tensor.name} is of type {tensor.type}"
        if len(tensor.shape) != len(target.shape) or len(target.shape) not in (2, 3):
            return f"its tensor {tensor.name} is no matrix"
        if tensor.shape[2:] != target.shape[2:]:
            return f"its tensor {tensor.name} is of another count of experts"
    inner, outer = target.shape[:2]
    if name == TRANSPOSED:
        fits = (second.shape[1], first.shape[1]) == (inner, outer) and first.shape[0] == second.shape[0]
    else:
        fits = (first.shape[0], second.shape[1]) == (inner, outer) and first.shape[1] == second.shape[0]
    return None if fits else f"its {name} does not have the model's shape"

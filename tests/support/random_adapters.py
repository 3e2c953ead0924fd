"""LoRA adapters with random weights for the models of ``random_models``. Needs the ``gguf`` package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

RANK = 4


def write_random_adapter(
    path: Path,
    model: Path,
    *,
    seed: int = 1,
    alpha: float = 16.0,
    tensors: Sequence[str] = (),
    architecture: str = "",
    half: bool = False,
) -> Path:
    """Write an adapter over ``tensors`` of the model at ``model``; by default a matrix of each kind in every layer.
    ``half``: in F16, otherwise F32."""
    import gguf
    import numpy as np

    random = np.random.default_rng(seed)
    reader = gguf.GGUFReader(model)
    field = reader.get_field("general.architecture")
    assert field is not None
    endings = ("attn_q.weight", "ffn_down.weight", "shortconv.in_proj.weight")
    writer = gguf.GGUFWriter(path, architecture or str(field.contents()))
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for tensor in reader.tensors:
        if tensor.name in tensors or (not tensors and tensor.name.endswith(endings)):
            inner, outer = (int(size) for size in tensor.shape)
            first = random.normal(0, inner**-0.5, (RANK, inner))
            second = random.normal(0, RANK**-0.5, (outer, RANK))
            kind = np.float16 if half else np.float32
            writer.add_tensor(f"{tensor.name}.lora_a", first.astype(kind))
            writer.add_tensor(f"{tensor.name}.lora_b", second.astype(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

"""What a model is to be quantized to."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...errors import LeapOptionsError
from ...system.dataclass import dataclass
from .tensor_types import FILE_TYPES, TENSOR_TYPES

MIXTURES = {name: number for number, name in FILE_TYPES.items()}
ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "MXFP4_MOE": "MXFP4"}
NOT_MADE = ("NVFP4",)
"""llama.cpp runs these and cannot make them."""
TARGETS = tuple(name for name in MIXTURES if name not in NOT_MADE)
TYPES = {kind.name: number for number, kind in TENSOR_TYPES.items()}


@dataclass(frozen=True)
class QuantizeRequest:
    """``to``: the mixture, such as Q4_K_M. ``tensor_types``: (expression over names, type). ``threads``: 0 as many as
    there are processors."""

    to: str
    threads: int = 0
    imatrix: Path | None = None
    tensor_types: tuple[tuple[str, str], ...] = ()
    output_type: str | None = None
    embedding_type: str | None = None
    requantize: bool = False
    pure: bool = False
    keep_split: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", mixture(self.to))
        for kind in (self.output_type, self.embedding_type, *(kind for _, kind in self.tensor_types)):
            if kind is not None and kind.upper() not in TYPES:
                raise LeapOptionsError("tensor_type", f"{kind!r} is no type of tensors: {', '.join(TYPES)}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"imatrix": str(self.imatrix) if self.imatrix else None}

    @staticmethod
    def from_json(value: dict[str, Any]) -> QuantizeRequest:
        imatrix = Path(value["imatrix"]) if value["imatrix"] else None
        types = tuple((pattern, kind) for pattern, kind in value["tensor_types"])
        return QuantizeRequest(**value | {"imatrix": imatrix, "tensor_types": types})


def mixture(name: str) -> str:
    """The proper name of a mixture. Raises LeapOptionsError for one that llama.cpp cannot make."""
    proper = ALIASES.get(name.upper(), name.upper())
    if proper not in TARGETS:
        raise LeapOptionsError("to", f"llama.cpp cannot make {name!r}; it makes {', '.join(TARGETS)}")
    return proper

"""Which family a checkpoint is of: its architecture in GGUF, its settings, how its tensors are called and changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import LeapModelLoadingError
from .safetensors_file import read_json

LFM2, MOE, LLAMA = "lfm2", "lfm2moe", "llama"
ARCHITECTURES = {
    "Lfm2ForCausalLM": LFM2,
    "LFM2ForCausalLM": LFM2,
    "Lfm2Model": LFM2,
    "Lfm2BidirectionalModel": LFM2,
    "Lfm2MoeForCausalLM": MOE,
    "Lfm2VlForConditionalGeneration": LFM2,
    "LlamaForCausalLM": LLAMA,
}
BARE = ("Lfm2Model", "Lfm2BidirectionalModel")
"""Without a language model's head: their tensors are called without ``model.``."""
VISION = "Lfm2VlForConditionalGeneration"
MOST_BLOCKS, MOST_TOKENS = 1024, 4_000_000
CONVERTER = "python convert_hf_to_gguf.py {} --outfile model.gguf"


@dataclass(frozen=True)
class Family:
    """``settings``: config.json, the text model's part over it. ``whole``: config.json as it is."""

    directory: Path
    hf_name: str
    architecture: str
    settings: dict[str, Any]
    whole: dict[str, Any] = field(repr=False, default_factory=dict)

    @property
    def blocks(self) -> int:
        return self.number("num_hidden_layers", most=MOST_BLOCKS)

    @property
    def is_bare(self) -> bool:
        return self.hf_name in BARE

    @property
    def sees(self) -> bool:
        return self.hf_name == VISION

    def number(self, key: str, *, most: int = 2**31 - 1) -> int:
        """A positive whole number of config.json. Raises LeapModelLoadingError."""
        value = self.settings.get(key)
        if type(value) is not int or not 0 < value <= most:
            raise self.unclear(key, value)
        return value

    def real(self, *keys: str) -> float:
        """A number of config.json under the first of these keys that is there."""
        for key in keys:
            value = self.settings.get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e30:
                return float(value)
        raise self.unclear(keys[0], self.settings.get(keys[0]))

    def unclear(self, key: str, value: object) -> LeapModelLoadingError:
        what = "is missing" if value is None else f"is {str(value)[:60]}, which cannot be"
        return LeapModelLoadingError(f"{self.directory / 'config.json'}: {key} {what}")

    def refused(self, why: str) -> LeapModelLoadingError:
        """The error for what only llama.cpp's own converter does."""
        return other_converter(self.directory, why)


def other_converter(directory: Path, why: str) -> LeapModelLoadingError:
    return LeapModelLoadingError(why, hint=f"llama.cpp's own converter may: {CONVERTER.format(directory)}")


def read_family(directory: Path) -> Family:
    """The family of a checkpoint. Raises LeapModelLoadingError for one that leap does not convert."""
    if not directory.is_dir():
        hint = "give the one that holds config.json and *.safetensors"
        raise LeapModelLoadingError(f"there is no directory {directory}", hint=hint)
    whole = read_json(directory / "config.json")
    names = whole.get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None
    if name is None:
        raise LeapModelLoadingError(f"{directory / 'config.json'}: architectures is missing, so this is no checkpoint")
    if name not in ARCHITECTURES:
        known = "LFM2 (dense, MoE, VL, embedding, ColBERT) and Llama"
        raise other_converter(directory, f"{directory} is a {name[:60]}; leap converts {known}")
    text = whole.get("text_config")
    family = Family(directory, name, ARCHITECTURES[name], {**whole, **(text if isinstance(text, dict) else {})}, whole)
    if whole.get("quantization_config"):
        raise family.refused(f"{directory} is quantized already")
    scaling = family.settings.get("rope_parameters") or family.settings.get("rope_scaling") or {}
    kind = (scaling.get("rope_type") or scaling.get("type")) if isinstance(scaling, dict) else "unknown"
    if kind not in (None, "default"):
        raise family.refused(f"{directory} stretches its positions by {str(kind)[:20]!r}, which leap does not convert")
    if family.architecture == LLAMA and family.settings.get("num_local_experts"):
        raise family.refused(f"{directory} is a mixture of experts of the Llama shape")
    return family

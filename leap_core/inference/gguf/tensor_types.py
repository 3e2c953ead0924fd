"""Names and sizes of ggml's tensor types, and the architectures that this llama.cpp knows.

Source: ``LLM_ARCH_NAMES`` in llama-arch.cpp, as llama-cpp-python 0.3.36 vendors it.

The numbers are those of ``enum ggml_type`` (ggml.h) and ``enum llama_ftype`` (llama.h), as llama-cpp-python 0.3.36
vendors them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ...errors import LeapModelLoadingError


class TensorType(NamedTuple):
    """A block of ``block`` elements takes ``bytes`` bytes."""

    name: str
    block: int
    bytes: int


TENSOR_TYPES = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    9: TensorType("Q8_1", 32, 36),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    15: TensorType("Q8_K", 256, 292),
    16: TensorType("IQ2_XXS", 256, 66),
    17: TensorType("IQ2_XS", 256, 74),
    18: TensorType("IQ3_XXS", 256, 98),
    19: TensorType("IQ1_S", 256, 50),
    20: TensorType("IQ4_NL", 32, 18),
    21: TensorType("IQ3_S", 256, 110),
    22: TensorType("IQ2_S", 256, 82),
    23: TensorType("IQ4_XS", 256, 136),
    24: TensorType("I8", 1, 1),
    25: TensorType("I16", 1, 2),
    26: TensorType("I32", 1, 4),
    27: TensorType("I64", 1, 8),
    28: TensorType("F64", 1, 8),
    29: TensorType("IQ1_M", 256, 56),
    30: TensorType("BF16", 1, 2),
    34: TensorType("TQ1_0", 256, 54),
    35: TensorType("TQ2_0", 256, 66),
    39: TensorType("MXFP4", 32, 17),
    40: TensorType("NVFP4", 64, 36),
    41: TensorType("Q1_0", 128, 18),
    42: TensorType("Q2_0", 64, 18),
}

FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}


ENGINE = "llama-cpp-python 0.3.36"
# fmt: off
KNOWN = frozenset(
    {
        "afmoe", "apertus", "arcee", "arctic", "arwkv7", "baichuan", "bailingmoe", "bailingmoe2", "bailingmoe3",
        "bert", "bitnet", "bloom", "chameleon", "chatglm", "clip", "codeshell", "cogvlm", "cohere2",
        "cohere2moe", "command-r", "dbrx", "deci", "deepseek", "deepseek2", "deepseek2-ocr", "deepseek32",
        "deepseek4", "dflash", "dots1", "dots3note", "dream", "eagle3", "ernie4_5", "ernie4_5-moe", "eurobert",
        "exaone", "exaone-moe", "exaone4", "falcon", "falcon-h1", "gemma", "gemma-embedding", "gemma2",
        "gemma3", "gemma3n", "gemma4", "gemma4-assistant", "glm-dsa", "glm4", "glm4moe", "glm5-next", "gpt-oss",
        "gpt2", "gptj", "gptneox", "granite", "granite_swa", "granitehybrid", "granitemoe", "graniteswitch",
        "grok", "grovemoe", "hrm_text", "hunyuan-dense", "hunyuan-moe", "hunyuan_vl", "hy_v3", "hy_v4",
        "internlm2", "jais", "jais2", "jamba", "jina-bert-v2", "jina-bert-v3", "kimi-k3", "kimi-linear",
        "laguna", "lfm2", "lfm2moe", "llada", "llada-moe", "llama", "llama-embed", "llama4", "maincoder",
        "mamba", "mamba2", "maple", "mellum", "mimo2", "minicpm", "minicpm3", "minimax-01", "minimax-m2",
        "minimax-m3", "mistral3", "mistral4", "modern-bert", "mpt", "muse-glimmer", "nanbeige", "nemotron",
        "nemotron_h", "nemotron_h_moe", "neo-bert", "nomic-bert", "nomic-bert-moe", "olmo", "olmo2", "olmoe",
        "openelm", "orion", "paddleocr", "pangu-embedded", "phi2", "phi3", "phimoe", "plamo", "plamo2",
        "plamo3", "plm", "pockettts", "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen35", "qwen35moe",
        "qwen3moe", "qwen3next", "qwen3tts", "qwen3vl", "qwen3vlmoe", "qwen4exp", "refact", "rnd1", "rwkv6",
        "rwkv6qwen2", "rwkv7", "seed_oss", "smallthinker", "smollm3", "spark2_5", "stablelm", "starcoder",
        "starcoder2", "step35", "t5", "t5encoder", "talkie", "wavtokenizer-dec", "xverse",
    }
)
# fmt: on
SINCE = {"lfm3": "b11960 (v0.8.0)"}
"""The first llama.cpp that runs an architecture which this one does not."""
DECISIONS_SINCE = {"lfm2-d1-omni": "b11524"}
"""The first llama.cpp that computes a kind of model for decisions which this one does not."""
RENAMED = {"lfm2-bidir": "files of June 2026 with this name load nowhere; download the model again"}
DRAFTS = frozenset({"dflash", "eagle3"})
"""Models that only draft for a larger one, whose inner values they read: LFM2.5-DSpark is dflash."""
KEY = b"general.architecture"
STRING = 8
MOST_BYTES_BEFORE = 4096
"""Writers put the architecture first, so the first kilobytes of a file are enough to read it."""


def check_architecture(architecture: str, where: str) -> None:
    """Raises LeapModelLoadingError for one that this llama.cpp does not know, or of drafts, which leap does not run;
    ``where`` names the model."""
    if architecture in DRAFTS:
        raise LeapModelLoadingError(
            f"{where} is a draft for a larger model ({architecture}), and leap runs no draft models",
            hint="run the larger model without it",
        )
    if architecture in KNOWN or not architecture:
        return
    if architecture in RENAMED:
        hint = RENAMED[architecture]
    elif architecture in SINCE:
        hint = f"it needs llama.cpp {SINCE[architecture]} or newer, and this leap has {ENGINE}; a newer leap may run it"
    else:
        hint = f"this leap has {ENGINE}; a newer one may know it"
    raise LeapModelLoadingError(f"{where} has the architecture {architecture!r}, which is unknown here", hint=hint)


def check_decisions(kind: str, where: str) -> None:
    """Raises LeapModelLoadingError for a kind of model for decisions (``<architecture>.decision.type``) that this
    llama.cpp cannot compute; ``where`` names the model."""
    if kind in DECISIONS_SINCE:
        raise LeapModelLoadingError(
            f"{where} is made for decisions of the kind {kind!r}, which is unknown here",
            hint=f"it needs llama.cpp {DECISIONS_SINCE[kind]} or newer, and this leap has {ENGINE}",
        )


def architecture_in(opening: bytes) -> str:
    """The architecture that the first bytes of a GGUF file name, empty where they do not."""
    return _text_in(opening, KEY)


def decisions_in(opening: bytes) -> str:
    """The kind of model for decisions that the first bytes of a GGUF file name, empty where they do not."""
    return _text_in(opening, f"{architecture_in(opening)}.decision.type".encode())


def _text_in(opening: bytes, key: bytes) -> str:
    record = struct.pack("<Q", len(key)) + key + struct.pack("<I", STRING)
    start = opening.find(record, 0, MOST_BYTES_BEFORE)
    if not opening.startswith(b"GGUF") or start < 0:
        return ""
    at = start + len(record)
    length = int.from_bytes(opening[at : at + 8], "little")
    return opening[at + 8 : at + 8 + length].decode("utf-8", "replace") if 0 < length <= 64 else ""

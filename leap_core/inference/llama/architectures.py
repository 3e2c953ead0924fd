"""Which architectures of models, and kinds of models for decisions, an engine runs."""

from __future__ import annotations

import struct

from ...errors import LeapModelLoadingError
from .engines import Engine
from .library import current_engine

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
SINCE = {"lfm3": "b11960", "lfm2-d1-omni": "b11524", "lfm3-d1": "b11960", "lfm3-d1-omni": "b11960"}
"""The first llama.cpp that runs an architecture, or a kind of model for decisions, which that of leap does not."""
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
    engine = current_engine()
    if engine.knows(architecture):
        return
    hint = RENAMED.get(architecture) or needs_of(SINCE.get(architecture), engine)
    raise LeapModelLoadingError(f"{where} has the architecture {architecture!r}, which is unknown here", hint=hint)


def check_decisions(kind: str, where: str) -> None:
    """Raises LeapModelLoadingError for a kind of model for decisions (``<architecture>.decision.type``) that this
    llama.cpp cannot compute; ``where`` names the model."""
    if kind in SINCE and not (engine := current_engine()).knows(kind):
        raise LeapModelLoadingError(
            f"{where} is made for decisions of the kind {kind!r}, which is unknown here",
            hint=needs_of(SINCE[kind], engine),
        )


def runs_from(build: str) -> bool:
    """Whether this engine runs what the first build of llama.cpp in SINCE that is called so runs."""
    names = [name for name, since in SINCE.items() if since == build]
    return bool(names) and current_engine().knows(names[0])


def needs_of(build: str | None, engine: Engine) -> str:
    """What to do about a model that this engine is too old for."""
    needs = "" if build is None else f"it needs llama.cpp {build} or newer; "
    return f"{needs}the engine {engine.name} is {engine.version}, `leap engine install` gets a newer one"


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

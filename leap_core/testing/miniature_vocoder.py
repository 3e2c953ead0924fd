"""The vocoder of the miniature speech model: tables that lead from its hidden states to codes, and from codes to tones.

Its layers do nothing (their output projections are zero), so that each frame is a look-up: the first code from what the
hidden state says, each further code from the one before it, and the pitch from the mean of the eight.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from .random_vocoder import ARCHITECTURE
from .tone_places import FRAMES, INTERLEAVED_FRAMES, INTERLEAVED_TEXT, PLACES, TONES, WIDTH

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Table = NDArray[float32]

CODES, CODEBOOKS, N_FFT = 2049, 8, 1280
END_CODE = CODES - 1
STRIDE = 5
"""Codebook j has the first codebook's code plus this many times j."""
DEPTH_WIDTH, DEPTH_HEAD, SOUND_WIDTH, FEED_FORWARD = 64, 32, 64, 32
LAYERS = ("conv", "attention", "conv")
AMPLITUDE = 0.3
SILENCE, LOUDNESS = -15.0, 8.0
"""The log-magnitude of what is not heard, and the size of a tone's number in the detokenizer."""


def write_miniature_vocoder(path: Path) -> None:
    """Write the vocoder in the merged layout."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    writer.add_uint32("depthformer_n_layer", 1)
    writer.add_uint32("depthformer_n_embd", DEPTH_WIDTH)
    tables = _depthformer() | _sounds()
    for name, table in tables.items():
        is_exact = table.ndim == 1 or table.shape[1] == 3 or name == "lin.weight"
        writer.add_tensor(name, table if is_exact else table.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _steps() -> list[tuple[str, str, str]]:
    """(tone, what the hidden state says before the frame, what it says after): the frames, in the order of codes."""
    steps = []
    for word in TONES:
        for n in range(FRAMES.get(word, 1)):
            steps.append((word, f"heard {word} {n - 1}" if n else "read <|audio_start|>", f"heard {word} {n}"))
        if word not in FRAMES:
            steps.append((word, f"heard {word} 0", f"heard {word} 0"))
    for word in TONES:
        for n in range(INTERLEAVED_FRAMES):
            before = {0: f"read {INTERLEAVED_TEXT[5]}", 12: "read <|text_end|>"}.get(n, f"heard interleaved {n - 1}")
            steps.append((word, before, f"heard interleaved {n}"))
    return steps


def _depthformer() -> dict[str, Table]:
    import numpy as np

    steps = list(enumerate(_steps(), start=1))
    last = [f"heard {word} {FRAMES[word] - 1}" for word in FRAMES] + [f"heard interleaved {INTERLEAVED_FRAMES - 1}"]
    words = sorted({before for _, (_, before, _) in steps} | {f"asked {word}" for word in TONES} | set(last))
    number = {place: n for n, place in enumerate(words)}
    linear, first = _zeros(CODEBOOKS * DEPTH_WIDTH, WIDTH), _zeros(CODES, DEPTH_WIDTH)
    for place, n in number.items():
        linear[n, PLACES[place]] = 1.0
    read = _zeros(CODEBOOKS * CODES, WIDTH)
    for code, (word, before, after) in steps:
        first[code, number[before]] = 20.0
        first[code, number[f"asked {word}"]] = 10.0
        read[code, PLACES["always"]] = read[code, PLACES[after]] = 1.0
    for place in last:
        first[END_CODE, number[place]] = 20.0
    read[END_CODE, PLACES["always"]] = read[END_CODE, PLACES["end of sound"]] = 1.0
    signs = np.random.default_rng(1).choice(np.array([-1.0, 1.0], np.float32), (CODES, DEPTH_WIDTH))
    tables = {"depth_linear.weight": linear, "depth_linear.bias": np.zeros(len(linear), np.float32)}
    tables["audio_embedding.embedding.weight"] = read
    for codebook in range(CODEBOOKS):
        start = f"depth_embeddings.{codebook}."
        follow = _zeros(CODES, DEPTH_WIDTH)
        for code, _ in steps:
            follow[code + STRIDE * codebook] = signs[code + STRIDE * (codebook - 1)]
        tables[start + "embedding.weight"] = signs
        tables[start + "embedding_norm.weight"] = np.ones(DEPTH_WIDTH, np.float32)
        tables[start + "to_logits.weight"] = follow if codebook else first
    start = "depthformer.layers.0."
    for norm in ("operator_norm", "ffn_norm"):
        tables[f"{start}{norm}.weight"] = np.ones(DEPTH_WIDTH, np.float32)
    for norm in ("q_layernorm", "k_layernorm"):
        tables[f"{start}operator.attention.{norm}.weight"] = np.ones(DEPTH_HEAD, np.float32)
    tables[start + "operator.qkv_proj.weight"] = _zeros(2 * DEPTH_WIDTH, DEPTH_WIDTH)
    tables[start + "operator.out_proj.weight"] = _zeros(DEPTH_WIDTH, DEPTH_WIDTH)
    for part in ("w1", "w3"):
        tables[f"{start}feed_forward.{part}.weight"] = _zeros(FEED_FORWARD, DEPTH_WIDTH)
    tables[start + "feed_forward.w2.weight"] = _zeros(DEPTH_WIDTH, FEED_FORWARD)
    return tables


def _sounds() -> dict[str, Table]:
    """The detokenizer: a table from codes to the number of a tone, idle layers, and a spectrum for each tone."""
    import numpy as np

    codes = _zeros(CODEBOOKS * END_CODE, SOUND_WIDTH)
    numbers = {word: n for n, word in enumerate(TONES)}
    for code, (word, _, _) in enumerate(_steps(), start=1):
        for codebook in range(CODEBOOKS):
            codes[codebook * END_CODE + code + STRIDE * codebook, numbers[word]] = LOUDNESS
    spectra, bias = _zeros(N_FFT + 2, SOUND_WIDTH), np.zeros(N_FFT + 2, np.float32)
    bias[: N_FFT // 2 + 1] = SILENCE
    gain = N_FFT / 2 * 0.75  # of a Hann window whose hops are a quarter of it
    for word, hertz in TONES.items():
        bin_ = hertz * N_FFT // 24_000
        spectra[bin_, numbers[word]] = (math.log(AMPLITUDE * gain) - SILENCE) / LOUDNESS
    tables = {"emb.emb.weight": codes, "lin.weight": spectra, "lin.bias": bias}
    tables["lfm.embedding_norm.weight"] = np.ones(SOUND_WIDTH, np.float32)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(N_FFT) / N_FFT)
    tables["istft.window"] = window.astype(np.float32)
    for n, kind in enumerate(LAYERS):
        start = f"lfm.layers.{n}."
        for norm in ("operator_norm", "ffn_norm"):
            tables[f"{start}{norm}.weight"] = np.ones(SOUND_WIDTH, np.float32)
        for part in ("w1", "w3"):
            tables[f"{start}feed_forward.{part}.weight"] = _zeros(FEED_FORWARD, SOUND_WIDTH)
        tables[f"{start}feed_forward.w2.weight"] = _zeros(SOUND_WIDTH, FEED_FORWARD)
        if kind == "conv":
            tables[f"{start}conv.conv.weight"] = _zeros(SOUND_WIDTH, 3)
            tables[f"{start}conv.in_proj.weight"] = _zeros(3 * SOUND_WIDTH, SOUND_WIDTH)
            tables[f"{start}conv.out_proj.weight"] = _zeros(SOUND_WIDTH, SOUND_WIDTH)
            continue
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            rows = DEPTH_HEAD if part in ("k_proj", "v_proj") else SOUND_WIDTH
            tables[f"{start}self_attn.{part}.weight"] = _zeros(rows, SOUND_WIDTH)
        for norm in ("q_layernorm", "k_layernorm"):
            tables[f"{start}self_attn.{norm}.weight"] = np.ones(DEPTH_HEAD, np.float32)
    return tables


def _zeros(rows: int, columns: int) -> Table:
    import numpy as np

    return np.zeros((rows, columns), np.float32)

"""``leap models convert`` of a BERT-kind embedding model: the vectors are those of the network computed with numpy."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from leap_core.conversation.options import ModelLoadingOptions
from leap_core.errors import LeapModelLoadingError
from leap_core.inference.embedding_runner import InProcessEmbeddingRunner
from leap_core.models.conversion.converting import convert_text
from leap_core.models.conversion.quantizing import Making

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))
import checkpoints  # noqa: E402

WIDTH, HEADS, INNER, LAYERS = 32, 2, 64, 2
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "##s", "sit", "dog", "##ged", "."]
CONFIG = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 64,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "position_embedding_type": "absolute",
    "type_vocab_size": 2,
    "vocab_size": len(VOCABULARY),
}
LAYER = {
    "attention.self.query": (WIDTH, WIDTH),
    "attention.self.key": (WIDTH, WIDTH),
    "attention.self.value": (WIDTH, WIDTH),
    "attention.output.dense": (WIDTH, WIDTH),
    "intermediate.dense": (INNER, WIDTH),
    "output.dense": (WIDTH, INNER),
}


def random_tensors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)

    def norm(name: str) -> dict[str, np.ndarray]:
        return {f"{name}.weight": 1 + random.normal(0, 0.1, WIDTH), f"{name}.bias": random.normal(0, 0.1, WIDTH)}

    made = {
        "embeddings.word_embeddings.weight": random.normal(0, 1, (len(VOCABULARY), WIDTH)),
        "embeddings.position_embeddings.weight": random.normal(0, 0.3, (64, WIDTH)),
        "embeddings.token_type_embeddings.weight": random.normal(0, 0.3, (2, WIDTH)),
        **norm("embeddings.LayerNorm"),
        "pooler.dense.weight": random.normal(0, 0.3, (WIDTH, WIDTH)),
        "pooler.dense.bias": random.normal(0, 0.3, WIDTH),
    }
    for block in range(LAYERS):
        for name, shape in LAYER.items():
            made[f"encoder.layer.{block}.{name}.weight"] = random.normal(0, 0.2, shape)
            made[f"encoder.layer.{block}.{name}.bias"] = random.normal(0, 0.2, shape[0])
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            made |= norm(f"encoder.layer.{block}.{name}")
    return {name: values.astype(np.float32) for name, values in made.items()}


def write_checkpoint(directory: Path, *, lowercase: bool = True, **config: object) -> Path:
    directory.mkdir()
    checkpoints.write_safetensors(directory / "model.safetensors", random_tensors(), "F32")
    (directory / "config.json").write_text(json.dumps({**CONFIG, **config}))
    tokenizer = {
        "normalizer": {"type": "BertNormalizer", "lowercase": lowercase},
        "model": {"type": "WordPiece", "vocab": {token: number for number, token in enumerate(VOCABULARY)}},
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    return directory


def embedded(tensors: dict[str, np.ndarray], tokens: list[int]) -> np.ndarray:
    """The mean of the last layer, of unit length."""

    def linear(values: np.ndarray, name: str) -> np.ndarray:
        return values @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]

    def normed(values: np.ndarray, name: str) -> np.ndarray:
        centered = values - values.mean(-1, keepdims=True)
        unit = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12)
        return unit * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    def gelu(values: np.ndarray) -> np.ndarray:
        return np.vectorize(lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2)(values)

    hidden = tensors["embeddings.word_embeddings.weight"][tokens]
    hidden = hidden + tensors["embeddings.position_embeddings.weight"][: len(tokens)]
    hidden = normed(hidden + tensors["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for block in range(LAYERS):
        name = f"encoder.layer.{block}"
        query, key, value = (
            linear(hidden, f"{name}.attention.self.{part}").reshape(len(tokens), HEADS, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = np.exp(query @ key.transpose(0, 2, 1) / math.sqrt(WIDTH / HEADS))
        mixed = (scores / scores.sum(-1, keepdims=True) @ value).transpose(1, 0, 2).reshape(len(tokens), WIDTH)
        attended = linear(mixed, f"{name}.attention.output.dense")
        hidden = normed(hidden + attended, f"{name}.attention.output.LayerNorm")
        inner = gelu(linear(hidden, f"{name}.intermediate.dense"))
        hidden = normed(hidden + linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
    mean = hidden.mean(0)
    return mean / np.linalg.norm(mean)


@pytest.mark.slow
def test_a_converted_bert_embeds_as_the_network_does(tmp_path):
    directory = write_checkpoint(tmp_path / "bert")
    convert_text(directory, tmp_path / "bert.gguf", "F32", Making())
    options = ModelLoadingOptions(cpu_threads=1, flash_attention=False)
    runner = InProcessEmbeddingRunner(tmp_path / "bert.gguf", "bert", options)
    try:
        vectors = np.array(runner.embed(["Cats sit.", "a dogged cat"]))
    finally:
        runner.unload()
    tensors = random_tensors()
    for vector, tokens in zip(vectors, ([2, 6, 7, 8, 11, 3], [2, 5, 9, 10, 6, 3]), strict=True):
        assert float(vector @ embedded(tensors, tokens) / np.linalg.norm(vector)) > 0.999


def test_a_bert_of_another_kind_is_refused(tmp_path):
    for number, changes in enumerate(({"lowercase": False}, {"hidden_act": "relu"})):
        directory = write_checkpoint(tmp_path / str(number), **changes)
        with pytest.raises(LeapModelLoadingError, match=r"case-sensitive|hidden_act"):
            convert_text(directory, tmp_path / "bert.gguf", "F32", Making())

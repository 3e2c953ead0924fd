"""Damaged model files without end: the same seed and number give the same bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

from leap_core.inference.gguf.tensor_types import TENSOR_TYPES
from tests.support.random_models import TINY_LFM2, write_random_model

from .architectures import ARCHITECTURES, architecture_file
from .gguf_file import ARRAY, STRING, GGUFFile, Tensor, Value

NUMBERS = (0, 1, 2, 3, 7, 15, 33, 63, 64, 65, 255, 511, 512, 513, 4095, 2**16, 2**20 + 1, 2**31 - 1, 2**31, 2**32 - 1)
FRACTIONS = (0.0, -1.0, 1.0, 1e-30, 1e30, -1e30, float("inf"), float("-inf"), float("nan"), 1e-5)
FOREIGN_KEYS = (
    *("expert_count", "expert_used_count", "expert_shared_count", "expert_group_count", "expert_feed_forward_length"),
    *("nextn_predict_layers", "rope.dimension_count", "rope.freq_base", "rope.scaling.factor", "pooling_type"),
    *("rope.scaling.original_context_length", "attention.key_length", "attention.value_length", "vocab_size"),
    *("attention.sliding_window", "attention.head_count", "attention.head_count_kv", "embedding_length"),
    *("feed_forward_length", "block_count", "context_length", "shortconv.l_cache", "ssm.state_size", "ssm.conv_kernel"),
    *("ssm.inner_size", "ssm.time_step_rank", "ssm.group_count", "attention.causal", "leading_dense_block_count"),
    *("embedding_length_out", "logit_scale", "attention.layer_norm_rms_epsilon", "rope.dimension_sections"),
)
TOKEN_TEXTS = (b"", b"\0", b"a\0b", b"\xff\xfe", b"a" * 70_000, b"<0x00>", b" ", b"\n", "é".encode(), b"<|im_end|>")


class Mutants:
    """``seed`` decides all; ``make(number)`` gives a mutant's label and bytes."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.seed = seed
        self.files = {label: architecture_file(label) for label in ARCHITECTURES}
        self.files["lfm2"] = GGUFFile.read(write_random_model(directory / "sound-lfm2.gguf", TINY_LFM2))
        self.labels = ["lfm2", "lfm2", "lfm2", *sorted(ARCHITECTURES)]
        self.sound = {label: file.encoded() for label, file in self.files.items()}

    def make(self, number: int) -> tuple[str, bytes]:
        chance = random.Random(f"{self.seed} {number}")
        label = chance.choice(self.labels)
        change = chance.choice(CHANGES)
        name = f"{label} {change.__name__}"
        if change in BYTE_CHANGES:
            return name, change(chance, self.sound[label])
        file = deepcopy(self.files[label])
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            change(chance, file)
        try:
            return name, file.encoded()
        except (struct.error, TypeError, ZeroDivisionError) as error:  # a value that its type cannot hold
            return f"{name} ({type(error).__name__})", one_byte(chance, self.sound[label])


def _header_length(data: bytes) -> int:
    return min(len(data), 40_000)


def one_byte(chance: random.Random, data: bytes) -> bytes:
    damaged = bytearray(data)
    damaged[chance.randrange(8, _header_length(data))] = chance.randrange(256)
    return bytes(damaged)


def some_bits(chance: random.Random, data: bytes) -> bytes:
    damaged = bytearray(data)
    for _ in range(chance.randrange(1, 6)):
        damaged[chance.randrange(4, 6_000)] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def truncation(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(len(data))]


def longer(chance: random.Random, data: bytes) -> bytes:
    where = chance.randrange(24, _header_length(data))
    return data[:where] + chance.randbytes(chance.randrange(1, 40)) + data[where:]


def scalar(chance: random.Random, file: GGUFFile) -> None:
    keys = [key for key, value in file.values.items() if value.kind not in (STRING, ARRAY)]
    value = file.values[chance.choice(keys)]
    value.value = chance.choice(FRACTIONS) if value.kind in (6, 12) else _fitting(value.kind, chance.choice(NUMBERS))


def _fitting(kind: int, number: int) -> int | bool:
    bits = {0: 8, 1: 7, 2: 16, 3: 15, 4: 32, 5: 31, 7: 1, 10: 64, 11: 63}[kind]
    return bool(number & 1) if kind == 7 else number & ((1 << bits) - 1)


def known_key(chance: random.Random, file: GGUFFile) -> None:
    key = "." + chance.choice(FOREIGN_KEYS)
    if chance.random() < 0.2:
        file.values[file.architecture.encode() + key.encode()] = Value(
            ARRAY, [chance.choice(NUMBERS) for _ in range(chance.choice((0, 1, 2, 4, 600)))], 4
        )
    elif chance.random() < 0.2:
        file.set(key, chance.choice(FRACTIONS), 6)
    else:
        file.set(key, chance.choice(NUMBERS), 4)


def value_type(chance: random.Random, file: GGUFFile) -> None:
    key = chance.choice(list(file.values))
    kind = chance.choice((0, 1, 4, 5, 6, 7, STRING, 10, 12))
    value = chance.choice(NUMBERS)
    file.values[key] = Value(
        kind, b"text" if kind == STRING else float(value) if kind in (6, 12) else _fitting(kind, value)
    )


def missing_key(chance: random.Random, file: GGUFFile) -> None:
    file.values.pop(chance.choice(list(file.values)))


def text(chance: random.Random, file: GGUFFile) -> None:
    keys = [key for key, value in file.values.items() if value.kind == STRING]
    file.values[chance.choice(keys)].value = chance.choice(
        (b"", b"\0", b"x" * 5000, b"gpt2", b"llama", b"bert", b"t5", b"rwkv", b"none", b"no_vocab", b"{{", b"{{ x }}")
        + (b"{% for a in range(9**9) %}{% endfor %}", b"yarn", b"longrope", b"qwen2", b"plamo2", b"default")
    )


def other_architecture(chance: random.Random, file: GGUFFile) -> None:
    old = file.architecture
    others = ("t5", "rwkv6", "clip", "deepseek2", "gemma3n", "lfm2moe", "bert", "qwen2vl", "dflash")
    new = chance.choice([*others, *ARCHITECTURES])
    file.values = {
        (new + key.decode()[len(old) :]).encode() if key.startswith(old.encode() + b".") else key: value
        for key, value in file.values.items()
    }
    file.set("general.architecture", new.encode(), STRING)


def array_length(chance: random.Random, file: GGUFFile) -> None:
    keys = [key for key, value in file.values.items() if value.kind == ARRAY]
    value = file.values[chance.choice(keys)]
    if chance.random() < 0.5:
        value.value = value.value[: chance.randrange(len(value.value) + 1)]
    else:
        value.value = value.value + value.value[: chance.randrange(1, 300)]


def array_items(chance: random.Random, file: GGUFFile) -> None:
    keys = [key for key, value in file.values.items() if value.kind == ARRAY]
    value = file.values[chance.choice(keys)]
    for _ in range(chance.randrange(1, 20)):
        where = chance.randrange(len(value.value)) if value.value else 0
        if not value.value:
            return
        if value.element == STRING:
            value.value[where] = chance.choice(TOKEN_TEXTS)
        else:
            value.value[where] = _fitting(value.element or 4, chance.choice(NUMBERS))


def tensor_type(chance: random.Random, file: GGUFFile) -> None:
    tensor = chance.choice(file.tensors)
    tensor.kind = chance.choice(list(TENSOR_TYPES))
    if tensor.shape and tensor.shape[0] % TENSOR_TYPES[tensor.kind].block:
        tensor.kind = chance.choice((0, 1, 24, 25, 26, 27, 28, 30))


def tensor_shape(chance: random.Random, file: GGUFFile) -> None:
    tensor = chance.choice(file.tensors)
    shape = list(tensor.shape)
    where = chance.randrange(len(shape))
    shape[where] = chance.choice((0, 1, 2, 32, 63, 64, 65, 128, 600, 1024, shape[where] + 1, shape[where] * 2))
    chance.shuffle(shape) if chance.random() < 0.3 else None
    tensor.shape = tuple(shape[: chance.randrange(1, 5)])


def tensor_name(chance: random.Random, file: GGUFFile) -> None:
    tensor = chance.choice(file.tensors)
    tensor.name = chance.choice(
        (b"", b"x", tensor.name + b"x", tensor.name[:-1], b"output.weight", b"rope_freqs.weight")
    )


def tensor_gone(chance: random.Random, file: GGUFFile) -> None:
    file.tensors.pop(chance.randrange(len(file.tensors)))


def tensor_more(chance: random.Random, file: GGUFFile) -> None:
    other = chance.choice(file.tensors)
    name = chance.choice((b"rope_freqs.weight", b"output.weight", b"blk.0.attn_q.bias", b"blk.99.x", b"dense_2.weight"))
    file.tensors.append(Tensor(name, other.shape, other.kind, other.data))


def tensor_bytes(chance: random.Random, file: GGUFFile) -> None:
    tensor = chance.choice(file.tensors)
    tensor.data = chance.choice((b"\xff", b"\0", b"\x7f\x80", chance.randbytes(64)))


BYTE_CHANGES: tuple[Callable, ...] = (one_byte, some_bits, truncation, longer)
CHANGES: tuple[Callable, ...] = (
    *(one_byte, one_byte, one_byte, some_bits, truncation, longer, scalar, scalar, known_key, known_key, value_type),
    *(missing_key, text, other_architecture, array_length, array_items, array_items, tensor_type, tensor_type),
    *(tensor_shape, tensor_name, tensor_gone, tensor_more, tensor_bytes),
)

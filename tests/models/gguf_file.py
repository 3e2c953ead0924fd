"""A GGUF file in parts that can be changed one by one and written again, sound or not."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leap_core.inference.gguf.tensor_types import TENSOR_TYPES

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
ALIGNMENT = 32


@dataclass
class Value:
    """A value of the metadata: its type's number, and the elements' type of an array."""

    kind: int
    value: Any
    element: int | None = None

    def encoded(self) -> bytes:
        if self.kind == ARRAY:
            assert self.element is not None
            head = struct.pack("<IQ", self.element, len(self.value))
            return head + b"".join(encode(self.element, item) for item in self.value)
        return encode(self.kind, self.value)


@dataclass
class Tensor:
    name: bytes
    shape: tuple[int, ...]
    kind: int
    data: bytes

    @property
    def size(self) -> int:
        kind = TENSOR_TYPES[self.kind]
        count = 1
        for each in self.shape:
            count *= each
        return count // kind.block * kind.bytes


@dataclass
class GGUFFile:
    values: dict[bytes, Value] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)

    @staticmethod
    def read(path: Path) -> GGUFFile:
        return _Reader(path.read_bytes()).file()

    @property
    def architecture(self) -> str:
        return self.values[b"general.architecture"].value.decode()

    def own_key(self, name: str) -> bytes:
        return f"{self.architecture}.{name}".encode()

    def set(self, key: str | bytes, value: Any, kind: int = 4) -> None:
        """Put a value there; a key that begins with a dot is the architecture's."""
        key = key.encode() if isinstance(key, str) else key
        if key.startswith(b"."):
            key = self.architecture.encode() + key
        self.values[key] = Value(kind, value)

    def encoded(self) -> bytes:
        """The file's bytes. Tensors get as many bytes as their shapes and types want."""
        head = [struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.values))]
        for key, value in self.values.items():
            head += [struct.pack("<Q", len(key)), key, struct.pack("<I", value.kind), value.encoded()]
        offset, data = 0, []
        for tensor in self.tensors:
            size = tensor.size
            head += [struct.pack("<Q", len(tensor.name)), tensor.name, struct.pack("<I", len(tensor.shape))]
            head += [struct.pack("<Q", each) for each in tensor.shape]
            head.append(struct.pack("<IQ", tensor.kind, offset))
            padded = -(-size // ALIGNMENT) * ALIGNMENT
            filler = tensor.data or b"\0"
            data.append((filler * (size // len(filler) + 1))[:size].ljust(padded, b"\0"))
            offset += padded
        header = b"".join(head)
        return header.ljust(-(-len(header) // ALIGNMENT) * ALIGNMENT, b"\0") + b"".join(data)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.encoded())
        return path


def encode(kind: int, value: Any) -> bytes:
    if kind == STRING:
        return struct.pack("<Q", len(value)) + value
    return struct.pack(SCALARS[kind], value)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 8

    def take(self, layout: str) -> Any:
        value = struct.unpack_from(layout, self.data, self.at)[0]
        self.at += struct.calcsize(layout)
        return value

    def text(self) -> bytes:
        length = self.take("<Q")
        self.at += length
        return self.data[self.at - length : self.at]

    def value(self, kind: int) -> Any:
        return self.text() if kind == STRING else self.take(SCALARS[kind])

    def file(self) -> GGUFFile:
        tensor_count, pairs = self.take("<Q"), self.take("<Q")
        values = {}
        for _ in range(pairs):
            key, kind = self.text(), self.take("<I")
            if kind == ARRAY:
                element, count = self.take("<I"), self.take("<Q")
                values[key] = Value(ARRAY, [self.value(element) for _ in range(count)], element)
            else:
                values[key] = Value(kind, self.value(kind))
        records = []
        for _ in range(tensor_count):
            name, dimensions = self.text(), self.take("<I")
            shape = tuple(self.take("<Q") for _ in range(dimensions))
            records.append((name, shape, self.take("<I"), self.take("<Q")))
        start = -(-self.at // ALIGNMENT) * ALIGNMENT
        tensors = []
        for name, shape, kind, offset in records:
            tensor = Tensor(name, shape, kind, b"")
            tensor.data = self.data[start + offset : start + offset + tensor.size]
            tensors.append(tensor)
        return GGUFFile(values, tensors)

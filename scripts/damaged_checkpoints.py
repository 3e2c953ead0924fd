"""Damage checkpoints in a seeded way and convert them: each has to end in one clear line, or in a sound model.

python scripts/damaged_checkpoints.py [COUNT] [SEED]
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from checkpoints import write_checkpoint

from leap_core.builtin import model_path
from leap_core.conversion.converting import convert_text
from leap_core.conversion.quantizing import Making
from leap_core.errors import LeapError

STRANGE: list[Any] = [
    None,
    -1,
    0,
    2**63,
    2**200,
    1e400,
    "x",
    [],
    {},
    [[]],
    True,
    "\x00",
    "../../etc/passwd",
    [2**62] * 9,
]
SETTINGS = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
MOST_MEMORY = 1024**3


def damage(directory: Path, chance: random.Random) -> str:
    """Do one harm to a checkpoint; what it was."""
    weights = chance.choice(sorted(directory.glob("*.safetensors")))
    kind = chance.choice(["cut", "length", "entry", "bytes", "missing", "index", "link", "setting", "json", "pipe"])
    data = weights.read_bytes()
    length = int.from_bytes(data[:8], "little")
    if kind == "cut":
        weights.write_bytes(data[: chance.choice([0, 4, 8, length // 2, length + 8, len(data) - 1])])
    elif kind == "length":
        weights.write_bytes(chance.choice([0, 1, length + 9, 2**40, 2**63 - 1]).to_bytes(8, "little") + data[8:])
    elif kind == "entry":
        header = json.loads(data[8 : 8 + length])
        name = chance.choice([each for each in header if each != "__metadata__"])
        key = chance.choice(["dtype", "shape", "data_offsets", "all", "name"])
        value = chance.choice([*STRANGE, "F8_E4M3", "I64", "F32", [0, 10], [-4, 4], [8, 2**50], [1, 1, 1, 1, 1]])
        if key == "name":
            header[str(value)] = header.pop(name)
        elif key == "all":
            header[name] = value
        else:
            header[name][key] = value
        text = json.dumps(header).encode()
        weights.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    elif kind == "bytes":
        changed = bytearray(data)
        for _ in range(8):
            changed[chance.randrange(8 + length)] = chance.randrange(256)
        weights.write_bytes(changed)
    elif kind == "missing":
        (directory / chance.choice([weights.name, *SETTINGS[:2]])).unlink()
    elif kind == "index":
        index = directory / "model.safetensors.index.json"
        value = json.loads(index.read_text())
        name = chance.choice(list(value["weight_map"]))
        value["weight_map"][name] = chance.choice(
            ["../x.safetensors", "/etc/passwd", "", ".", "no.safetensors", 7, None, "a\nb"]
        )
        index.write_text(json.dumps(value))
    elif kind == "link":
        weights.unlink()
        weights.symlink_to(chance.choice([weights.name, "/dev/zero", ".", "/nowhere"]))
    elif kind == "setting":
        path = directory / chance.choice(SETTINGS[:2])
        value = json.loads(path.read_text())
        value[chance.choice(list(value))] = chance.choice(STRANGE)
        path.write_text(json.dumps(value))
    elif kind == "json":
        path = directory / chance.choice([*SETTINGS, "model.safetensors.index.json"])
        path.write_text(chance.choice(["", "[" * 100_000, "null", "[]", "{", '{"a":' * 50_000, "\ufeff{}", "7"]))
    else:
        path = directory / chance.choice([weights.name, *SETTINGS, "README.md", "chat_template.jinja"])
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    return kind


def outcome(source: Path, folder: Path, seed: int) -> tuple[str, str]:
    """What was done to a copy of a checkpoint, and the line in which converting it ended; empty for a sound one.
    Raises whatever is no LeapError."""
    copy = shutil.copytree(source, folder / f"damaged-{seed}")
    try:
        kind = damage(copy, random.Random(seed))
        try:
            convert_text(copy, folder / f"made-{seed}.gguf", "F16", Making())
        except LeapError as error:
            return kind, error.message
        finally:
            (folder / f"made-{seed}.gguf").unlink(missing_ok=True)
        return kind, ""
    finally:
        shutil.rmtree(copy)


def main() -> int:
    count, first = (
        (int(each) for each in (*sys.argv[1:], "200", "1")[:2]) if len(sys.argv) < 3 else map(int, sys.argv[1:3])
    )
    bad = sound = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = write_checkpoint(folder / "whole", "lfm2", model_path("builtin"), shards=3)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for seed in range(first, first + count):
            try:
                kind, line = outcome(source, folder, seed)
            except Exception as error:
                bad += 1
                print(f"{seed}: {type(error).__name__}: {error}")
                continue
            sound += not line
            if "\n" in line:
                bad += 1
                print(f"{seed} {kind}: several lines: {line!r}")
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(f"{count} damaged checkpoints: {bad} bad ends, {sound} still sound, {grown / 1e6:.0f} MB more memory")
    return 1 if bad or grown > MOST_MEMORY else 0


if __name__ == "__main__":
    sys.exit(main())

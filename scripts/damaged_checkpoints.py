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

from checkpoints import write_adapter, write_checkpoint

from leap_core.errors import LeapError
from leap_core.models.builtin import model_path
from leap_core.models.conversion.adapters import convert_adapter
from leap_core.models.conversion.converting import convert_projector, convert_text
from leap_core.models.conversion.quantizing import Making

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
FAMILIES = ("lfm2", "moe", "vl", "colbert", "llama", "adapter")
INDEX = "model.safetensors.index.json"
MOST_MEMORY = 1024**3
LONGEST_LINE = 600


def damage(directory: Path, chance: random.Random) -> str:
    """Do one harm to a checkpoint; what it was."""
    weights = chance.choice(sorted(directory.rglob("*.safetensors")))
    settings = [path.name for path in sorted(directory.glob("*.json")) if path.name != INDEX]
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
        chance.choice([weights, *(directory / name for name in settings)]).unlink()
    elif kind == "index" and (directory / INDEX).exists():
        index = directory / INDEX
        value = json.loads(index.read_text())
        name = chance.choice(list(value["weight_map"]))
        value["weight_map"][name] = chance.choice(
            ["../x.safetensors", "/etc/passwd", "", ".", "no.safetensors", 7, None, "a\nb"]
        )
        index.write_text(json.dumps(value))
    elif kind == "link":
        weights.unlink()
        weights.symlink_to(chance.choice([weights.name, "/dev/zero", ".", "/nowhere"]))
    elif kind in ("setting", "index"):
        path = directory / chance.choice(settings)
        value = json.loads(path.read_text())
        part = value[0] if isinstance(value, list) else value
        while any(isinstance(each, dict) and each for each in part.values()) and chance.random() < 0.5:
            part = chance.choice([each for each in part.values() if isinstance(each, dict) and each])
        part[chance.choice(list(part))] = chance.choice(STRANGE)
        path.write_text(json.dumps(value))
    elif kind == "json":
        path = directory / chance.choice([*settings, INDEX])
        path.write_text(chance.choice(["", "[" * 100_000, "null", "[]", "{", '{"a":' * 50_000, "\ufeff{}", "7"]))
    else:
        path = directory / chance.choice([weights.name, *settings, "README.md", "chat_template.jinja"])
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    return kind


def sources(folder: Path) -> dict[str, Path]:
    """A sound checkpoint of each family, and an adapter with its base, ``base.gguf``, beside it."""
    made = {family: folder / f"whole-{family}" for family in FAMILIES}
    for family in FAMILIES[:-1]:
        write_checkpoint(made[family], family, model_path("builtin"), shards=3 if family == "lfm2" else 1)
    write_adapter(made["adapter"], "lfm2", "base")
    convert_text(made["lfm2"], folder / "base.gguf", "F16", Making())
    return made


def outcome(source: Path, family: str, folder: Path, seed: int) -> tuple[str, str]:
    """What was done to a copy of a checkpoint, and the line in which converting it ended; empty for a sound one.
    Raises whatever is no LeapError."""
    copy, made = shutil.copytree(source, folder / f"damaged-{seed}"), folder / f"made-{seed}.gguf"
    try:
        kind = damage(copy, random.Random(seed))
        try:
            if family == "adapter":
                convert_adapter(copy, folder / "base.gguf", made)
            else:
                convert_text(copy, made, "F16", Making())
            if family == "vl":
                convert_projector(copy, made, "F16", Making())
        except LeapError as error:
            return kind, error.message
        finally:
            made.unlink(missing_ok=True)
        return kind, ""
    finally:
        shutil.rmtree(copy)


def main() -> int:
    numbers = [int(each) for each in sys.argv[1:]]
    count, first = [*numbers, *(200, 1)[len(numbers) :]]
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for family, source in sources(folder).items():
            sound = 0
            for seed in range(first, first + count):
                try:
                    kind, line = outcome(source, family, folder, seed)
                except Exception as error:
                    bad += 1
                    print(f"{family} {seed}: {type(error).__name__}: {error}")
                    continue
                sound += not line
                if "\n" in line or len(line) > LONGEST_LINE:
                    bad += 1
                    print(f"{family} {seed} {kind}: {len(line)} characters: {line[:200]!r}")
            print(f"{family}: {count} damaged, {sound} still sound")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{bad} bad ends; peak memory of the process {peak / 1e6:.0f} MB, of which the largest tensor has 0.3 MB")
    return 1 if bad or peak > MOST_MEMORY else 0


if __name__ == "__main__":
    sys.exit(main())

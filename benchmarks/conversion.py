"""Converting and quantizing a large checkpoint, against llama.cpp's programs in one run, and the memory that it takes.

    python benchmarks/conversion.py [--gigabytes 1] [--to Q8_0] [--llama-cpp DIR --python PATH] [--quantize PATH]

The checkpoint is an LFM2 with random weights in bf16, larger than the memory that leap may take. ``--llama-cpp``: a
source tree of llama.cpp, whose convert_hf_to_gguf.py is run by ``--python``, which needs torch; ``--quantize``:
llama-quantize. The programs are run in turn, and the best run of each counts; the processor's time stands beside the
clock's, which others on the machine disturb. Memory is the peak (VmHWM) of leap's process and of its children.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from harness import SHORT

from leap_core.models.builtin import model_path
from scripts import checkpoints
from scripts.compare_conversion import PATCHED

LOOK_SECONDS = 0.02
BOUND = 1024**3
"""Bytes over the largest tensor that converting may take."""


def write_large_checkpoint(directory: Path, size: float) -> int:
    """A checkpoint of about ``size`` bytes, written tensor by tensor; the bytes of its largest tensor."""
    if not SHORT:
        checkpoints.WIDTH, checkpoints.INNER, checkpoints.HEADS, checkpoints.GROUPS = 2048, 7168, 32, 8
    directory.mkdir(parents=True, exist_ok=True)
    vocabulary = checkpoints.write_tokenizer(directory, model_path("builtin"))
    a_block = 2 * sum(np.prod(shape) for name, shape in _shapes(vocabulary, 1).items() if ".layers." in name)
    blocks = max(3, round(size / a_block))
    shapes = _shapes(vocabulary, blocks)
    settings = checkpoints.settings_of("lfm2", vocabulary)
    (directory / "config.json").write_text(json.dumps(settings))
    entries, at = {}, 0
    for name, shape in shapes.items():
        entries[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + 2 * int(np.prod(shape))]}
        at = entries[name]["data_offsets"][1]
    header = json.dumps(entries).encode()
    random = np.random.default_rng(1)
    with (directory / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for name, shape in shapes.items():
            values = random.standard_normal(shape, np.float32) * np.float32(0.02) + np.float32("norm" in name)
            file.write(checkpoints._as_bf16(values))
    return max(2 * int(np.prod(shape)) for shape in shapes.values())


def _shapes(vocabulary: int, blocks: int) -> dict[str, tuple[int, ...]]:
    checkpoints.BLOCKS = blocks
    checkpoints.KINDS = ["full_attention" if n % 3 == 2 else "conv" for n in range(blocks)]
    return checkpoints.shapes_of("lfm2", vocabulary)


def timed(command: Sequence[str], variables: dict[str, str]) -> tuple[float, float, dict[str, int]]:
    """Seconds by the clock and of the processor, and the peak memory of the process and of its children in bytes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    process = subprocess.Popen(
        command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    peaks: dict[int, int] = {}
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, peaks, ended))
    watcher.start()
    output = process.communicate()[0]
    took = time.perf_counter() - start
    ended.set()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}\n{output.decode(errors='replace')[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = peaks.pop(process.pid, 0)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, used, {"process": own, "largest child": max(peaks.values(), default=0)}


def _watch(pid: int, peaks: dict[int, int], ended: threading.Event) -> None:
    while not ended.wait(LOOK_SECONDS):
        for each in _family(pid):
            try:
                text = Path(f"/proc/{each}/status").read_text()
            except OSError:
                continue
            peak = next((line.split()[1] for line in text.splitlines() if line.startswith("VmHWM")), "0")
            peaks[each] = max(peaks.get(each, 0), int(peak) * 1024)


def _family(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:
                continue
    return found


def compare(name: str, sides: dict[str, list[str]], variables: dict[str, str], repeat: int, target: Path) -> None:
    """Run both sides in turn, and print the best of each."""
    best: dict[str, tuple[float, float]] = {}
    peaks: dict[str, dict[str, int]] = {}
    for _ in range(repeat):
        for side, command in sides.items():
            target.unlink(missing_ok=True)
            took, used, memory = timed(command, variables)
            old = best.get(side, (took, used))
            best[side] = (min(old[0], took), min(old[1], used))
            peaks[side] = {key: max(value, peaks.get(side, {}).get(key, 0)) for key, value in memory.items()}
    target.unlink(missing_ok=True)
    for side, (took, used) in best.items():
        memory = ", ".join(f"{key} {value / 1e6:,.0f} MB" for key, value in peaks[side].items())
        print(f"{name}, {side}: {took:.1f} s, {used:.1f} s of the processor; peak of the {memory}", flush=True)
    if len(best) == 2:
        (ours, theirs) = best.values()
        print(f"{name}: {theirs[0] / ours[0]:.2f} of their speed, {theirs[1] / ours[1]:.2f} by the processor's time")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.1)
    parser.add_argument("--to", default="Q8_0")
    parser.add_argument("--types", default="Q4_K_M")
    parser.add_argument("--llama-cpp", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--quantize", type=Path)
    parser.add_argument("--repeat", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        largest = write_large_checkpoint(folder / "large", options.gigabytes * 1e9)
        size = (folder / "large" / "model.safetensors").stat().st_size
        print(
            f"a checkpoint of {size / 1e9:.2f} GB, its largest tensor {largest / 1e6:.0f} MB; "
            f"load {os.getloadavg()[0]:.1f}"
        )
        variables = {"LEAP_HOME": str(folder / "home")}
        leap = [sys.executable, "-m", "leap_cli", "models"]
        made, whole = folder / "made.gguf", folder / "whole.gguf"
        convert = {"leap": [*leap, "convert", str(folder / "large"), "--to", options.to, "-o", str(made)]}
        if options.llama_cpp:
            arguments = [str(folder / "large"), "--outtype", options.to.lower(), "--outfile", str(made)]
            program = PATCHED.format(folder=str(options.llama_cpp), pre="lfm2", arguments=arguments)
            convert["llama.cpp"] = [options.python, "-c", program]
        compare(f"convert to {options.to}", convert, variables, options.repeat, made)
        subprocess.run(
            [*leap, "convert", str(folder / "large"), "-o", str(whole)], check=True, env={**os.environ, **variables}
        )
        for to in options.types.split(","):
            quantize = {"leap": [*leap, "quantize", str(whole), "--to", to, "-o", str(made)]}
            if options.quantize:
                quantize["llama.cpp"] = [str(options.quantize), str(whole), str(made), to, str(os.cpu_count())]
            compare(f"quantize to {to}", quantize, variables, options.repeat, made)
        _, _, peak = timed([*leap, "convert", str(folder / "large"), "--to", "BF16", "-o", str(made)], variables)
        over = peak["process"] - largest
        print(f"memory of converting over the largest tensor: {over / 1e6:.0f} MB of {BOUND / 1e6:.0f} MB allowed")
        return 1 if over > BOUND else 0


if __name__ == "__main__":
    sys.exit(main())

"""How long a search over many vectors takes, and how much of the exact answer the quick way finds.

    python benchmarks/search.py --chunks 100000 --dimensions 1024

Random vectors in clusters, written as an index's vector file; searched exactly (every number) and as leap does.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from leap_core.tasks.search import vector_table
from leap_core.tasks.search.vector_table import VectorTable

CLUSTERS, QUERIES, BEST = 2000, 12, 10


def random_table(directory: Path, count: int, width: int) -> VectorTable:
    """A table whose arrays are mapped files, as those of an index are."""
    chance = np.random.default_rng(1)
    centres = chance.standard_normal((CLUSTERS, width), np.float32)
    vectors = np.memmap(directory / "vectors", np.float16, "w+", shape=(count, width))
    for start in range(0, count, 20_000):
        rows = centres[chance.integers(0, CLUSTERS, min(20_000, count - start))]
        rows = rows + chance.standard_normal(rows.shape, np.float32)
        vectors[start : start + len(rows)] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    mean = vectors[:: max(1, count // 10_000)].astype(np.float32).mean(axis=0)
    signs = np.memmap(directory / "signs", np.uint8, "w+", shape=(count, width // 8))
    for start in range(0, count, 20_000):
        signs[start : start + 20_000] = np.packbits(vectors[start : start + 20_000] > mean, axis=1)
    return VectorTable(np.arange(count), vectors, signs, mean)


def measure(table: VectorTable, queries: np.ndarray) -> tuple[float, list[list[int]]]:
    """Median milliseconds of a search, and what each found."""
    times, found = [], []
    for query in queries:
        begun = time.perf_counter()
        ids, _ = table.nearest(query, BEST)
        times.append(time.perf_counter() - begun)
        found.append(ids.tolist())
    return statistics.median(times[2:]) * 1000, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=1024)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        table = random_table(Path(directory), arguments.chunks, arguments.dimensions)
        queries = table.vectors[:: arguments.chunks // QUERIES][:QUERIES].astype(np.float32)
        quick, found = measure(table, queries)
        vector_table.EXACT_NUMBERS = 2**62
        exact, right = measure(table, queries)
    shared = sum(len(set(a) & set(b)) for a, b in zip(found, right, strict=True)) / (BEST * len(found))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{arguments.chunks:,} vectors of {arguments.dimensions}: {quick:.0f} ms, exactly {exact:.0f} ms;")
    print(f"{shared:.1%} of the ten nearest are found; peak memory with the mapped files {memory:.0f} MB")


if __name__ == "__main__":
    main()

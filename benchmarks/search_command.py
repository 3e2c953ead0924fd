"""From the start of ``leap search`` to its answer, over an index of many passages.

    python benchmarks/search_command.py --chunks 100000

The index is made of random words and vectors, as large as real ones are; the question's vector is made by the built-in
encoder, which ``leap load`` keeps warm, or which the command loads (``--cold``). Processes, not functions, are timed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from leap_core import Leap
from leap_core.system.directories import Directories
from leap_core.tasks.search.index_file import IndexFile, IndexSettings
from leap_core.tasks.search.searching import Searcher
from leap_core.tasks.search.vector_table import open_table

WORDS, WORDS_OF_A_CHUNK, BLOCK = 50_000, 60, 5_000
QUESTIONS = ("w17 w230 w4999", "where is w42 and how does w777 work?", "w3 w5 w8 w13 w21")


def fill(path: Path, count: int, fingerprint: str, width: int) -> None:
    """An index of ``count`` chunks, without the time that reading files and making vectors would take."""
    path.parent.mkdir(parents=True)
    with IndexFile(path) as index:
        index.save_settings(IndexSettings((str(path.parent),), model="builtin-embed"))
        index.begin_vectors(fingerprint)
    chance, numbers = random.Random(1), np.random.default_rng(1)
    words = [f"w{n}" for n in range(WORDS)]
    weights = [1 / (n + 1) for n in range(WORDS)]
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("INSERT INTO files (path, kind, size, modified, digest) VALUES ('/f', 'text', 1, 1, x'00')")
    for start in range(0, count, BLOCK):
        rows = numbers.standard_normal((min(BLOCK, count - start), width), np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        drawn = chance.choices(words, weights, k=len(rows) * WORDS_OF_A_CHUNK)
        texts = [" ".join(drawn[n : n + WORDS_OF_A_CHUNK]) for n in range(0, len(drawn), WORDS_OF_A_CHUNK)]
        ids = range(start + 1, start + 1 + len(rows))
        vectors = [row.tobytes() for row in rows.astype(np.float16)]
        query = "INSERT INTO chunks (id, file, first, last, digest, vector) VALUES (?, 1, 1, 1, ?, ?)"
        digests = [id.to_bytes(16, "big") for id in ids]
        connection.executemany(query, zip(ids, digests, vectors, strict=True))
        connection.executemany(
            "INSERT INTO words (rowid, heading, text) VALUES (?, '', ?)", zip(ids, texts, strict=True)
        )
    connection.commit()
    connection.close()


def median(times: list[float]) -> str:
    return f"{statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--cold", action="store_true", help="load the model in the command")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, Leap.load_for_embedding("builtin-embed") as runner:
        variables = {**os.environ, "LEAP_HOME": home}
        leap = [sys.executable, "-m", "leap_cli"]
        path = Directories.from_environment(variables).data / "indexes" / "bench.db"
        fill(path, given.chunks, runner.fingerprint.hex(), runner.dimensions)
        with IndexFile(path) as index:
            begun = time.perf_counter()
            open_table(index)
            made = time.perf_counter() - begun
            searcher = Searcher(index, runner)
            for mode in ("words", "vectors", "hybrid"):
                times = []
                for question in QUESTIONS * given.repeat:
                    begun = time.perf_counter()
                    assert searcher.search(question, mode=mode)
                    times.append(time.perf_counter() - begun)
                print(f"search by {mode}, in process: {median(times)}")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sizes = {each.name: f"{each.stat().st_size / 1e6:.0f} MB" for each in path.parent.iterdir()}
        print(f"{given.chunks:,} chunks: {json.dumps(sizes)}; vector file made in {made:.1f} s; peak {memory:.0f} MB")
        host = "--no-host" if given.cold else "--host"
        if not given.cold:
            subprocess.run([*leap, "load", "builtin-embed"], env=variables, check=True, capture_output=True)
        try:
            times = []
            for question in QUESTIONS * given.repeat:
                begun = time.perf_counter()
                subprocess.run(
                    [*leap, "search", "bench", question, host], env=variables, check=True, capture_output=True
                )
                times.append(time.perf_counter() - begun)
        finally:
            if not given.cold:
                subprocess.run([*leap, "unload", "--all"], env=variables, check=False, capture_output=True)
        print(f"leap search {host}, start to answer: {median(times)} (target at 10^5 with the model warm: 1.5 s)")


if __name__ == "__main__":
    main()

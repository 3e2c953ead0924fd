"""Kill -9 at random moments while files are indexed: the index ends equal to one that nothing disturbed.

    python -m tests.tasks.search.torture --files 500 --kills 20

The moments lie in the reading of files as well as in the making of vectors. ``test_index`` runs the short form, whose
moments are counted in steps, so that it does not depend on the speed of the machine.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from leap_core.tasks.search.index_file import IndexSettings
from leap_core.tasks.search.updating import TEXTS_AT_ONCE, update_index
from tests.support.hashed_words import HashedWordsRunner

READING, VECTORS = "reading", "vectors"
MODULE = "tests.tasks.search.torture"
ROOT = Path(__file__).parents[3]


class SlowRunner(HashedWordsRunner):
    """Tells of every call, and takes a while."""

    def embed(self, texts, kind="document", **options):
        print(f"{VECTORS} {len(texts)}", flush=True)
        time.sleep(0.005)
        return super().embed(texts, kind, **options)


def index(path: Path, pages: Path) -> None:
    """Make or go on with an index, telling every step on stdout."""
    settings = IndexSettings((str(pages),), tokens=64, overlap=8)
    update_index(path, settings, SlowRunner(), on_progress=lambda step, *_: print(step, flush=True))


def write_pages(folder: Path, count: int, chance: random.Random) -> None:
    folder.mkdir()
    for number in range(count):
        text = "\n\n".join(" ".join(f"w{chance.randrange(500)}" for _ in range(40)) for _ in range(6))
        (folder / f"page-{number:03}.txt").write_text(text)


def content(path: Path) -> list[tuple]:
    """Files, chunks, words and vectors by path and place."""
    connection = sqlite3.connect(path)
    query = """SELECT f.path, f.digest, c.first, c.last, w.heading, w.text, c.vector
               FROM chunks c JOIN files f ON f.id = c.file JOIN words w ON w.rowid = c.id ORDER BY c.id"""
    rows = connection.execute(query).fetchall()
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")
    connection.close()
    return rows


def torture(directory: Path, files: int, kills: int, seed: int = 4) -> dict[str, int]:
    """Index ``files`` pages twice: undisturbed, and killed ``kills`` times. What happened; AssertionError where the two
    differ, or more than a batch of vectors was made again for a kill."""
    chance = random.Random(seed)
    pages = directory / "pages"
    write_pages(pages, files, chance)

    def command(name: str) -> list[str]:
        return [sys.executable, "-m", MODULE, "--index", str(directory / f"{name}.db"), str(pages)]

    calls = sum(line.startswith(VECTORS) for line in _steps(command("calm")))
    steps: list[str] = []
    phases: Counter[str] = Counter()
    for _ in range(kills):
        kind = chance.choice((READING, VECTORS))
        moment = chance.randint(1, files if kind == READING else max(2, calls // kills))
        with subprocess.Popen(command("killed"), stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            while moment and (line := process.stdout.readline()):
                steps.append(line)
                moment -= line.startswith(kind)
            time.sleep(chance.uniform(0, 0.02))
            process.kill()
            steps += process.stdout.readlines()
            phases[f"killed at {kind}"] += process.wait() < 0
    rest = _steps(command("killed"))
    undisturbed = content(directory / "calm.db")
    assert undisturbed and all(row[-1] is not None for row in undisturbed)
    assert content(directory / "killed.db") == undisturbed
    assert phases.total(), "the kills came too late"
    made = sum(int(line.split()[1]) for line in [*steps, *rest] if line.startswith(VECTORS))
    assert len(undisturbed) <= made <= len(undisturbed) + kills * TEXTS_AT_ONCE
    return {"chunks": len(undisturbed), "vectors made": made, **phases}


def _steps(command: list[str]) -> list[str]:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout.splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--index", nargs=2, type=Path, metavar=("INDEX", "PAGES"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.index:
        index(*given.index)
        return
    with tempfile.TemporaryDirectory() as directory:
        print(torture(Path(directory), given.files, given.kills, given.seed))


if __name__ == "__main__":
    main()

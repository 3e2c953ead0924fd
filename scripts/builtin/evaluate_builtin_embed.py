"""Measure `builtin-embed` through leap itself: `python scripts/builtin/evaluate_builtin_embed.py`.

Indexes the repository's pages for users and asks the questions of `builtin_data/phrases/page_questions.txt`, which were
written by hand and are no part of training: by words alone, by vectors alone, and by both. A question is answered when
a passage of the right page is among the first three.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from builtin_data.passages import QUESTIONS, ROOT
from builtin_data.phrases import sections

from leap_core import Leap
from leap_core.tasks.search.index_file import IndexFile, IndexSettings
from leap_core.tasks.search.searching import Searcher, SearchMode
from leap_core.tasks.search.updating import update_index

FIRST = 3


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin-embed", help="a reference that Leap.load_for_embedding knows")
    parser.add_argument("--show", action="store_true", help="print each question and what came first")
    options = parser.parse_args(arguments)
    questions = [(question, page) for page, asked in sections(QUESTIONS).items() for question in asked]
    right = dict.fromkeys(SearchMode, 0)
    with tempfile.TemporaryDirectory() as folder, Leap.load_for_embedding(options.model) as runner:
        path = Path(folder) / "pages.db"
        update_index(path, IndexSettings((str(ROOT / "docs"),), ("*.md",), options.model), runner)
        with IndexFile(path) as index:
            searcher = Searcher(index, runner)
            for question, page in questions:
                for mode in SearchMode:
                    hits = searcher.search(question, most=FIRST, mode=mode)
                    pages = [str(Path(hit.passage.path).relative_to(ROOT)) for hit in hits]
                    right[mode] += page in pages
                    if options.show:
                        print(f"{'  ' if page in pages else '? '}{mode.value:8} {question} -> {', '.join(pages)}")
    print("| search by | right | of |\n|---|---|---|")
    for mode, count in right.items():
        print(f"| {mode.value} | {count} | {len(questions)} |")


if __name__ == "__main__":
    main()

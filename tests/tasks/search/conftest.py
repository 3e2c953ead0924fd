"""A folder of pages, and an index of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from leap_core.tasks.search.index_file import IndexSettings
from leap_core.tasks.search.updating import Update, update_index
from tests.support.hashed_words import HashedWordsRunner

PAGES = {
    "fruit.md": "# Fruit\n\nApples are red and sweet.\n\n## Bananas\n\nBananas are yellow and grow in the tropics.\n",
    "tools/hammer.txt": "A hammer drives nails into wood.\nIt has a handle and a head.\n",
    "code.py": "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n    return a - b\n",
    "page.html": "<html><head><title>no</title></head><h1>Rivers</h1><p>The Rhine flows\nnorth.</p></html>",
    "picture.png": "not text",
    ".hidden.md": "secret",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "pages"
    for name, text in PAGES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def runner() -> HashedWordsRunner:
    return HashedWordsRunner()


@pytest.fixture
def update(folder: Path, tmp_path: Path, runner: HashedWordsRunner) -> Callable[..., Update]:
    """Bring the index up to date."""

    def run(**settings) -> Update:
        settings = IndexSettings((str(folder),), **settings)
        return update_index(tmp_path / "index" / "pages.db", settings, runner)

    return run


@pytest.fixture
def index_path(tmp_path: Path) -> Path:
    return tmp_path / "index" / "pages.db"

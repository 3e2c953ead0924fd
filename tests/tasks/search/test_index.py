"""Indexes: made, brought up to date, asked, killed."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from leap_core.conversation.embedding import rank
from leap_core.documents.reading import read_document
from leap_core.errors import LeapError, LeapOptionsError, LeapSerializationError
from leap_core.system.locks import locked
from leap_core.tasks.search.index_file import IndexFile, IndexSettings
from leap_core.tasks.search.searching import Searcher
from leap_core.tasks.search.updating import IndexBusyError, Indexes, IndexNotFoundError, update_index
from leap_core.tasks.search.vector_table import VectorTable, open_table, table_path
from tests.support.hashed_words import HashedWordsRunner

from .torture import torture


def found(path: Path, question: str, runner=None, **options) -> list[str]:
    with IndexFile(path) as index:
        return [Path(hit.passage.path).name for hit in Searcher(index, runner).search(question, **options)]


def test_files_are_read_cut_and_found(update, index_path, runner) -> None:
    done = update()
    assert (done.added, done.skipped) == (4, {})
    assert found(index_path, "yellow bananas", runner)[0] == "fruit.md"
    assert found(index_path, "Where does the Rhine flow?", runner)[0] == "page.html"
    assert found(index_path, "nails", mode="words") == ["hammer.txt"]
    assert found(index_path, "subtract", mode="words") == ["code.py"]
    with IndexFile(index_path) as index:
        (hit, *_) = Searcher(index, runner).search("bananas tropics")
    assert hit.passage.heading == "Fruit > Bananas" and (hit.passage.first, hit.passage.last) == (7, 7)
    assert hit.word_rank == 1 and hit.vector_rank == 1


def test_html_has_no_tags_and_keeps_lines(folder) -> None:
    document = read_document(folder / "page.html")
    kind, lines = document.kind, document.lines
    assert kind == "html" and [line.text for line in lines if line.text] == ["# Rivers", "The Rhine flows north."]


def test_an_address_is_fetched_anew_and_may_be_away(tmp_path, index_path, monkeypatch) -> None:
    pages = {"https://a.example/rivers": b"<p>The Rhine flows north.</p>", "https://a.example/b.txt": b"Bananas."}

    def fetch(url: str, _urls: object) -> bytes:
        if url not in pages:
            raise LeapSerializationError("the host answered 404")
        return pages[url]

    monkeypatch.setattr("leap_core.conversation.media.fetching.fetch", fetch)
    settings = IndexSettings(tuple(pages))
    assert update_index(index_path, settings, None).added == 2
    assert found(index_path, "Rhine", mode="words") == ["rivers"]
    assert update_index(index_path, settings, None).unchanged == 2
    pages["https://a.example/rivers"] = b"<p>The Elbe too.</p>"
    del pages["https://a.example/b.txt"]
    done = update_index(index_path, settings, None)
    assert (done.changed, done.removed, done.skipped) == (1, 0, {"https://a.example/b.txt": "the host answered 404"})
    assert found(index_path, "Elbe", mode="words") == ["rivers"] and found(index_path, "Rhine", mode="words") == []
    assert found(index_path, "Bananas", mode="words") == ["b.txt"], "what was there stays"


def test_pdf_is_read_by_pages(tmp_path) -> None:
    from pypdf import PdfWriter

    writer = PdfWriter()
    writer.add_blank_page(100, 100)
    writer.write(tmp_path / "empty.pdf")
    document = read_document(tmp_path / "empty.pdf")
    kind, lines = document.kind, document.lines
    assert kind == "pdf" and [(line.number, line.text) for line in lines] == [(1, "")]
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    with pytest.raises(LeapError, match="cannot be read as PDF"):
        read_document(tmp_path / "broken.pdf")


def test_only_what_changed_is_embedded_again(update, folder, runner, index_path) -> None:
    update()
    runner.calls.clear()
    assert update().unchanged == 4 and runner.calls == []
    (folder / "fruit.md").write_text("# Fruit\n\nApples are red and sweet.\n\n## Bananas\n\nBananas are bent.\n")
    (folder / "tools" / "hammer.txt").unlink()
    (folder / "new.md").write_text("# New\n\nSomething else.\n")
    os.utime(folder / "code.py")
    done = update()
    assert (done.added, done.changed, done.removed, done.unchanged) == (1, 1, 1, 2)
    assert sorted(text for call in runner.calls for text in call) == [
        "Fruit > Bananas\nBananas are bent.",
        "New\nSomething else.",
    ]
    assert found(index_path, "hammer", mode="words") == []
    assert found(index_path, "bent", runner)[0] == "fruit.md"


def test_another_model_makes_all_vectors_anew(folder, index_path, runner) -> None:
    settings = IndexSettings((str(folder),))
    update_index(index_path, settings, runner)
    other = HashedWordsRunner(32, name="other")
    assert found(index_path, "bananas", other)[0] == "fruit.md", "by words"
    with pytest.raises(LeapOptionsError, match="another model"):
        found(index_path, "bananas", other, mode="vectors")
    assert update_index(index_path, settings, other).embedded == 5
    assert found(index_path, "yellow bananas", other, mode="vectors")[0] == "fruit.md"


def test_without_a_model_words_are_searched(folder, index_path) -> None:
    update_index(index_path, IndexSettings((str(folder),)), None)
    assert found(index_path, "what are bananas?") == ["fruit.md"]
    with pytest.raises(LeapOptionsError, match="has no vectors"):
        found(index_path, "x", mode="vectors")


def test_any_question_can_be_asked(update, index_path, runner) -> None:
    update()
    for question in ('"', "a OR", "*", "NEAR(", "", "  ", "the", "'; DROP TABLE words; --", "\ud800x", "🍌"):
        assert isinstance(found(index_path, question, runner), list), question


def test_files_can_be_chosen_by_patterns(update, index_path, runner) -> None:
    update()
    assert set(found(index_path, "a", runner, files=["*.py"])) == {"code.py"}
    assert set(found(index_path, "hammer bananas", runner, files=["tools/*"])) == {"hammer.txt"}
    assert found(index_path, "bananas", runner, files=["nothing/*"]) == []


def test_a_reranker_changes_the_order(update, index_path, runner) -> None:
    update()
    assert found(index_path, "handle head", runner, reranker=HashedWordsRunner(256))[0] == "hammer.txt"


def test_a_moved_file_keeps_its_vectors(update, folder, runner, index_path) -> None:
    update()
    runner.calls.clear()
    (folder / "fruit.md").rename(folder / "moved.md")
    done = update()
    assert (done.added, done.removed, done.embedded, runner.calls) == (1, 1, 0, [])
    assert found(index_path, "yellow bananas", runner, mode="vectors")[0] == "moved.md"


def test_odd_files_are_left_out_or_read(tmp_path, runner) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    os.mkfifo(folder / "pipe.txt")
    (folder / "late.txt").write_bytes(b"x" * 9000 + b"\0")
    (folder / "latin.txt").write_bytes("Grün".encode("latin-1"))
    (folder / "lines.txt").write_text("one\ftwo\r\nthree\u2028four\n")
    (folder / "Straße 你好.md").write_text("# Ünïcode\n\nwords")
    (folder / "page.html").write_text("<title>t</title><head><meta a><body><p>body words</body>")
    (folder / "broken").symlink_to(folder / "nowhere.txt")
    (folder / "link.txt").symlink_to(folder / "latin.txt")
    (folder / "loop").symlink_to(folder)
    paths = [str(folder), str(folder / "pipe.txt")]
    with suppress(OSError):  # systems whose names are text have no such file
        Path(os.fsdecode(os.fsencode(str(folder)) + b"/\xff.txt")).write_text("no name")
    done = update_index(tmp_path / "i.db", IndexSettings(tuple(paths)), runner)
    reasons = {Path(path).name: reason for path, reason in done.skipped.items()}
    assert reasons.pop("\\udcff.txt", "its name is no text") == "its name is no text"
    assert set(reasons) == {"late.txt", "pipe.txt"} and "is not a file" in reasons["pipe.txt"]
    assert [line.text for line in read_document(folder / "lines.txt").lines] == ["one two", "three\u2028four"]
    assert [line.text for line in read_document(folder / "page.html").lines if line.text] == ["t", "body words"]
    assert set(found(tmp_path / "i.db", "Grün Ünïcode body words", runner)) >= {"latin.txt", "link.txt", "page.html"}
    (tmp_path / "gone").mkdir()
    settings = IndexSettings((str(folder), str(tmp_path / "gone")))
    update_index(tmp_path / "i.db", settings, runner)
    (tmp_path / "gone").rmdir()
    assert "not there any more" in update_index(tmp_path / "i.db", settings, runner).skipped[str(tmp_path / "gone")]


def test_a_model_that_makes_no_vectors_of_texts_is_refused(folder, index_path, runner, monkeypatch) -> None:
    monkeypatch.setattr(HashedWordsRunner, "pools", False)
    with pytest.raises(LeapOptionsError, match="makes no vectors of passages"):
        update_index(index_path, IndexSettings((str(folder),)), runner)
    assert not index_path.exists()
    with pytest.raises(LeapOptionsError, match="orders nothing"):
        rank(runner, "a", ["b"])


def test_what_cannot_be_indexed_is_named(update, folder) -> None:
    (folder / "binary.txt").write_bytes(b"a\0b")
    done = update()
    assert list(done.skipped) == [str(folder / "binary.txt")] and done.added == 4


def test_invalid_names_and_paths_are_refused(tmp_path, folder) -> None:
    indexes = Indexes(tmp_path / "none")
    assert indexes.names() == []
    with pytest.raises(IndexNotFoundError, match="there is no index 'x'"):
        indexes.open("x")
    for name in ("", "../x", "a/b", ".x", "x" * 200):
        with pytest.raises(LeapOptionsError):
            indexes.path_of(name)
    with pytest.raises(LeapOptionsError, match="there is no file or directory"):
        update_index(tmp_path / "i.db", IndexSettings((str(tmp_path / "nowhere"),)), None)


def test_only_one_process_writes_an_index(update, index_path) -> None:
    update()
    with locked(index_path.with_suffix(".lock")), pytest.raises(IndexBusyError):
        update()


def test_stopping_keeps_what_is_done(folder, index_path, runner) -> None:
    stop = threading.Event()

    def on_progress(step: str, done: int, _all: int) -> None:
        if step == "embedding":
            stop.set()

    settings = IndexSettings((str(folder),))
    update_index(index_path, settings, runner, on_progress=on_progress, stop=stop)
    with IndexFile(index_path) as index:
        assert index.counts() == {"files": 4, "chunks": 5, "without_vector": 5}
    assert update_index(index_path, settings, runner).embedded == 5


def test_a_damaged_index_is_named(index_path) -> None:
    index_path.parent.mkdir()
    index_path.write_bytes(b"no database at all, but long enough to look like one" * 50)
    with pytest.raises(LeapError, match="the index .* cannot be used"):
        IndexFile(index_path)


def test_a_lost_or_damaged_vector_file_is_made_again(update, index_path, runner) -> None:
    update()
    for damage in (lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-7])):
        damage(table_path(index_path))
        assert found(index_path, "yellow bananas", runner, mode="vectors")[0] == "fruit.md"


def test_vectors_that_cannot_be_written_are_held_in_memory(update, index_path, runner, monkeypatch) -> None:
    update()
    written = found(index_path, "yellow bananas", runner, mode="vectors")
    table_path(index_path).unlink()

    def full(_path, _index):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("leap_core.tasks.search.vector_table._write", full)
    assert found(index_path, "yellow bananas", runner, mode="vectors") == written
    assert update().unchanged == 4 and not table_path(index_path).exists()


@pytest.mark.parametrize("count", [1, 7, 3000])
def test_the_vector_search_finds_the_nearest_vectors(count: int) -> None:
    chance = np.random.default_rng(count)
    rows = chance.normal(size=(count, 96)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    ids = np.arange(10, 10 + count)
    table = VectorTable(ids, rows.astype(np.float16), np.zeros((count, 16), np.uint8), np.zeros(96, np.float32))
    best, scores = table.nearest(rows[count // 2], 5)
    oracle = np.argsort(-(rows.astype(np.float16).astype(np.float32) @ rows[count // 2]), kind="stable")[:5] + 10
    assert best.tolist() == oracle.tolist() and scores[0] > 0.99
    among, _ = table.nearest(rows[0], 5, np.array([10, 10 + count - 1]))
    assert set(among.tolist()) <= {10, 10 + count - 1}


@pytest.mark.slow
def test_large_tables_find_the_same_by_sign_bits(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("leap_core.tasks.search.vector_table.CANDIDATES", 400)
    chance = np.random.default_rng(5)
    centres = chance.normal(size=(200, 128))
    rows = (centres[chance.integers(0, 200, 6000)] + chance.normal(size=(6000, 128))).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    index = _index_with(tmp_path / "many.db", rows)
    table = open_table(index)
    exact = [table.nearest(row, 10)[0].tolist() for row in rows[:40]]
    monkeypatch.setattr("leap_core.tasks.search.vector_table.EXACT_NUMBERS", 0)
    coarse = [table.nearest(row, 10)[0].tolist() for row in rows[:40]]
    shared = sum(len(set(a) & set(b)) for a, b in zip(exact, coarse, strict=True)) / 400
    assert shared > 0.95, shared
    index.close()


def _index_with(path: Path, rows) -> IndexFile:
    index = IndexFile(path)
    index.begin_vectors("model")
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO files (path, kind, size, modified, digest) VALUES ('f', 'text', 1, 1, x'00')")
    values = [(row.astype(np.float16).tobytes(),) for row in rows]
    connection.executemany("INSERT INTO chunks (file, first, last, digest, vector) VALUES (1, 1, 1, x'00', ?)", values)
    connection.commit()
    connection.close()
    return index


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_as_if_undisturbed(tmp_path) -> None:
    assert torture(tmp_path, files=120, kills=6)["chunks"] > 500

"""The commands over indexes and vectors, with a runner that hashes words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def notes(leap, leap_home: Path) -> Path:
    """An index called notes, of two pages beside the home."""
    folder = leap_home.parent / "pages"
    folder.mkdir()
    (folder / "fruit.md").write_text("# Fruit\n\nApples are red.\n\n## Bananas\n\nBananas are yellow.\n")
    (folder / "tools.txt").write_text("A hammer drives nails.\n")
    done = leap("index", "notes", "pages", "-m", "some-model.gguf")
    assert (done.code, done.stdout) == (0, "notes\n"), done.stderr
    assert "2 new" in done.stderr and "3 passages embedded" in done.stderr
    return folder


def test_search_prints_file_and_line(leap, notes):
    done = leap("search", "notes", "Which bananas are yellow?", "--format", "jsonl", "--limit", "1")
    (hit,) = map(json.loads, done.stdout.splitlines())
    assert (hit["file"], hit["line"], hit["heading"]) == (str(notes / "fruit.md"), 7, "Fruit > Bananas")
    assert hit["word_rank"] == 1 and hit["vector_rank"] == 1
    assert leap("search", "notes", "hammer", "--format", "quiet", "--limit", "1").stdout == f"{notes}/tools.txt:1\n"
    shown = leap("search", "notes", "hammer", "--limit", "1").stdout
    assert shown.startswith("pages/tools.txt:1\n    A hammer drives nails.\n")
    assert "nothing fits" in leap("search", "notes", "zebra", "--by", "words").stderr
    assert "tools" not in leap("search", "notes", "hammer nails", "--include", "*.md").stdout


def test_an_index_is_kept_up_to_date(leap, notes):
    (notes / "tools.txt").write_text("A saw cuts wood.\n")
    assert "1 changed" in leap("index", "update").stderr
    assert "saw" in leap("search", "notes", "wood").stdout
    (record,) = json.loads(leap("index", "list", "--format", "json").stdout)
    assert json.loads(leap("index", "--format=json").stdout) == [record]
    assert (record["name"], record["files"], record["chunks"], record["without_vector"]) == ("notes", 2, 3, 0)
    assert leap("index", "info", "notes").stdout.startswith("name")
    assert leap("index", "remove", "notes").code == 0
    done = leap("search", "notes", "x")
    assert done.code == 2 and "there is no index 'notes'" in done.stderr


def test_a_failed_update_of_one_index_does_not_stop_the_others(leap, notes):
    assert leap("index", "gone", "nowhere", "-m", "some-model.gguf").code == 2
    assert json.loads(leap("index", "list", "--format", "json").stdout)[0]["name"] == "notes"
    damaged = leap.home.rglob("notes.db").__next__().with_name("damaged.db")
    damaged.write_bytes(b"no database" * 1000)
    (notes / "tools.txt").write_text("A saw cuts wood.\n")
    done = leap("index", "update")
    assert done.code != 0 and "damaged: the index" in done.stderr and "1 changed" in done.stderr
    assert leap("search", "notes", "").code == 2


def test_without_an_embedding_model_words_are_indexed(leap, notes):
    done = leap("index", "words", "pages", "--keywords-only")
    assert done.code == 0 and leap("search", "words", "hammer").stdout.startswith("pages/tools.txt")
    assert leap("search", "words", "hammer", "--by", "vectors").code == 2
    assert leap("index", "x", "pages", "--keywords-only", "-m", "y").code == 2
    assert leap("index", "../x", "pages").code == 2
    assert leap("index", "x", "nowhere", "--keywords-only").code == 2


def test_ask_adds_passages_to_the_prompt(leap, notes):
    runner = leap.script("They are yellow [1].")
    done = leap("ask", "notes", "What colour are bananas?", "-m", "chat", "--limit", "2")
    assert done.stdout == "They are yellow [1].\n"
    assert f"[1] {notes}/fruit.md:7" in done.stderr
    system = runner.requests[-1].messages[0].text
    assert "<document1>\nFruit > Bananas\nBananas are yellow.\n</document1>" in system and "[1]" in system
    leap.script("Yellow.")
    document = json.loads(leap("ask", "notes", "bananas?", "-m", "chat", "--format", "json").stdout)
    assert document["sources"][0]["number"] == 1 and document["message"]["content"] == "Yellow [1]."


def test_ask_cites_passages_and_warns_without_support(leap, notes):
    question = ("ask", "notes", "What colour are bananas?", "-m", "chat")
    leap.script("Bananas are yellow [2]. Paris is in France [1].")
    done = leap(*question)
    assert done.stdout == "Bananas are yellow [1]. Paris is in France.\n" and "no passage" not in done.stderr
    leap.script("Blue [1].")
    done = leap(*question)
    assert done.stdout == "Blue.\n" and "no passage supports the answer" in done.stderr
    leap.script("The documents do not say.")
    assert "no passage" not in leap(*question, "--strict").stderr


def test_ask_strict_does_not_answer_without_passages(leap, notes):
    leap.script("Never said.")
    done = leap("ask", "notes", "zebra?", "-m", "chat", "--strict", "--include", "none*")
    assert done.stdout == "The documents do not say.\n"


def test_embed_prints_unit_vectors(leap, leap_home, tmp_path):
    done = leap("embed", "one two", "three", "-m", "some", "--format", "json")
    document = json.loads(done.stdout)
    assert [row["text"] for row in document["data"]] == ["one two", "three"]
    assert np.linalg.norm(document["data"][0]["embedding"]) == pytest.approx(1)
    assert leap("embed", "one", "-m", "some", "-o", "v.npy").code == 0
    assert np.load(leap_home.parent / "v.npy").shape == (1, 64)
    lines = leap("embed", "--lines", "-m", "some", stdin="a\n\nb\n").stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["a", "b"]
    tokens = json.loads(leap("embed", "one two", "-m", "some", "--tokens").stdout)
    assert np.array(tokens["embedding"]).shape == (2, 64)
    assert leap("embed", "-m", "some", "--tokens", "--dimensions", "3", "x").code == 2


def test_a_text_too_long_to_embed_is_named(leap, tmp_path):
    long = "word " * 3000
    (tmp_path / "l.txt").write_text(f"short\n\n{long}\n")
    (tmp_path / "f.txt").write_text(long)
    lines, file = str(tmp_path / "l.txt"), str(tmp_path / "f.txt")
    for given, place in (
        (["--lines", "-f", lines], f"{lines}:3: "),
        (["short", "-f", file], f"{file}: "),
        (["short", long], "TEXT 2: "),
    ):
        done = leap("embed", "-m", "some", *given)
        assert done.code == 2 and place in done.stderr and "texts[" not in done.stderr


def test_the_only_index_need_not_be_named(leap, notes):
    assert leap("search", "hammer", "--limit", "1").stdout.startswith("pages/tools.txt:1\n")
    assert leap("search", "Which", "tool", "drives", "nails?", "--format", "quiet", "--limit", "1").stdout
    leap.script("Yellow [1].")
    assert leap("ask", "What colour are bananas?", "-m", "chat").stdout == "Yellow [1].\n"
    done = leap("search", "notes")
    assert done.code == 2 and "what is asked of the index notes?" in done.stderr


def test_a_mistyped_index_is_named_with_the_nearest(leap, notes):
    for words, meant in (
        (("nots", "hammer"), "did you mean notes?"),
        (("notse", "Which tool drives nails?"), "did you mean notes?"),
        (("nosuch", "Which tool drives nails?"), "there is notes"),
    ):
        for command in (("search",), ("ask", "-m", "chat")):
            done = leap(*command, *words)
            assert done.code == 2 and f"there is no index {words[0]!r}: {meant}" in done.stderr, done.stderr
    done = leap("search", "nosuch", "hammer", "--limit", "1")
    assert done.code == 0 and "took 'nosuch hammer' as the question to the index notes" in done.stderr
    assert "as the question" not in leap("search", "nosuch hammer").stderr
    leap("config", "set", "default_index", "notes")
    leap("index", "other", "pages", "--keywords-only")
    assert "did you mean other?" in leap("search", "othr", "hammer").stderr


def test_one_of_several_indexes_must_be_named(leap, notes):
    assert leap("index", "other", "pages", "--keywords-only").code == 0
    done = leap("search", "hammer")
    assert done.code == 2 and "there are several indexes (notes, other)" in done.stderr
    assert leap("search", "other", "hammer").stdout.startswith("pages/tools.txt")
    assert "there is no index 'thrid'" in leap("search", "thrid", "hammer").stderr


def test_a_default_index_need_not_be_named(leap, notes):
    assert leap("index", "other", "pages", "--keywords-only", "--include", "*.md").code == 0
    assert leap("config", "set", "default_index", "notes").code == 0
    assert leap("search", "hammer").stdout.startswith("pages/tools.txt")
    assert leap("search", "Which", "tool", "drives", "nails?", "--limit", "1").stdout.startswith("pages/tools.txt")
    assert "nothing fits" in leap("search", "other", "hammer").stderr, "a name goes before it"
    leap("config", "set", "default_index", "gone")
    assert "there is no index 'gone'" in leap("search", "hammer").stderr


def test_without_an_index_the_error_says_how_to_create_one(leap, leap_home):
    done = leap("search", "hammer")
    assert done.code == 2 and "leap index NAME PATH" in done.stderr


@pytest.mark.parametrize("verb", ["add", "create", "search"])
def test_a_verb_of_other_programs_is_not_an_index_name(leap, notes, verb):
    done = leap("index", verb, "pages")
    assert done.code == 2 and f"{verb!r} is no command here" in done.stderr
    assert leap("index", "make", verb, "pages", "--keywords-only").code == 0

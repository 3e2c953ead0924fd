"""``leap extract --review`` and ``--review-serve``: what is written, and what is refused in one line."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from leap_core.errors import LeapModelLoadingError
from leap_core.tasks.review.documents import read_reviews, write_reviews

from .review.reviews import plain

NAME = ("--json-schema", "name, age int")


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "a.txt").write_text("Ann, 3\n")
    (tmp_path / "b.txt").write_text("Bob, 4\n")
    return "a.txt", "b.txt"


def data_of(page: str):
    found = re.search('<script type="application/json" id="data">(.*?)</script>', page)
    assert found
    return json.loads(found[1])


def test_the_page_has_each_text_and_the_answers_are_printed_as_without_it(leap, texts, tmp_path):
    answers = ['{"name": "Ann", "age": 3}', '{"name": "Eve"}']
    leap.script(*answers)
    done = leap("extract", *NAME, *texts, "--review", "r.html", "-m", "builtin")
    assert (done.code, done.stdout, done.stderr) == (0, "\n".join(answers) + "\n", "")
    data = data_of((tmp_path / "r.html").read_text("utf-8"))
    assert data["save_as"] == "r.jsonl" and [each["file"] for each in data["documents"]] == list(texts)
    second = [json.loads(each["raw"]) for each in data["documents"][1]["entries"]]
    assert [(each["pointer"], each["how"]) for each in second] == [("/name", "not_in_text"), ("/age", "absent")]
    assert data["documents"][1]["entries"][0]["doubtful"] and json.loads(data["documents"][0]["head"] + "]}")["schema"]


def test_a_review_is_continued_without_asking_the_model(leap, tmp_path, monkeypatch):
    def serve(file, below, directory, tell):
        tell("http://127.0.0.1:1/#key=k")
        assert (len(file.reviews), below, directory) == (2, 0.7, tmp_path)

    monkeypatch.setattr("leap_core.server.review.serve_review", serve)
    write_reviews(tmp_path / "r's.jsonl", plain())
    runner = leap.script()
    done = leap("extract", "--review-serve", "r's.jsonl", "--confidence-threshold", "0.7", "--review", "again.html")
    assert (done.code, done.stdout, runner.requests) == (0, "", [])
    name = shlex.quote("r's.jsonl")
    first, second = done.stderr.splitlines()
    assert first == "leap: http://127.0.0.1:1/#key=k is the review; Ctrl-C ends it"
    assert second == f"leap: decided: 0 of 10 values, in {name}; leap extract --apply {name} prints the documents"
    assert data_of((tmp_path / "again.html").read_text("utf-8"))["documents"][0]["file"] == "a.txt"


def test_decisions_are_served_after_an_extraction_and_never_written_over(leap, texts, tmp_path, monkeypatch):
    monkeypatch.setattr("leap_core.server.review.serve_review", lambda *_: None)
    leap.script('{"name": "Ann"}', '{"name": "Bob"}')
    assert leap("extract", *NAME, *texts, "--review-serve", "r.jsonl").code == 0
    assert [each.document["name"] for each in read_reviews(tmp_path / "r.jsonl")] == ["Ann", "Bob"]
    before = (tmp_path / "r.jsonl").read_bytes()
    done = leap("extract", *NAME, *texts, "--review-serve", "r.jsonl")
    assert done.code == 2 and "r.jsonl already exists" in done.stderr
    assert (tmp_path / "r.jsonl").read_bytes() == before


def test_an_extraction_that_ends_second_writes_over_no_decisions(leap, texts, tmp_path, monkeypatch):
    import leap_cli.answers.task_answers as answers

    done_before = answers.do_task

    def done_while_another_began(*given, **more):
        write_reviews(tmp_path / "r.jsonl", plain())
        return done_before(*given, **more)

    monkeypatch.setattr(answers, "do_task", done_while_another_began)
    leap.script('{"name": "Ann"}', '{"name": "Bob"}')
    done = leap("extract", *NAME, *texts, "--review-serve", "r.jsonl")
    assert (done.code, done.stdout.count("\n")) == (10, 2) and "is not written over" in done.stderr
    assert read_reviews(tmp_path / "r.jsonl") == plain() and not list(tmp_path.glob(".r.jsonl*"))


def test_doubts_are_written_for_answers_alone_and_lose_none(leap, texts, tmp_path):
    (tmp_path / "d.jsonl").write_text("kept\n")
    leap.script()
    assert leap("extract", *NAME, "a.txt", "--low-confidence", "d.jsonl", "--dry-run").code == 0
    leap.load_error = LeapModelLoadingError("there is none")
    assert leap("extract", *NAME, "a.txt", "--low-confidence", "d.jsonl").code != 0
    leap.load_error = None
    assert (tmp_path / "d.jsonl").read_text() == "kept\n"
    leap.script('{"name": "Eve"}')
    done = leap("extract", *NAME, "a.txt", "--low-confidence", "/dev/full", "--format", "json", "--review", "r.html")
    assert json.loads(done.stdout) == {"name": "Eve"} and (tmp_path / "r.html").is_file()
    assert "cannot write" in done.stderr


def test_one_file_is_not_read_and_written(leap, texts, tmp_path):
    write_reviews(tmp_path / "r.jsonl", plain())
    before = (tmp_path / "r.jsonl").read_bytes()
    for arguments in [
        ("extract", "--apply", "r.jsonl", "-o", "./r.jsonl"),
        ("extract", "--calibrate", "r.jsonl", "-o", "r.jsonl"),
        ("extract", "--review-serve", "r.jsonl", "--review", "r.jsonl"),
        ("extract", *NAME, "a.txt", "--review", "new", "-o", "new"),
        ("extract", *NAME, "a.txt", "--low-confidence", "new", "--errors", "new"),
        ("eval", "make", "--from", "review", "--undecided", "r.jsonl", "-o", "r.jsonl"),
    ]:
        done = leap(*arguments)
        assert done.code == 2 and "name the same file" in done.stderr
    assert (tmp_path / "r.jsonl").read_bytes() == before and not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--review", "r.html"), 2, "Missing option '--json-schema'"),
        (("--review-serve", "r.jsonl", "a.txt"), 2, "Missing option '--json-schema'"),
        (("--review-serve", "missing.jsonl"), 2, "cannot read"),
        (("--review-serve", "a.txt"), 2, "a.txt, line 1"),
        (("--review-serve", "/dev/full"), 2, "--review-serve /dev/full is no file"),
        (("--review-serve", "r.jsonl", "--evidence"), 2, "--evidence has no use"),
        ((*NAME, "a.txt", "--review", "."), 2, "--review . is a directory"),
        ((*NAME, "a.txt", "--low-confidence", "."), 2, "--low-confidence . is a directory"),
        ((*NAME, "a.txt", "--review", "no/r.html"), 2, "there is no directory"),
        ((*NAME, "a.txt", "--review", "/dev/full"), 2, "--review /dev/full is no file"),
        ((*NAME, "a.txt", "--low-confidence", "no/d.jsonl"), 2, "there is no directory"),
        ((*NAME, "a.txt", "--review-serve", "."), 2, "--review-serve . is a directory"),
        ((*NAME, "a.txt", "--review", "r.html", "--format", "csv"), 2, "--format csv"),
        ((*NAME, "a.txt", "--review", "r.html", "--background"), 2, "--background"),
        ((*NAME, "a.txt", "--review", "r.html", "--strict-evidence"), 2, "--strict-evidence"),
    ],
)
def test_contradictory_options_are_refused_in_one_line(leap, texts, arguments, code, words):
    runner = leap.script()
    done = leap("extract", *arguments)
    assert done.code == code and words in done.stderr and runner.requests == []
    assert len(done.stderr.strip().splitlines()) <= 3 and "Traceback" not in done.stderr

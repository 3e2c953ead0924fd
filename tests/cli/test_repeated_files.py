"""Folders and patterns as FILE: each run of a schedule reads what is there, or only what is new."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.client import JobsClient


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    for name, text in (("b.txt", "Second."), ("a.md", "First."), (".hidden", "No."), ("c.txt", "Third.")):
        (made / name).write_text(text)
    (made / "below").mkdir()
    return made


@pytest.fixture
def client(leap, monkeypatch):
    monkeypatch.setattr(JobsClient, "ensure_worker", lambda _jobs, _job=None: None)
    with JobsClient({"LEAP_HOME": str(leap.home)}, autostart=False) as jobs:
        yield jobs


def asked(leap, *words: str) -> list[str]:
    """The texts that a model is asked about."""
    runner = leap.script(*["A summary."] * 9)
    done = leap("summarize", "-m", "builtin", *words)
    assert done.code == 0, done.stderr
    said = [request.messages[-1].text for request in runner.requests]
    return [text for text in ("First.", "Second.", "Third.", "Fourth.") if any(text in each for each in said)]


def test_folders_and_patterns_expand_to_their_files(leap, folder):
    assert asked(leap, "in") == ["First.", "Second.", "Third."]
    assert asked(leap, "in/*.txt") == ["Second.", "Third."]
    (folder / "[x].txt").write_text("Fourth.")
    assert asked(leap, "in/[x].txt") == ["Fourth."], "a file of this name is no pattern"


@pytest.mark.parametrize(("name", "said"), [("empty", "empty has no files"), ("in/*.pdf", "no file fits in/*.pdf")])
def test_no_matching_file_is_a_one_line_error(leap, folder, tmp_path, name, said):
    (tmp_path / "empty").mkdir()
    done = leap("summarize", "-m", "builtin", name)
    assert done.code == 2 and said in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["in", "in/*.txt", "empty"])
def test_a_schedule_reads_its_files_when_it_runs(leap, folder, tmp_path, client, name):
    (tmp_path / "empty").mkdir()
    done = leap("summarize", "-m", "builtin", name, "--every", "6h", "--new-files")
    assert done.code == 0, done.stderr
    (schedule,) = client.list()
    arguments = schedule.parameters["job"]["parameters"]["arguments"]
    assert arguments[-1] == name and "--new-files" in arguments and "--every" not in " ".join(arguments)


def test_only_new_files_are_taken(leap, folder):
    assert asked(leap, "in", "--new-files", "--dry-run") == []
    assert asked(leap, "in", "--new-files") == ["First.", "Second.", "Third."], "a dry run takes none"
    assert asked(leap, "in", "--new-files") == []
    (folder / "d.txt").write_text("Fourth.")
    os.utime(folder / "b.txt", (1, 1))
    assert asked(leap, "in", "--new-files", "-o", "other.txt") == ["Second.", "Fourth."], "changed, and new"
    assert asked(leap, "in", "--new-files", "--kind", "topics") == ["First.", "Second.", "Third.", "Fourth."]
    assert asked(leap, "in") == ["First.", "Second.", "Third.", "Fourth."]


def test_a_file_that_changes_during_its_run_is_processed_again(leap, folder):
    runner = leap.script(*["A summary."] * 9)
    start = runner.start

    def changing(*given, **options):
        (folder / "a.md").write_text("Fourth.")
        return start(*given, **options)

    runner.start = changing
    assert leap("summarize", "-m", "builtin", "in", "--new-files").code == 0
    assert asked(leap, "in", "--new-files") == ["Fourth."]


def test_a_failed_file_is_processed_again(leap, folder):
    (folder / "c.txt").write_text("")
    leap.script(*["A summary."] * 9)
    done = leap("summarize", "-m", "builtin", "in", "--new-files")
    assert done.code == 8 and "c.txt: the text is empty" in done.stderr
    (folder / "c.txt").write_text("Third.")
    assert asked(leap, "in", "--new-files") == ["Third."]


def test_a_watched_folder_makes_no_schedule_of_each_file(leap, folder, client):
    done = leap("jobs", "folder", "in", "--", "summarize", "-m", "builtin", "--every", "1h")
    assert done.code == 2 and "a schedule of each file" in done.stderr and done.stderr.count("\n") == 1
    assert not client.list()

"""What a batch must not lose: outputs of earlier runs, links, rights, and what only its journal knows."""

from __future__ import annotations

import os
import stat

import pytest

from leap_core.batch.journal.journal import Journal, journal_path
from leap_core.batch.output.output_file import OutputFile
from leap_core.batch.settings import BatchOutput
from leap_core.errors import LeapModelLoadingError, LeapUnavailableError

from .conftest import AnsweringRunner

LINES = [{"custom_id": "a", "prompt": "1"}, {"custom_id": "b", "prompt": "2"}]


@pytest.mark.parametrize("before", ["a file of somebody", "a finished batch"])
def test_overwrite_removes_nothing_before_the_model_is_loaded(leap, batch, tmp_path, before):
    output = tmp_path / "out.jsonl"
    if before == "a finished batch":
        batch(LINES)
    else:
        output.write_text("precious\n")
    there = output.read_bytes()
    leap.load_error = LeapModelLoadingError("damaged")
    assert batch([{"prompt": "3"}], "--replace")[0].code == 3
    assert output.read_bytes() == there
    leap.load_error = None
    done, runner = batch(LINES, "--replace")
    assert (done.code, runner.asked, output.read_text().count("\n")) == (0, ["1", "2"], 2)


def test_the_attempts_of_a_run_overwrite_only_once(tmp_path):
    path = journal_path(tmp_path / "out.jsonl")
    for run_id, begun_before in [("job", False), ("job", True), ("other", False), (None, False)]:
        journal = Journal(path)
        assert journal.was_begun_by(run_id) is begun_before
        journal.begin(run_id)
        journal.close()


def test_an_empty_input_does_not_erase_the_output(leap, batch, tmp_path):
    batch(LINES)
    there = (tmp_path / "out.jsonl").read_bytes()
    done = leap("batch", "-", "-o", "out.jsonl", "-m", "builtin", stdin="")
    assert (done.code, (tmp_path / "out.jsonl").read_bytes()) == (0, there)


def test_results_without_a_line_are_reported_and_kept_in_the_journal(batch, tmp_path):
    batch(LINES)
    done, runner = batch(LINES[:1])
    assert (done.code, runner.asked) == (0, [])
    assert (
        "1 earlier result belongs to no line any more: left out of the output, and kept in the journal" in done.stderr
    )
    done, runner = batch(LINES)
    assert runner.asked == [] and "belong" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="rights and links of POSIX")
def test_a_link_stays_a_link_and_private_files_stay_private(batch, tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.touch()
    real.chmod(0o600)
    link.symlink_to(real)
    batch(LINES, output="link")
    batch([{"custom_id": "a", "prompt": "other"}, LINES[1]], output="link")
    assert link.is_symlink() and "<other>" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == stat.S_IMODE(journal_path(link).stat().st_mode) == 0o600


@pytest.mark.parametrize("journal", ["out.jsonl", "in.jsonl"])
def test_the_journal_cannot_be_the_input_or_the_output(batch, tmp_path, journal):
    done, runner = batch(LINES, "--journal", journal)
    assert (done.code, runner.asked) == (2, []) and "cannot be the journal too" in done.stderr


@pytest.mark.parametrize("output", ["out.jsonl", "-"])
def test_a_pipe_as_the_journal_is_refused_and_kept(batch, tmp_path, output):
    os.mkfifo(tmp_path / "pipe")
    done, runner = batch(LINES, "--journal", "pipe", output=output)
    assert (done.code, runner.asked) == (2, []) and "give another journal" in done.stderr
    assert (tmp_path / "pipe").is_fifo()


def test_an_empty_file_from_before_the_batch_stays(leap, batch, tmp_path):
    (tmp_path / "mine").touch()
    leap.load_error = LeapModelLoadingError("damaged")
    for journal in ("mine", "other"):
        assert batch(LINES, "--journal", journal)[0].code == 3
    assert (tmp_path / "mine").exists() and not (tmp_path / "other").exists()


@pytest.mark.parametrize("first", ["a.jsonl", "-"])
def test_a_journal_of_another_output_does_not_allow_overwriting_this_one(batch, tmp_path, first):
    notes = tmp_path / "notes.txt"
    notes.write_text("precious\n")
    batch(LINES, "--journal", "j3", output=first)
    done, runner = batch(LINES, "--journal", "j3", output="notes.txt")
    assert (done.code, runner.asked, notes.read_text()) == (2, [], "precious\n")
    assert "j3 is the journal of another output" in done.stderr
    for overwrite, asked in ((["--replace"], ["1", "2"]), ([], [])):
        done, runner = batch(LINES, "--journal", "j3", *overwrite, output="notes.txt")
        assert (done.code, runner.asked, notes.read_text().count("\n")) == (0, asked, 2)


def test_outputs_and_journals_that_move_together_stay_together(batch, tmp_path):
    (tmp_path / "before").mkdir()
    batch(LINES, output="before/a.jsonl")
    batch(LINES, "--journal", "before/j", output="before/b.jsonl")
    (tmp_path / "before").rename(tmp_path / "after")
    for args in (["--journal", "after/j"], []):
        done, runner = batch(LINES, *args, output="after/b.jsonl" if args else "after/a.jsonl")
        assert (done.code, runner.asked) == (0, [])


def test_a_link_and_its_target_are_one_output(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    first = Journal(journal_path(tmp_path / "real"), tmp_path / "real")
    with pytest.raises(LeapUnavailableError, match="another batch is writing to .*link"):
        Journal(journal_path(tmp_path / "link"), tmp_path / "link")
    first.close()


def test_only_one_batch_writes_an_output_whatever_its_journal(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("old\n")
    first, second = OutputFile(path), OutputFile(path)
    first.open(lambda: iter(["new"]))
    with pytest.raises(LeapUnavailableError, match=f"another batch is writing to {path}"):
        second.open(lambda: iter(["other"]))
    second.close()
    first.close()
    assert path.read_text() == "new\n"
    second.open(lambda: iter(["other"]))
    second.close()


def test_a_journal_in_use_is_named_in_the_error(batch, tmp_path):
    journal = Journal(tmp_path / "j.3", tmp_path / "out.jsonl")
    done, _ = batch(LINES, "--journal", "j.3")
    journal.close()
    assert done.code == 10 and "another batch uses the journal" in done.stderr and "j.3" in done.stderr


def test_a_batch_reports_that_other_options_answer_its_lines_again(leap, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    line = ("batch", "in.jsonl", "-o", "out.jsonl", "-m", "builtin")
    leap.runner = AnsweringRunner()
    assert "other options" not in leap(*line).stderr
    leap.runner = AnsweringRunner()
    assert "2 earlier results were made with other options" in leap(*line, "--temperature", "0.5").stderr
    assert "other options" not in leap(*line).stderr


def test_a_file_in_memory_is_a_file_and_a_device_is_none():
    assert BatchOutput("/dev/shm/leap-none.jsonl").is_regular
    assert not BatchOutput("/dev/full").is_regular and not BatchOutput("/proc/self/fd/1").is_regular

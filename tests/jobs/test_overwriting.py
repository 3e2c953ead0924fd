"""What a batch must not lose: outputs of earlier runs, links, rights, and what only its journal knows."""

from __future__ import annotations

import os
import stat

import pytest

from jobs.batch.journal import Journal, journal_path
from leap_core.errors import LeapModelLoadingError

LINES = [{"custom_id": "a", "prompt": "1"}, {"custom_id": "b", "prompt": "2"}]


@pytest.mark.parametrize("before", ["a file of somebody", "a finished batch"])
def test_overwrite_takes_nothing_away_before_the_model_is_loaded(leap, batch, tmp_path, before):
    output = tmp_path / "out.jsonl"
    if before == "a finished batch":
        batch(LINES)
    else:
        output.write_text("precious\n")
    there = output.read_bytes()
    leap.load_error = LeapModelLoadingError("damaged")
    assert batch([{"prompt": "3"}], "--overwrite")[0].code == 3
    assert output.read_bytes() == there
    leap.load_error = None
    done, runner = batch(LINES, "--overwrite")
    assert (done.code, runner.asked, output.read_text().count("\n")) == (0, ["1", "2"], 2)


def test_attempts_of_one_run_overwrite_once(tmp_path):
    path = journal_path(tmp_path / "out.jsonl")
    for run_id, begun_before in [("job", False), ("job", True), ("other", False), (None, False)]:
        journal = Journal(path)
        assert journal.was_begun_by(run_id) is begun_before
        journal.begin(run_id)
        journal.close()


def test_no_lines_take_nothing_away(leap, batch, tmp_path):
    batch(LINES)
    there = (tmp_path / "out.jsonl").read_bytes()
    done = leap("batch", "-", "-o", "out.jsonl", "-m", "builtin", stdin="")
    assert (done.code, (tmp_path / "out.jsonl").read_bytes()) == (0, there)


def test_results_that_belong_to_no_line_any_more_are_told_of(batch, tmp_path):
    batch(LINES)
    done, runner = batch(LINES[:1])
    assert (done.code, runner.asked) == (0, [])
    assert (
        "1 earlier result belongs to no line any more: left out of the output, and kept in the journal" in done.stderr
    )
    done, runner = batch(LINES)
    assert runner.asked == [] and "belong" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="rights and links of POSIX")
def test_a_link_stays_one_and_private_files_stay_private(batch, tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.touch()
    real.chmod(0o600)
    link.symlink_to(real)
    batch(LINES, output="link")
    batch([{"custom_id": "a", "prompt": "other"}, LINES[1]], output="link")
    assert link.is_symlink() and "<other>" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == stat.S_IMODE(journal_path(link).stat().st_mode) == 0o600


@pytest.mark.parametrize("journal", ["out.jsonl", "in.jsonl"])
def test_a_journal_is_a_file_of_its_own(batch, tmp_path, journal):
    done, runner = batch(LINES, "--journal", journal)
    assert (done.code, runner.asked) == (2, []) and "cannot be the journal too" in done.stderr

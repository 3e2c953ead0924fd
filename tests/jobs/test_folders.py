"""Folders whose new files become jobs, whatever lies in them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.configuration import JobsConfiguration
from jobs.scheduling import folders
from jobs.scheduling.folders import Folders
from jobs.submission.new_jobs import Submitter, folder_job
from jobs.table.job import Claim, Ending, Job, State, WorkerIdentity
from jobs.table.table import Table
from leap_core.errors import LeapJobError

ME = WorkerIdentity("me", "run-1", "here")
WORDS = ["extract", "--json-schema={total: number}", "--output=out/{stem}.jsonl", "--", "{}"]


@pytest.fixture
def table(leap_home) -> Iterator[Table]:
    with Table(JobsConfiguration.from_environment().table_place) as table:
        yield table


@pytest.fixture
def watch(table, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "QUIET_SECONDS", 0.0)
    (tmp_path / "in").mkdir(exist_ok=True)
    (tmp_path / "out").mkdir()

    def make(*words: str, patterns: tuple[str, ...] = (), outputs: tuple[int, ...] = (2,)) -> Watched:
        submitter = Submitter(JobsConfiguration.from_environment(), os.environ)
        job = folder_job(Path("in"), patterns, words or WORDS, tmp_path, submitter, outputs if not words else ())
        return Watched(table, table.add([job])[0], tmp_path)

    return make


class Watched:
    """A folder and the worker that looks into it."""

    def __init__(self, table: Table, id: str, directory: Path) -> None:
        self.table, self.id, self.directory = table, id, directory
        self.worker = Folders(table)

    def put(self, name: str, text: str = "a") -> Path:
        place = self.directory / "in" / name
        place.write_text(text)
        return place

    def look(self) -> list[list[str]]:
        """The arguments of the jobs of new files."""
        before = {job.id for job in self.jobs()}
        self.worker.look()
        return [job.parameters["arguments"] for job in reversed(self.jobs()) if job.id not in before]

    def jobs(self) -> list[Job]:
        return self.table.jobs(kinds=["command"])

    def log(self) -> list[str]:
        return [event.value["message"] for event in self.table.events(self.id, 1)]

    def run(self, state: State = State.SUCCEEDED, error: dict[str, str] | None = None) -> None:
        """End the job that is next; one that succeeds writes its output."""
        job = self.table.claim_next("command", ME)
        assert job is not None
        for place in job.parameters["writes"] if state is State.SUCCEEDED else ():
            Path(place).write_text(f"of {job.parameters['file']}")
        self.table.finish(Claim(job.id, job.attempt, ME.owner), Ending(state, error=error))


def outputs(jobs: list[list[str]]) -> list[str]:
    return [word.partition("=")[2] for words in jobs for word in words if word.startswith("--output=")]


def test_different_files_and_contents_have_different_outputs(watch):
    folder = watch()
    for name in ("a.md", "a.txt"):
        folder.put(name)
    assert outputs(folder.look()) == ["out/a.jsonl", "out/a.txt.jsonl"]
    assert folder.look() == []
    folder.run(), folder.run()
    folder.put("a.txt", "changed")
    assert outputs(folder.look()) == ["out/a.txt-2.jsonl"]
    folder.put("a.md", "changed")
    assert outputs(folder.look()) == ["out/a.md.jsonl"]
    folder.put("a.txt", "changed again")
    assert outputs(folder.look()) == ["out/a.txt-3.jsonl"], "a job that has not run yet keeps its output"


def test_no_later_worker_or_folder_reuses_an_output(watch):
    folder = watch()
    folder.put("a.txt")
    folder.look()
    folder.worker = Folders(folder.table)
    assert folder.look() == []
    folder.put("a.md")
    assert outputs(folder.look()) == ["out/a.md.jsonl"]
    folder.run(), folder.run()
    folder.table.request_cancel(folder.id)
    again = watch()
    assert outputs(again.look()) == ["out/a.md-2.jsonl", "out/a.txt.jsonl"]


def test_two_waiting_folders_do_not_write_to_one_output(watch, tmp_path):
    folder = watch()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text("b")
    submitter = Submitter(JobsConfiguration.from_environment(), os.environ)
    second = folder.table.add([folder_job(Path("more"), (), WORDS, tmp_path, submitter, (2,))])[0]
    folder.put("a.txt")
    assert sorted(outputs(folder.look())) == ["out/a.jsonl", "out/a.txt.jsonl"]
    folder.table.request_cancel(second)
    (tmp_path / "more" / "a.md").write_text("c")
    folder.table.add([folder_job(Path("more"), ("*.md",), WORDS, tmp_path, submitter, (2,))])
    assert outputs(folder.look()) == ["out/a.md.jsonl"], "a job of a cancelled folder keeps its output"


def test_a_file_replaced_by_one_of_the_same_size_and_time_is_processed(watch, tmp_path):
    folder = watch()
    place = folder.put("a.txt", "one")
    folder.look()
    new = tmp_path / "new"
    new.write_text("two")
    os.utime(new, ns=(0, place.stat().st_mtime_ns))
    new.replace(place)
    assert outputs(folder.look()) == ["out/a.txt.jsonl"]
    place.chmod(0o600)
    assert folder.look() == [], "the same content is taken once"


def test_an_output_that_all_files_would_share_is_refused(watch, tmp_path):
    submitter = Submitter(JobsConfiguration.from_environment(), os.environ)
    with pytest.raises(LeapJobError, match="all files would be written to out.jsonl"):
        folder_job(Path("in"), (), ["summarize", "--output=out.jsonl", "--", "{}"], tmp_path, submitter, (1,))


def test_results_written_into_the_folder_are_not_new_files(watch, tmp_path):
    folder = watch("summarize", "--output={}.summary", "--", "{}")
    folder.table.request_cancel(folder.id)
    submitter = Submitter(JobsConfiguration.from_environment(), os.environ)
    words = ["summarize", "--output=in/{name}.summary", "--", "{}"]
    folder.id = folder.table.add([folder_job(Path("in"), (), words, tmp_path, submitter, (1,))])[0]
    folder.put("a.txt")
    assert outputs(folder.look()) == ["in/a.txt.summary"]
    folder.run()
    assert folder.look() == [] and (tmp_path / "in" / "a.txt.summary").read_text() == "of a.txt"


def test_the_journal_of_a_batch_is_not_a_new_file(watch, tmp_path):
    folder = watch("summarize")
    folder.table.request_cancel(folder.id)
    submitter = Submitter(JobsConfiguration.from_environment(), os.environ)
    words = ["batch", "--output=in/{stem}.out.jsonl", "--", "{}"]
    folder.id = folder.table.add([folder_job(Path("in"), (), words, tmp_path, submitter, (1,))])[0]
    folder.put("a.jsonl")
    assert outputs(folder.look()) == ["in/a.out.jsonl"]
    folder.put("a.out.jsonl.journal", "kept beside the output")
    folder.run()
    assert folder.look() == []
    folder.worker = Folders(folder.table)
    assert folder.look() == [], "a new worker knows it too"
    folder.put("b.journal", "of a person")
    assert outputs(folder.look()) == ["in/b.out.jsonl"]


@pytest.mark.parametrize(
    "name", ["{name}x.txt", "{stem}", "{}", "-rf.txt", "a\nb.txt", "a b;c'd\".txt", "ü.txt", os.fsdecode(b"\xff.txt")]
)
def test_file_names_are_not_interpreted(watch, name):
    folder = watch("summarize", "--system={name} {stem}", "--", "{}")
    place = folder.put(name)
    (arguments,) = folder.look()
    assert arguments == ["summarize", f"--system={name} {place.stem}", "--", str(place)]


def test_a_file_without_a_free_slot_comes_last(watch):
    folder = watch("summarize")
    place = folder.put("{}.txt")
    assert folder.look() == [["summarize", str(place)]]


def test_a_placeholder_in_the_output_is_not_the_input(watch, tmp_path):
    folder = watch()
    folder.table.request_cancel(folder.id)
    submitter = Submitter(JobsConfiguration.from_environment(), os.environ)
    words = ["summarize", "--output=out/{stem}.md"]
    folder.table.add([folder_job(Path("in"), (), words, tmp_path, submitter, (1,))])
    place = folder.put("a.txt")
    assert folder.look() == [["summarize", "--output=out/a.md", str(place)]]


def test_a_file_with_a_future_time_is_processed(watch):
    folder = watch()
    place = folder.put("a.txt")
    os.utime(place, (time.time() + 1e6, time.time() + 1e6))
    assert len(folder.look()) == 1


def test_a_file_that_grows_is_waited_for(watch, monkeypatch):
    monkeypatch.setattr(folders, "QUIET_SECONDS", 0.3)
    folder = watch()
    for text in ("a", "ab", "abc"):
        folder.put("a.txt", text)
        assert folder.look() == []
        time.sleep(0.1)
    time.sleep(0.3)
    assert len(folder.look()) == 1


def test_directories_links_and_hidden_files_are_not_processed(watch, tmp_path):
    folder = watch()
    (tmp_path / "secret.txt").write_text("outside")
    (tmp_path / "in" / "link.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in" / "loop")
    (tmp_path / "in" / "parent").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "in" / "pipe")
    (tmp_path / "in" / "below").mkdir()
    folder.put(".hidden")
    assert folder.look() == [] and folder.look() == []
    assert folder.log() == ["link.txt is a link that leads out of the folder: not taken"]
    (tmp_path / "in" / "inside.txt").symlink_to(folder.put("a.txt"))
    assert len(folder.look()) == 2


def test_the_log_of_a_folder_lists_processed_and_failed_files_in_order(watch):
    folder = watch()
    for name in "cab":
        folder.put(name)
    folder.look()
    ids = [job.id for job in reversed(folder.jobs())]
    folder.run(State.FAILED, {"type": "LeapJobError", "message": "there is no total"})
    folder.look(), folder.look()
    folder.worker = Folders(folder.table)
    folder.look()
    assert folder.log() == [
        *(f"{name}: job {id}" for name, id in zip("abc", ids, strict=True)),
        f"a: job {ids[0]} failed: there is no total",
    ]


def test_very_many_files_are_processed_in_turns(watch):
    folder = watch()
    for number in range(folders.MOST_AT_ONCE + 5):
        folder.put(f"{number}.txt")
    assert [len(folder.look()), len(folder.look()), len(folder.look())] == [folders.MOST_AT_ONCE, 5, 0]


def test_a_cancelled_folder_processes_no_more_files(watch, monkeypatch):
    folder = watch()
    folder.put("a.txt")
    rows = folder.table.database.rows
    job = Job.of_row(rows("SELECT * FROM jobs WHERE kind='folder'")[0])
    folder.table.request_cancel(folder.id)
    assert folders._Folder(folder.table, job).look() == 0 and folder.jobs() == []  # it was read a moment before


@pytest.mark.parametrize("parameters", ["{}", "[]", '{"directory": 5}', '{"directory": "in", "patterns": 3}'])
def test_a_damaged_row_stops_no_other_folder(watch, parameters):
    damaged = watch()
    damaged.table.database.change("UPDATE jobs SET parameters=:new", {"new": parameters})
    sound = watch()
    sound.put("a.txt")
    assert len(sound.look()) == 1

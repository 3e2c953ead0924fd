"""What ``leap generate`` prints or writes in a form, a job of it does too."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest

from jobs.client import JobsClient
from jobs.table.job import Job, State, WorkerIdentity
from jobs.table.requests import request_of
from jobs.worker.attempt import Attempt
from jobs.worker.model_pool import _file_identity
from jobs.worker.outcomes import run_attempt
from jobs.worker.tasks import generate
from leap_core.conversation.responses import ReasoningChunk
from leap_core.errors import LeapGenerationError
from leap_core.testing import ScriptedModelRunner, Stall

ME = WorkerIdentity("me", "run-1", "here")
ANSWER = "Here:\n```sh\nls\n```\nand\n~~~\npwd\n~~~\n"
FORMS = {
    "plain": [],
    "json": ["--format", "json"],
    "events": ["--format", "jsonl"],
    "first block": ["-x"],
    "last block": ["--option", "extract-last"],
    "two": ["-n", "2", "--seed", "3"],
    "two as json": ["-n", "2", "--format", "json"],
    "two as events": ["-n", "2", "--format", "jsonl", "-x"],
    "no stream": ["--no-stream"],
}


@pytest.fixture
def client(leap, monkeypatch):
    monkeypatch.setattr(JobsClient, "ensure_worker", lambda _jobs, _job=None: None)
    with JobsClient({"LEAP_HOME": str(leap.home)}, autostart=False) as jobs:
        yield jobs


class CancelledEarly(Attempt):
    """An attempt whose job is cancelled when its first piece has come."""

    def emit(self, event, progress=None):
        super().emit(event, progress)
        self.end(cancelled=True)


def run(client: JobsClient, id: str, *answers: object, kind: type[Attempt] = Attempt) -> tuple[Job, list[int | None]]:
    """The job when a worker has done it over a model that gives these answers, and the seeds of its requests."""
    job, runner = client.table.claim(id, 1, ME), ScriptedModelRunner(*answers)
    assert job is not None
    attempt = kind(job, ME.owner, client.table)
    asked = request_of(job)
    run_attempt(attempt, client.table, lambda each: generate(each, asked, lambda *_, **__: nullcontext(runner)))
    return client.get(id), [request.options.rng_seed for request in runner.requests]


def without_chance(text: str, form: str) -> object:
    """The text, or its JSON without times."""
    if "json" in form:
        return [{**each, "stats": None, "model": None} for each in _list(json.loads(text))]
    if "events" in form:
        return [{**json.loads(line), "stats": None} for line in text.splitlines()]
    return text


def _list(value: object) -> list[dict[str, object]]:
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("form", FORMS)
def test_a_job_writes_the_file_that_the_command_writes(form, leap, client, tmp_path):
    typed = ["generate", "-m", "builtin", "hi", *FORMS[form]]
    leap.script(*[ANSWER] * 2)
    assert leap(*typed, "-o", "here.txt").code == 0
    id = leap(*typed, "-o", "there.txt", "--background").stdout.strip()
    id = json.loads(id)["id"] if id.startswith("{") else id
    job, seeds = run(client, id, *[ANSWER] * 2)
    assert job.state is State.SUCCEEDED, job.error
    here, there = ((tmp_path / name).read_text() for name in ("here.txt", "there.txt"))
    assert without_chance(here, form) == without_chance(there, form)
    assert (tmp_path / "here.txt").stat().st_mode == (tmp_path / "there.txt").stat().st_mode
    assert seeds == ([3, 4] if "--seed" in typed else [None] * len(seeds))
    shown = leap("jobs", "wait", id).stdout
    assert shown == leap("jobs", "output", id).stdout
    assert shown.count("---\n") == typed.count("-n")
    assert ("Here:" in shown) is not ("block" in form or "-x" in typed)


def test_the_log_of_a_job_has_statistics_and_reasoning(leap, client):
    typed = ["generate", "-m", "builtin", "hi", "--background", "--stats", "--think"]
    script = [ReasoningChunk("hm"), "yes"]
    shown, _ = run(client, leap(*typed, "show").stdout.strip(), script)
    only, _ = run(client, leap(*typed, "only").stdout.strip(), script)
    said = leap("jobs", "logs", shown.id)
    assert said.stdout == "yes\n" and "leap: hm\n" in said.stderr and " tokens/s" in said.stderr
    assert leap("jobs", "output", only.id).stdout == "hm\n"


def test_a_place_where_no_file_can_be_is_refused_at_once(leap, client):
    for place in ("nowhere/x.txt", ".", "x.pdf"):
        done = leap("generate", "-m", "builtin", "hi", "--background", "-o", place)
        assert done.code == 2 and "--output" in done.stderr and not client.list()


def test_of_a_job_that_was_cancelled_the_file_holds_what_came(leap, client, tmp_path):
    typed = ["generate", "-m", "builtin", "hi", "--background", "-o"]
    ids = [leap(*typed, name).stdout.strip() for name in ("half.txt", "none.txt")]
    half, _ = run(client, ids[0], ["half", Stall(), "more"], kind=CancelledEarly)
    client.table.request_cancel(ids[1])
    assert [client.get(id).state for id in ids] == [State.CANCELLED] * 2
    assert (tmp_path / "half.txt").read_text() == "half\n" and not (tmp_path / "none.txt").exists()
    assert half.result["message"]["content"] == "half"


def test_an_answer_is_kept_when_its_file_cannot_be_written(leap, client, tmp_path):
    (tmp_path / "there").mkdir()
    id = leap("generate", "-m", "builtin", "hi", "--background", "-o", "there/x.txt").stdout.strip()
    (tmp_path / "there").rmdir()
    (tmp_path / "there").write_text("")
    job, _ = run(client, id, "yes")
    assert job.state is State.FAILED and job.error["type"] == "LeapError"
    assert job.error["message"].startswith(f"cannot write {tmp_path / 'there' / 'x.txt'}: ")
    assert leap("jobs", "output", id).stdout == "yes\n" and "output" not in job.result


@pytest.mark.parametrize("words", [[], ["-n", "2"], ["-o", "x.txt"], ["-x"], ["--stats"]])
def test_the_log_says_which_answers_were_cut(words, leap, client):
    typed = ["generate", "-m", "builtin", "hi", "--max-tokens", "1", *words]
    job, _ = run(client, leap(*typed, "--background").stdout.strip(), *[["a", "b"]] * 2)
    leap.script(*[["a", "b"]] * 2)
    here, there = (each.stderr.splitlines() for each in (leap(*typed), leap("jobs", "logs", job.id)))
    cut = "leap: the answer was cut at --max-tokens"
    assert here.count(cut) == there.count(cut) == max(1, 2 * words.count("-n"))


def test_answers_that_began_are_closed_when_another_cannot(leap, client):
    class Half(ScriptedModelRunner):
        closed = 0

        def _ended(self, generation):
            super()._ended(generation)
            self.closed += 1

    job = client.table.claim(leap("generate", "-m", "builtin", "hi", "-n", "3", "--background").stdout.strip(), 1, ME)
    runner, attempt = Half("yes", "no"), Attempt(job, ME.owner, client.table)
    with pytest.raises(LeapGenerationError, match="no script left"):
        generate(attempt, request_of(job), lambda *_, **__: nullcontext(runner))
    assert runner.closed == 2


@pytest.mark.parametrize("answers", [[""], ["", "yes"], ["yes", ""], ["\n"]])
def test_an_empty_answer_has_no_line(answers, leap, client):
    typed = ["generate", "-m", "builtin", "hi", "-n", str(len(answers))]
    job, _ = run(client, leap(*typed, "--background").stdout.strip(), *answers)
    leap.script(*answers)
    assert leap("jobs", "output", job.id).stdout == leap(*typed).stdout


@pytest.mark.parametrize("damaged", [{"variables": 5}, {"cwd": 5}, {"variables": ["x"]}])
def test_a_damaged_row_has_no_model_of_its_own(damaged):
    assert _file_identity({"model": "builtin", **damaged}) is None

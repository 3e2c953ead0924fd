"""The pipelines of docs/pipelines.md run as they stand, each in an empty directory, and do what the page says.

What the model answers is not looked at, only that every answer is there and has its shape.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from .pipelines import Pipelines

PIPELINES = Pipelines("pipelines.md", "##")
after = PIPELINES.after


@after("Fields of fifty files into CSV")
def _(directory: Path, _stdout: str, stderr: str) -> None:
    rows = list(csv.reader((directory / "orders.csv").read_text().splitlines()))
    assert {row[0] for row in rows} == {f"orders/{n}.txt" for n in range(1, 51)} and len(rows) == 50
    for _file, item, quantity, price in rows:
        assert item and int(quantity) >= 0 and float(price) >= 0
    assert "50 answered" in stderr


@after("A table from a list")
def _(directory: Path, _stdout: str, _stderr: str) -> None:
    table = (directory / "capitals.md").read_text().splitlines()
    assert [row.split(" | ")[0] for row in table] == ["| France", "| Italy", "| Japan", "| Spain"]
    assert all(re.fullmatch(r"\| \w+ \| .+ \|", row) for row in table)
    assert "Paris" in table[0]


@after("Conversations through a batch")
def _(_directory: Path, stdout: str, _stderr: str) -> None:
    rows = [line.split("\t") for line in stdout.splitlines()]
    assert [name for name, _ in rows] == ["Ada", "Grace", "Alan"]
    assert all(answer for _, answer in rows)


@after("Only the lines that failed")
def _(directory: Path, stdout: str, stderr: str) -> None:
    assert stdout == "line-2: context_length_exceeded\n"
    assert "2 answered, 1 failed" in stderr
    assert "3 answered (2 of them before), 0 failed" in stderr
    answers = [json.loads(line) for line in (directory / "answers.jsonl").read_text().splitlines()]
    assert [answer["custom_id"] for answer in answers] == ["line-1", "line-2", "line-3"]
    assert all(answer["text"] for answer in answers)


@after("One answer as a value")
def _(_directory: Path, stdout: str, _stderr: str) -> None:
    assert re.fullmatch(r".+ is (a child|an adult)\n", stdout)


@after("A schema for every day")
def _(directory: Path, stdout: str, _stderr: str) -> None:
    enforced, keys = stdout.splitlines()
    assert enforced == "all of it is enforced"
    assert {"name", "age"} <= set(keys.split(", ")) <= {"name", "age", "city"}
    assert json.loads((directory / "person.json").read_text())["properties"]["age"]["type"] == "integer"


@after("Jobs in the background, and their answers")
def _(directory: Path, _stdout: str, _stderr: str) -> None:
    assert len(set((directory / "jobs.txt").read_text().split())) == 3
    answers = (directory / "answers.txt").read_text().splitlines()
    assert len(answers) == 3 and "Paris" in answers[0]


@after("A loop over a warm model")
def _(directory: Path, _stdout: str, stderr: str) -> None:
    assert len((directory / "answers.txt").read_text().splitlines()) == 3
    assert "error" not in stderr


@after("A tool that is a shell script")
def _(_directory: Path, stdout: str, _stderr: str) -> None:
    result, answer = stdout.splitlines()
    name, _, value = result.partition(": ")
    assert name == "get_weather" and json.loads(value)["temperature"] == 21
    assert answer and answer != "null"


@after("Two models in conversation")
def _(directory: Path, _stdout: str, _stderr: str) -> None:
    for name in ("ann.jsonl", "ben.jsonl"):
        messages = [json.loads(line) for line in (directory / name).read_text().splitlines()]
        assert len(messages) == 3 and all(message["content"] for message in messages)


@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("bash") is None, reason="the pipelines are written for bash")
@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize("heading", PIPELINES.checks)
def test_pipelines(heading, type_in, tmp_path):
    PIPELINES.run(heading, type_in, tmp_path)


def test_every_pipeline_has_a_check():
    PIPELINES.all_are_checked()

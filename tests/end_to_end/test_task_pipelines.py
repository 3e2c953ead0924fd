"""The pipelines of docs/tasks.md run as they stand, each in an empty directory, and end in a table.

What the built-in model answers is not looked at, only that every row is there and has its shape.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from .pipelines import Pipelines

PIPELINES = Pipelines("tasks.md", "###")
after = PIPELINES.after


def table(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@after("What a person decided")
def _(directory: Path, _stdout: str, stderr: str) -> None:
    head, row = table(directory / "people.csv")
    (case,) = map(json.loads, (directory / "cases.jsonl").read_text("utf-8").splitlines())
    assert head == ["name", "age"] and row == [str(case["expect"]["json"].get(name, "")) for name in head]
    assert "1 case: each expects the reviewed document" in stderr


@after("A table of orders")
def _(directory: Path, _stdout: str, _stderr: str) -> None:
    head, *rows = table(directory / "orders.csv")
    assert head == ["item", "quantity", "price"] and len(rows) == 3
    for _item, quantity, price in rows:
        assert re.fullmatch(r"-?\d*", quantity) and (not price or float(price) >= 0)


@after("Pictures into a table")
def _(directory: Path, _stdout: str, _stderr: str) -> None:
    rows = table(directory / "figures.csv")
    assert [row[0] for row in rows] == ["file", "red.ppm", "blue.ppm"] and {len(row) for row in rows} == {3}


@after("Only what failed, again")
def _(directory: Path, _stdout: str, _stderr: str) -> None:
    failures = [json.loads(line) for line in (directory / "failed.jsonl").read_text().splitlines()]
    assert failures and all(failure["error"] for failure in failures)
    assert len(table(directory / "people.csv")) == 2


@after("Phrases beside their translations")
def _(directory: Path, _stdout: str, _stderr: str) -> None:
    rows = table(directory / "phrases.csv")
    assert [row[0] for row in rows] == ["Good morning.", "Where is the station?"] and all(row[1] for row in rows)


@after("What a meeting came to")
def _(directory: Path, _stdout: str, _stderr: str) -> None:
    rows = (directory / "meeting.md").read_text().splitlines()
    assert [row.split(" | ")[0] for row in rows] == ["| executive", "| actions", "| decisions"]


@after("What was masked")
def _(directory: Path, _stdout: str, _stderr: str) -> None:
    masks = json.loads((directory / "map.json").read_text())
    masked = (directory / "masked.txt").read_text()
    assert masks and table(directory / "masks.csv") == [[*each] for each in masks.items()]
    assert all(mask in masked and text not in masked for mask, text in masks.items())


@after("Masked for the way, and back")
def _(directory: Path, _stdout: str, _stderr: str) -> None:
    assert (directory / "back.csv").read_text() == (directory / "people.csv").read_text() + "Eve,Oslo\n"


@after("How many of each")
def _(directory: Path, stdout: str, _stderr: str) -> None:
    head, *rows = table(directory / "mail.csv")
    assert head == ["source", "answer", "greeting", "question"]
    assert [row[0] for row in rows] == [f"mail.txt:{n}" for n in range(1, 5)]
    assert sum(int(line.split()[0]) for line in stdout.splitlines()) == 4


@after("Yes or no, with numbers")
def _(directory: Path, _stdout: str, _stderr: str) -> None:
    _head, *rows = table(directory / "weather.csv")
    for _source, answer, yes, no in rows:
        assert answer in ("yes", "no") and float(yes) + float(no) == pytest.approx(1)


@after("The best first")
def _(directory: Path, _stdout: str, _stderr: str) -> None:
    rows = [line.split("\t") for line in (directory / "ranking.tsv").read_text().splitlines()]
    expected = [float(row[2]) for row in rows]
    assert len(rows) == 2 and expected == sorted(expected, reverse=True) and all(1 <= each <= 5 for each in expected)


@after("A table from a job")
def _(directory: Path, _stdout: str, _stderr: str) -> None:
    head, *rows = table(directory / "people.csv")
    assert head == ["full_name", "age"] and len(rows) == 2


@after("Several tasks at once")
def _(directory: Path, _stdout: str, _stderr: str) -> None:
    rows = (directory / "tasks.md").read_text().splitlines()
    assert [row.split(" | ")[0] for row in rows] == ["| who", "| kind", "| good"]


@after("Where a value stands, and how sure the model was")
def _(directory: Path, stdout: str, _stderr: str) -> None:
    places = (directory / "places.tsv").read_text().splitlines()
    assert places == ["/full_name\texact\t0\t3", "/age\texact\t7\t9"] and stdout == ""


@after("Examples of one's own")
def _(directory: Path, _stdout: str, _stderr: str) -> None:
    prompt = (directory / "prompt.txt").read_text()
    assert prompt.index("three lamps") < prompt.index('{"item": "chairs", "customer": "Cleo"}') < prompt.index("Zoe")


@after("Looked over by a person")
def _(directory: Path, _stdout: str, _stderr: str) -> None:
    assert (directory / "found.jsonl").read_text().count("\n") == 1
    assert "Tim is 19 years old." in (directory / "tim.html").read_text("utf-8")


@after("What a batch found, to be looked over")
def _(directory: Path, _stdout: str, stderr: str) -> None:
    found = [json.loads(line) for line in (directory / "found.jsonl").read_text().splitlines()]
    documents = [json.loads(line) for line in (directory / "documents.jsonl").read_text().splitlines()]
    assert len(found) == 2 and [each["document"] for each in found] == documents and "no decision" in stderr


@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("bash") is None, reason="the pipelines are written for bash")
@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize("heading", PIPELINES.checks)
def test_task_pipelines(heading, type_in, tmp_path):
    PIPELINES.run(heading, type_in, tmp_path)


def test_every_task_pipeline_has_a_check():
    PIPELINES.all_are_checked()

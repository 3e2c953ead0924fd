"""Reviewed documents on the command line: carried out, made cases of, and fitted on."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from leap_core import Leap
from leap_core.tasks.review.documents import read_review, review_document, write_reviews

from .test_fitting import separable

TEXT = "Ann lives in Rome."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "city": {"type": "string"}, "age": {"type": "integer"}},
}


@pytest.fixture
def lines(tmp_path: Path) -> list[Path]:
    """Three files of one document: all right, with the city corrected, and with nothing decided."""
    place = {"file": "a.txt", "line": 1, "start": 0, "end": 3, "text": "Ann"}
    evidence = [
        {"pointer": "/name", "value": "Ann", "how": "exact", "place": place},
        {"pointer": "/city", "value": "Rome", "how": "exact", "confidence": {"least": 0.6}},
    ]
    line = review_document("a.txt", TEXT, SCHEMA, {"name": "Ann", "city": "Rome"}, evidence).to_json()
    right = {**line, "evidence": [{**each, "decision": "accept"} for each in line["evidence"]]}
    other = {"decision": "correct", "corrected": "Oslo, N"}
    wrong = {**right, "evidence": [{**each, **(other if n == 1 else {})} for n, each in enumerate(right["evidence"])]}
    paths = [tmp_path / name for name in ("right.jsonl", "wrong.jsonl", "open.jsonl")]
    for path, each in zip(paths, (right, wrong, line), strict=True):
        write_reviews(path, [read_review(each)])
    return paths


def test_decisions_are_applied_without_a_model(leap: Any, lines: list[Path], tmp_path: Path) -> None:
    runner = leap.script()
    done = leap("extract", "--apply", "wrong.jsonl")
    assert (done.code, done.stdout, done.stderr) == (0, '{"name": "Ann", "city": "Oslo, N"}\n', "")
    rows = list(csv.reader(io.StringIO(leap("extract", "--apply", "wrong.jsonl", "--format", "csv").stdout)))
    assert rows == [["name", "city", "age"], ["Ann", "Oslo, N", ""]]
    shown = json.loads(leap("extract", "--apply", "wrong.jsonl", "--evidence", "--format", "json").stdout)
    assert shown["document"]["city"] == "Oslo, N" and shown["evidence"][1]["decision"] == "correct"
    done = leap("extract", "--apply", "open.jsonl", "-o", "out.jsonl", "--json-schema", json.dumps(SCHEMA))
    assert (tmp_path / "out.jsonl").read_text() == '{"name": "Ann", "city": "Rome"}\n'
    assert "3 of 3 fields have no decision" in done.stderr and not runner.requests


@pytest.mark.parametrize(
    "options, said",
    [
        (["a.txt"], "--apply takes no texts"),
        (["--passes", "2"], "--apply cannot be combined with --passes"),
        (["--low-confidence", "d"], "--apply cannot be combined with --low-confidence"),
        (["--evidence", "--format", "csv"], "--evidence cannot be combined with --format csv"),
        (["--calibrate", "right.jsonl"], "--apply cannot be combined with --calibrate"),
        (["--json-schema", "x"], "right.jsonl: a.txt was extracted by another schema"),
    ],
)
def test_options_that_need_a_model_are_refused(leap: Any, lines: list[Path], options: list[str], said: str) -> None:
    done = leap("extract", "--apply", "right.jsonl", *options)
    assert done.code == 2 and said in done.stderr and done.stdout == ""


def test_a_table_is_of_one_schema(leap: Any, lines: list[Path], tmp_path: Path) -> None:
    other = json.loads(lines[0].read_text()) | {"schema": {"type": "object"}, "evidence": []}
    other["evidence"] = [{"pointer": p, "value": v, "how": "exact"} for p, v in (("/name", "Ann"), ("/city", "Rome"))]
    (tmp_path / "two.jsonl").write_text(lines[0].read_text() + json.dumps(other))
    done = leap("extract", "--apply", "two.jsonl", "--format", "csv")
    assert done.code == 2 and "--format csv needs documents of one schema" in done.stderr
    assert len(leap("extract", "--apply", "two.jsonl").stdout.splitlines()) == 2


def test_the_schema_is_still_needed_to_extract(leap: Any) -> None:
    done = leap("extract", "a text")
    assert done.code == 2 and "Missing option '--json-schema'" in done.stderr


def test_cases_of_reviews_are_those_that_are_decided(leap: Any, lines: list[Path]) -> None:
    done = leap("eval", "make", "--from", "review", "right.jsonl", "wrong.jsonl", "open.jsonl")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"id": "a.txt", "task": "extract", "schema": SCHEMA, "text": TEXT, "expect": {"json": expected}}
        | ({"id": "a.txt#2"} if expected["city"] != "Rome" else {})
        for expected in ({"name": "Ann", "city": "Rome"}, {"name": "Ann", "city": "Oslo, N"})
    ]
    assert "left out 1 of 3 documents" in done.stderr
    assert leap("eval", "make", "--from", "review", "open.jsonl").code == 2
    assert len(leap("eval", "make", "--from", "review", "open.jsonl", "--undecided").stdout.splitlines()) == 1
    assert leap("eval", "make", "--from", "review").code == 2
    assert leap("eval", "make", "--from", "log", "--undecided").code == 2


@pytest.fixture
def real(leap: Any) -> Any:
    """The command line over the built-in model."""
    leap.load = lambda _reference, _options: Leap.load("builtin", host="never")
    return leap


def test_extracted_values_pass_as_cases_and_corrected_ones_fail(real: Any, tmp_path: Path) -> None:
    leap = real
    (tmp_path / "a.txt").write_text(TEXT)
    made = json.loads(leap("extract", "--json-schema", "name, city", "--evidence", "a.txt").stdout)
    assert made["document"] == {"name": "Ann", "city": "Rome"}
    schema = {**SCHEMA, "properties": {name: SCHEMA["properties"][name] for name in ("name", "city")}}
    line = review_document("a.txt", TEXT, schema, made["document"], made["evidence"]).to_json()
    for each in line["evidence"]:
        each["decision"] = "accept"
    right = read_review(line)
    line["evidence"] = [*line["evidence"][:1], {**line["evidence"][1], "decision": "correct", "corrected": "Oslo"}]
    write_reviews(tmp_path / "r.jsonl", [right, read_review(line)])
    assert leap("eval", "make", "--from", "review", "r.jsonl", "-o", "c.jsonl").code == 0
    done = leap("eval", "c.jsonl", "-m", "builtin", "--format", "json")
    assert "2 of 2 requests answered" in done.stderr and leap("eval", "show", "c.eval", "--failed").stdout.count(
        "a.txt#2"
    )
    assert "a.txt\n" not in leap("eval", "show", "c.eval", "--failed").stdout


@pytest.mark.slow
def test_thresholds_are_fitted_written_and_used(real: Any, tmp_path: Path) -> None:
    leap = real
    write_reviews(tmp_path / "r.jsonl", separable(80))
    done = leap("extract", "--calibrate", "r.jsonl", "-o", "thresholds.json")
    assert done.code == 0 and "1.00 (10 of 10)" in done.stdout and "/b" in done.stdout
    assert "fitted on 40 documents with 80 values, 10 of them wrong; measured on 40 others" in done.stderr
    written = json.loads((tmp_path / "thresholds.json").read_text())
    assert json.loads(leap("extract", "--calibrate", "r.jsonl", "--format", "json").stdout)["thresholds"] == written
    doubts = {}
    for name, below in {"all": "1", "none": "0", "fitted": "own.json"}.items():
        (tmp_path / "own.json").write_text('{"below": 0.0, "fields": {"/city": 1.0}}')
        options = ["--low-confidence", "d.jsonl", "--confidence-threshold", below]
        assert leap("extract", "--json-schema", "name, city", *options, TEXT).code == 0
        doubts[name] = [json.loads(line)["pointer"] for line in (tmp_path / "d.jsonl").read_text().splitlines()]
    assert doubts == {"all": ["/name", "/city"], "none": [], "fitted": ["/city"]}


@pytest.mark.parametrize(
    "text, said",
    [
        (None, "cannot read"),
        ("", "thresholds.json is not JSON"),
        ("[]", "thresholds.json: the thresholds: expected an object"),
        ("{}", "below: expected a number"),
        ('{"below": 2}', "below: expected a number from 0 to 1"),
        ('{"below": NaN}', "below: expected a number from 0 to 1"),
        ('{"below": 0.5, "fields": {"/a": "x"}}', "fields./a: expected a number"),
        ('{"below": 0.5, "field": {}}', "thresholds.json: field: there is no such field"),
    ],
)
def test_broken_thresholds_are_refused(leap: Any, tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "thresholds.json").write_text(text)
    done = leap("extract", "--json-schema", "name", "--confidence-threshold", "thresholds.json", "x")
    assert done.code == 2 and said in done.stderr
    assert leap("extract", "--json-schema", "name", "--confidence-threshold", "1.5", "x").code == 2


def test_too_few_decisions_are_one_line(leap: Any, lines: list[Path]) -> None:
    done = leap("extract", "--calibrate", "right.jsonl")
    assert done.code == 1 and "too little was decided to fit thresholds: 2 values, 0 of them wrong" in done.stderr

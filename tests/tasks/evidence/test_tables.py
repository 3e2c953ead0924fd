"""Evidence in CSV, Parquet and the results of batches and jobs."""

from __future__ import annotations

import csv
import io
import json

import pytest

from leap_core.tasks.evidence.evidence import COLUMNS, cells_of, row_of
from leap_core.tasks.review.documents import read_review
from leap_core.testing import ScriptedModelRunner
from tests.batch.conftest import AnsweringRunner
from tests.tasks.conftest import do

ORDERS = {"type": "object", "properties": {
    "who": {"type": "string"},
    "paid": {"type": "boolean"},
    "lines": {"type": "array", "items": {"type": "object", "properties": {
        "item": {"type": "string"}, "count": {"type": "integer"}}}},
}}  # fmt: skip
TEXT = 'Ann "A, B" Lee:\n3 lamps, 12 chairs; paid'
LINES = [{"item": "lamps", "count": 3}, {"item": "chairs", "count": 12}, {"item": "sofas", "count": 12}]
DOCUMENT = {"who": 'Ann "A, B" Lee', "paid": True, "lines": LINES}


def test_a_cell_has_a_place_for_each_element_of_a_list():
    runner = ScriptedModelRunner(json.dumps(DOCUMENT))
    reply = do(runner, TEXT, task="extract", schema=ORDERS, format="csv", evidence=True)
    (row,) = csv.reader(io.StringIO(reply.full_message.text))
    lines = TEXT.index("3"), TEXT.index("lamps") + 5, TEXT.index("12"), TEXT.index("chairs") + 6
    assert row[0] == 'Ann "A, B" Lee' and row[1] == "0-14" and row[4] == "no_place"
    assert row[7] == "{}-{} {}-{} not_in_text".format(*lines) and json.loads(row[6]) == DOCUMENT["lines"]


def test_a_cell_names_the_page_and_the_least_probability():
    assert cells_of("a", 1, [{"pointer": "/a", "value": 1, "how": "exact", "confidence": {}}]) == ("exact", "")
    entries = [{"pointer": "/a~1b/x", "value": 1, "how": "exact", "place": {"page": 7, "start": 3, "end": 4},
                "confidence": {"least": 0.5}},
               {"pointer": "/a~1b/y", "value": True, "how": "no_place", "confidence": {"least": 0.25}},
               {"pointer": "/a~1bc", "value": 2, "how": "not_in_text"}]  # fmt: skip
    assert cells_of("a/b", {"x": 1, "y": True}, entries) == ("7:3-4 no_place", 0.25)
    assert cells_of("gone", None, entries) == ("", "")


def test_values_of_all_types_make_rows_of_one_shape():
    place = {"file": "f", "page": 2, "line": 1, "start": 0, "end": 2, "text": "19"}
    row = row_of(
        {"pointer": "/a", "value": 19, "how": "exact", "place": place, "confidence": {"mean": 1.0, "least": 0.5}}
    )
    assert row["value"] == "19" and row["page"] == 2 and row["least"] == 0.5 and row["allowed_least"] is None
    others = [row_of({"pointer": "/b", "value": value, "how": "no_place"}) for value in ("x", True, None, 0.5)]
    assert [each["value"] for each in others] == ["x", "true", "null", "0.5"]
    assert all(list(each) == list(COLUMNS) for each in (row, *others))


def test_what_is_left_of_a_strict_document_has_evidence_at_its_own_pointers():
    document = {"lines": [{"item": "sofas"}, {"item": "lamps"}], "who": "Zed"}
    reply = do(ScriptedModelRunner(json.dumps(document)), TEXT, task="extract", schema=ORDERS, evidence=True,
               strict="absent", keep_text=True)  # fmt: skip
    left = reply.details
    assert left["document"] == {"lines": [{"item": "lamps"}]}
    assert [each["pointer"] for each in left["evidence"]] == ["/lines/0/item"]
    assert [each["pointer"] for each in left["left_out"]] == ["/lines/0/item", "/who"]
    review = {"file": "f", "text": left["source_text"], "schema": ORDERS, **left}
    assert read_review(review).document == left["document"]


def test_a_batch_writes_evidence_as_a_list_of_structures(leap, tmp_path):
    pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    schema = "name, age int, old bool"
    lines = [
        {"id": "a", "task": "extract", "schema": schema, "text": "Tim, 19", "evidence": True, "keep_text": True},
        {"id": "b", "task": "extract", "schema": schema, "text": "Ann"},
        {"id": "c", "prompt": "Hello"},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    answers = {"Tim, 19": '{"name": "Tim", "age": 19, "old": false}', "Ann": '{"name": "Ann"}', "Hello": "Hi"}
    leap.runner = AnsweringRunner(answers.__getitem__)
    done = leap("batch", "in.jsonl", "-o", "out.parquet", "-m", "builtin", "--concurrency", "1")
    assert done.code == 0, done
    table = parquet.read_table(tmp_path / "out.parquet")
    first, *others = table.to_pylist()
    found = [(each["value"], each["how"], each["start"], each["end"], each["page"]) for each in first["evidence"]]
    assert found == [("Tim", "exact", 0, 3, None), ("19", "exact", 5, 7, None), ("false", "no_place", None, None, None)]
    assert first["source_text"] == "Tim, 19" and [each["evidence"] for each in others] == [None, None]
    kinds = {field.name: str(field.type) for field in table.schema.field("evidence").type.value_type}
    assert (kinds["value"], kinds["page"], kinds["start"], kinds["least"]) == ("string", "int64", "int64", "double")


def test_a_job_of_extraction_keeps_evidence_and_text(leap, tmp_path, leap_home, monkeypatch):
    from pathlib import Path

    from jobs.client import JobsClient

    monkeypatch.setattr("jobs.worker_process.WorkerKeeper.ensure_running", lambda _self: None)
    (tmp_path / "cases.jsonl").write_text('{"text": "Bo is 3", "document": {"age": 3}}\n')
    (tmp_path / "none.pdf").write_text("no PDF")
    (tmp_path / "a.txt").write_text("Tim, 19")
    options = ("--json-schema", "name, age int", "--evidence", "--examples", "cases.jsonl", "--background")
    done = leap("extract", *options, "none.pdf", "a.txt")
    assert done.code == 8 and "none.pdf is not PDF" in done.stderr
    with JobsClient({"LEAP_HOME": str(leap_home)}, autostart=False) as client:
        job = client.get(done.stdout.strip())
        (line,) = map(json.loads, Path(job.parameters["kept"]).read_text().splitlines())
        assert job.parameters["batch"]["format"] == "plain"
    assert line["custom_id"] == "a.txt" and line["evidence"] is line["keep_text"] is True
    assert line["examples"] == [{"text": "Bo is 3", "document": {"age": 3}}]
    done = leap("extract", *options, "none.pdf")
    assert (done.code, done.stdout) == (8, "")

"""Parquet and compressed lines as inputs and outputs of ``leap batch``."""

from __future__ import annotations

import csv
import gzip
import io
import json
from datetime import date

import pytest

from leap_core.errors import LeapGenerationError

from .conftest import AnsweringRunner

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
ROWS = [{"name": f"Ä{n}", "n": n, "day": date(2026, 1, 1 + n), "none": None} for n in range(5)]


@pytest.fixture
def asked(leap, tmp_path):
    """Run ``leap batch`` on a file; returns (finished, runner)."""

    def run(source, output, *args, answer=lambda text: f"<{text}>"):
        leap.runner = runner = AnsweringRunner(answer)
        return leap("batch", source, "-o", output, "-m", "builtin", *args), runner

    return run


@pytest.fixture
def people(tmp_path):
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "in.parquet")


def rows_of(path) -> list[dict]:
    return parquet.read_table(path).to_pylist()


def test_parquet_in_and_out_has_the_columns_and_the_answers(asked, people, tmp_path):
    done, _ = asked("in.parquet", "out.parquet", "--pattern", "Greet {name}, {n}.")
    assert done.code == 0, done
    rows = rows_of(tmp_path / "out.parquet")
    assert [row["answer"] for row in rows] == [f"<Greet Ä{n}, {n}.>" for n in range(5)]
    assert [(row["name"], row["n"], row["error"]) for row in rows] == [(f"Ä{n}", n, None) for n in range(5)]
    assert rows[2]["day"] == "2026-01-03"
    before = (tmp_path / "out.parquet").read_bytes()
    done, runner = asked("in.parquet", "out.parquet", "--pattern", "Greet {name}, {n}.")
    assert (done.code, runner.asked) == (0, []) and (tmp_path / "out.parquet").read_bytes() == before


def test_failed_rows_have_an_error_and_are_asked_again(asked, people, tmp_path):
    failing = {"Ä1": LeapGenerationError("broken")}
    done, _ = asked("in.parquet", "out.parquet", "--pattern", "{name}", answer=lambda text: failing.get(text, text))
    assert done.code == 8 and rows_of(tmp_path / "out.parquet")[1]["error"] == "broken"
    done, runner = asked("in.parquet", "out.parquet", "--pattern", "{name}")
    assert (done.code, runner.asked) == (0, ["Ä1"]) and rows_of(tmp_path / "out.parquet")[1]["error"] is None


def test_an_incomplete_output_does_not_exist(asked, people, tmp_path):
    from leap_core.errors import LeapUnavailableError

    lost = {"Ä3": LeapUnavailableError("gone")}
    answer = lambda text: lost.get(text, text)  # noqa: E731
    done, _ = asked("in.parquet", "out.parquet", "--pattern", "{name}", "--concurrency", "1", answer=answer)
    assert done.code != 0 and not (tmp_path / "out.parquet").exists()
    assert not list(tmp_path.glob(".out*")), "the beginning of an output was left"
    done, _ = asked("in.parquet", "out.parquet", "--pattern", "{name}")
    assert done.code == 0 and len(rows_of(tmp_path / "out.parquet")) == 5


def test_column_types_fit_all_rows(tmp_path):
    from leap_core.batch.output import file_formats

    sink = file_formats.ParquetFile(tmp_path / "t.parquet", 3)
    values = [None, 1, 2.5]
    sink.open(lambda: (json.dumps({"a": value, "b": None}) for value in values))
    sink.close()
    assert parquet.read_table(tmp_path / "t.parquet").to_pydict() == {"a": [None, 1.0, 2.5], "b": [None] * 3}


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_compressed_lines_in_and_out(asked, tmp_path, ending):
    lines = "".join(json.dumps({"id": f"{n}", "prompt": f"ü {n}"}) + "\n" for n in range(30))
    source = tmp_path / f"in.jsonl{ending}"
    with pyarrow.output_stream(source, compression="gzip" if ending == ".gz" else "zstd") as stream:
        stream.write(lines.encode())
    done, _ = asked(source.name, f"out.jsonl{ending}", "--format", "plain")
    assert done.code == 0, done
    with pyarrow.input_stream(tmp_path / f"out.jsonl{ending}") as stream:
        records = [json.loads(line) for line in stream.read().splitlines()]
    assert [record["text"] for record in records] == [f"<ü {n}>" for n in range(30)]
    before = (tmp_path / f"out.jsonl{ending}").read_bytes()
    done, runner = asked(source.name, f"out.jsonl{ending}", "--format", "plain")
    assert runner.asked == [] and (tmp_path / f"out.jsonl{ending}").read_bytes() == before


def test_a_compressed_table_keeps_its_header(asked, tmp_path):
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(b"prompt\na\nb\n"))
    done, _ = asked("in.csv.gz", "out.csv.gz")
    assert done.code == 0 and gzip.decompress((tmp_path / "out.csv.gz").read_bytes()) == (
        b"prompt,answer,error\na,<a>,\nb,<b>,\n"
    )


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("in.jsonl.gz", b"no gzip", "cannot read"),
        ("in.jsonl.gz", gzip.compress(b'{"prompt": "a"}\n' * 9)[:-9], "cannot read"),
        ("in.parquet", b"PAR1 and no table", "not a Parquet file"),
    ],
    ids=["no gzip", "torn", "no Parquet"],
)
def test_damaged_inputs_are_one_line_errors(asked, tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content)
    done, runner = asked(name, "out.jsonl")
    assert done.code == 2 and told in " ".join(done.stderr.split()) and runner.asked == []


def test_shards_of_a_table_are_merged(asked, people, tmp_path):
    for n in (1, 2):
        assert asked("in.parquet", "out.parquet", "--pattern", "{name}", "--shard", f"{n}/2")[0].code == 0
    assert asked("in.parquet", "out.parquet", "--pattern", "{name}", "--merge", "2")[0].code == 0
    assert [row["name"] for row in rows_of(tmp_path / "out.parquet")] == [row["name"] for row in ROWS]


@pytest.mark.parametrize("args", [("--errors", "failed.jsonl"), ("--format", "text")])
def test_options_that_skip_lines_are_refused_for_compressed_outputs(asked, tmp_path, args):
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n')
    done, _ = asked("in.jsonl", "out.jsonl.gz", *args)
    assert done.code == 2 and "a line for each line" in " ".join(done.stderr.split())


def test_fields_of_json_lines_are_columns_of_a_csv(leap, tmp_path):
    lines = ['{"prompt": "a", "city": "Rome", "age": 1}', '{"prompt": "b", "tags": ["x"], "city": "Köln"}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines), "utf-8")
    leap.script("one", "two")
    done = leap("batch", "in.jsonl", "-m", "builtin", "--keep-fields", "--format", "csv", "--ordered")
    assert done.code == 0, done
    rows = list(csv.reader(io.StringIO(done.stdout)))
    assert rows[0] == ["custom_id", "city", "age", "tags", "answer", "error"]
    assert rows[1][1:5] == ["Rome", "1", "", "one"] and rows[2][1:5] == ["Köln", "", '["x"]', "two"]


@pytest.mark.parametrize(("number", "says"), [("1e400", "too large"), ("9" * 5000, "5000 digits"), ("NaN", "NaN")])
def test_a_number_that_json_cannot_represent_is_a_bad_line(leap, tmp_path, number, says):
    (tmp_path / "in.jsonl").write_text(f'{{"prompt": "a", "score": {number}}}\n')
    leap.script("one")
    done = leap("batch", "in.jsonl", "-m", "builtin", "--keep-fields")
    assert done.code == 2 and says in done.stderr and "line 1" in done.stderr and "set_int" not in done.stderr, done

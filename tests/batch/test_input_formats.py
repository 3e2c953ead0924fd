"""Tables, arrays, strings and plain lines as input, what is carried over to the results, and where failures go."""

from __future__ import annotations

import csv
import io
import json

import pytest

from leap_core.errors import LeapGenerationError

from .conftest import AnsweringRunner

TABLE = 'id,name,First word\n7,"Zoë, the first",a\n8,"two\nlines",b\n,third,c\n'


@pytest.fixture
def answered(leap, tmp_path):
    """Run ``leap batch`` over a file of this name and text; returns (finished, runner, the output's text)."""

    def run(name: str, text: str, *args: str, output: str = "out.jsonl", answer=lambda text: f"<{text}>"):
        (tmp_path / name).write_text(text, "utf-8")
        leap.runner = runner = AnsweringRunner(answer)
        done = leap("batch", name, "-o", output, "-m", "builtin", *args)
        path = tmp_path / output
        return done, runner, path.read_text("utf-8") if path.exists() else ""

    return run


def records(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_rows_of_a_table_fill_a_template_and_come_back_with_their_answers(answered):
    done, runner, text = answered("in.csv", TABLE, "--template", "{First word}: {name}")
    assert done.code == 0 and runner.asked == ["a: Zoë, the first", "b: two\nlines", "c: third"]
    first, second, third = records(text)
    counts = {"finish_reason": "stop", "prompt_tokens": 7, "completion_tokens": 1}
    fields = {"id": "7", "name": "Zoë, the first", "First word": "a"}
    assert first == {"custom_id": "7", **fields, "answer": "<a: Zoë, the first>", **counts}
    assert [second["custom_id"], third["custom_id"]] == ["8", "line-4"]


def test_results_of_a_table_are_a_table(answered):
    done, _, text = answered("in.csv", TABLE, "--template", "{name}", output="out.csv")
    rows = list(csv.reader(io.StringIO(text)))
    assert done.code == 0 and rows == [
        ["id", "name", "First word", "answer", "error"],
        ["7", "Zoë, the first", "a", "<Zoë, the first>", ""],
        ["8", "two\nlines", "b", "<two\nlines>", ""],
        ["", "third", "c", "<third>", ""],
    ]
    again, runner, same = answered("in.csv", TABLE, "--template", "{name}", output="out.csv")
    assert (again.code, runner.asked, same) == (0, [], text)


@pytest.mark.parametrize("cut", [1, 9, 30, 60])
def test_a_torn_table_is_repaired(answered, tmp_path, cut):
    _, _, text = answered("in.csv", TABLE, "--template", "{name}", output="out.csv")
    (tmp_path / "out.csv").write_bytes(text.encode()[:-cut])
    done, runner, same = answered("in.csv", TABLE, "--template", "{name}", output="out.csv")
    assert (done.code, runner.asked, same) == (0, [], text)


def test_a_column_called_prompt_needs_no_template(answered):
    _, runner, text = answered("in.tsv", "prompt\tlanguage\nHallo\tde\n")
    assert runner.asked == ["Hallo"] and records(text)[0]["language"] == "de"
    done, runner, _ = answered("other.csv", "text\nHallo\n", output="other.jsonl")
    assert (done.code, runner.asked) == (2, [])
    assert "other.csv: " in done.stderr or "no column prompt; it has text" in done.stderr
    assert "--pattern" in done.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the table is empty"),
        ("a,a\n1,2\n", "two columns are called 'a'"),
        ("a,\n1,2\n", "a column has no name"),
        ("prompt\n1,2\n", "row 2 has 2 fields, and the table 1 columns"),
        ('prompt\n"a', "not a CSV table"),
    ],
)
def test_unusable_tables_are_refused(answered, text, told):
    done, runner, _ = answered("in.csv", text)
    assert (done.code, runner.asked) == (2, []) and told in done.stderr and done.stderr.count("\n") == 1


def test_plain_lines_are_prompts(answered):
    done, runner, text = answered("in.txt", "One\n\n  two  \n")
    assert (done.code, runner.asked) == (0, ["One", "two"])
    assert [(r["custom_id"], r["text"]) for r in records(text)] == [("line-1", "<One>"), ("line-3", "<two>")]


def test_an_array_and_strings(answered):
    array = json.dumps(["One", {"prompt": "two", "custom_id": "b"}], indent=2)
    _, runner, text = answered("in.json", array, "--format", "plain")
    assert runner.asked == ["One", "two"] and [r["custom_id"] for r in records(text)] == ["line-1", "b"]
    _, runner, _ = answered("in.jsonl", '"three"\n{"prompt": "four"}\n', output="o2.jsonl")
    assert runner.asked == ["four", "three"]
    _, runner, _ = answered("lines.json", '{"prompt": "five"}\n{"prompt": "six"}\n', output="o4.jsonl")
    assert runner.asked == ["five", "six"]
    done, _, _ = answered("bad.json", "5", output="o3.jsonl")
    assert done.code == 2 and "expected a JSON array" in done.stderr and "--input-format jsonl" in done.stderr


def test_the_input_format_can_be_named(answered, leap):
    _, runner, _ = answered("in.dat", "prompt,a\nHi,1\n", "--input-format", "csv")
    assert runner.asked == ["Hi"]
    leap.runner = AnsweringRunner()
    done = leap("batch", "-", "-m", "builtin", "--input-format", "lines", stdin="One\ntwo\n")
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == ["<One>", "<two>"]


def test_keep_fields_copies_fields_of_a_line_to_its_result(answered):
    line = json.dumps({"prompt": "Hi", "source": {"page": 3}, "answer": "old", "temperature": 0})
    done, _, _ = answered("in.jsonl", line)
    assert done.code == 2 and "source: there is no such field" in done.stderr
    _, runner, text = answered("in.jsonl", line, "--keep-fields", "--format", "plain")
    (record,) = records(text)
    assert (record["source"], record["input_answer"], record["answer"]) == ({"page": 3}, "old", "<Hi>")
    assert runner.requests[0].options.temperature == 0


def test_failed_lines_go_to_the_errors_file(answered, tmp_path):
    lines = "".join(json.dumps({"custom_id": f"id-{n}", "prompt": str(n)}) + "\n" for n in range(5))
    failing = {"1": LeapGenerationError("broken"), "3": LeapGenerationError("broken too")}
    done, _, text = answered("in.jsonl", lines, "--errors", "bad.jsonl", answer=lambda t: failing.get(t, f"<{t}>"))
    assert done.code == 8 and [r["custom_id"] for r in records(text)] == ["id-0", "id-2", "id-4"]
    bad = records((tmp_path / "bad.jsonl").read_text())
    assert [(r["custom_id"], r["line"], r["error"]["message"]) for r in bad] == [
        ("id-1", 2, "broken"),
        ("id-3", 4, "broken too"),
    ]
    done, runner, text = answered("in.jsonl", lines, "--errors", "bad.jsonl")
    assert (done.code, runner.asked) == (0, ["1", "3"])
    assert [r["custom_id"] for r in records(text)] == [f"id-{n}" for n in range(5)]
    assert (tmp_path / "bad.jsonl").read_text() == ""
    done, _, _ = answered("in.jsonl", lines, "--errors", "out.jsonl")
    assert done.code == 2 and "cannot take the failed lines" in done.stderr


def test_skipped_lines_go_to_the_errors_file(answered, tmp_path):
    bad = tmp_path / "bad.jsonl"
    args = ("--skip-invalid", "--errors", "bad.jsonl")
    done, _, text = answered("in.jsonl", '{"prompt": "a"}\n{\n{"prompt": "b"}\n{"prompt": 1}\n', *args)
    assert done.code == 0 and [r["response"]["status_code"] for r in records(text)] == [200, 200]
    assert [(r["line"], r["error"]["code"], r["response"]) for r in records(bad.read_text())] == [
        (2, "invalid_line", None),
        (4, "invalid_line", None),
    ]
    assert records(bad.read_text())[0]["error"]["message"].startswith("not JSON")
    answered("in.jsonl", "{\n" * 1200, *args)
    assert [r["line"] for r in records(bad.read_text())] == list(range(1, 1201)), "all, though no line can be used"

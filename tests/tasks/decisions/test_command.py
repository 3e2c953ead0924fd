"""``leap decide`` with several questions, tables, and cases to fit, on the built-in model."""

from __future__ import annotations

import csv
import io
import json

import pytest

from leap_cli.display.batches import BAR, bar, bars
from leap_core import Leap

QUESTIONS = [
    {"type": "predicate", "name": "late", "instructions": "Is it late?"},
    {"type": "choice", "name": "topic", "instructions": "About what?", "choices": ["parcel", {"value": "money"}]},
    {"type": "score", "instructions": "How angry?", "levels": ["calm", "cross", "furious"]},
]
YAML = """
late: {type: noul, instructions: Is it late}
topic: {type: choice, instructions: About what, criteria: {parcel: null, money: null}}
"""


@pytest.fixture
def leap(leap, monkeypatch):
    """The command line, whose models are the built-in one."""
    monkeypatch.setattr(leap, "load", lambda *_: Leap.load("builtin", host="never"))
    return leap


@pytest.fixture
def questions(tmp_path):
    (tmp_path / "questions.json").write_text(json.dumps(QUESTIONS))
    (tmp_path / "questions.yaml").write_text(YAML)
    return "--questions", "questions.json"


@pytest.mark.slow
def test_every_format_has_the_same_values(leap, questions):
    ask = ("decide", *questions, "-m", "builtin", "The parcel is late.")
    done = leap(*ask, "--format", "json")
    assert done.code == 0
    answers = json.loads(done.stdout)["answers"]
    assert list(answers) == ["late", "topic", "3"] and isinstance(answers["late"]["answer"], bool)
    assert 0 <= answers["3"]["score"] <= 2
    rows = list(csv.DictReader(io.StringIO(leap(*ask, "--format", "csv").stdout)))
    assert [row["question"] for row in rows] == list(answers)
    for row, answer in zip(rows, answers.values(), strict=True):
        assert row["answer"] == max(answer["probabilities"], key=answer["probabilities"].__getitem__)
        assert float(row["probability"]) == pytest.approx(max(answer["probabilities"].values()), abs=2e-3)
    lines = leap(*ask).stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == list(answers)
    assert leap(*ask, "--format", "table").stdout.startswith("late: ")


@pytest.mark.slow
def test_yaml_rows_and_labels(leap, questions, tmp_path):
    (tmp_path / "table.csv").write_text("what,when\nparcel,late\nletter,early\n")
    ask = ("decide", "--questions", "questions.yaml", "--rows", "table.csv", "--readout", "labels", "--orders", "2")
    done = leap(*ask, "--format", "json", "-m", "builtin")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["source"] for row in rows] == ["table.csv:1", "table.csv:2"] and done.stderr == ""
    assert rows[0]["answers"]["topic"]["readout"] == "labels" and rows[0]["answers"]["topic"]["stable"][1:] == "/2"
    dry = leap(*ask, "--dry-run", "-m", "builtin").stdout
    assert dry.index('"what": "parcel"') < dry.index("Is it late")  # the state comes first, so that it is shared


@pytest.mark.slow
def test_cases_are_fitted_and_the_result_is_shown(leap, tmp_path):
    texts = [("I love it.", "yes"), ("It broke at once.", "no"), ("Great!", "yes"), ("Terrible.", "no")] * 5
    cases = "".join(json.dumps({"text": text, "answer": answer}) + "\n" for text, answer in texts)
    (tmp_path / "cases.jsonl").write_text(cases)
    ask = ("decide", "Is the writer content?", "-m", "builtin", "--readout", "labels")
    done = leap(*ask, "--calibrate", "cases.jsonl", "--format", "json")
    found = json.loads(done.stdout)
    assert (found["fitted_cases"], found["held_back_cases"]) == (10, 10)
    assert found["log_loss_after"] <= found["log_loss_before"] + 0.3
    answer = json.loads(leap(*ask, "--format", "json", "I love it.").stdout)
    assert answer["temperature"] == pytest.approx(found["temperatures"]["noul.2"])


@pytest.mark.slow
def test_a_fit_for_one_wording_does_not_apply_to_another(leap, questions, tmp_path):
    texts = [("Late.", "yes"), ("Early.", "no")] * 10
    cases = "".join(json.dumps({"text": text, "answer": answer}) + "\n" for text, answer in texts)
    (tmp_path / "cases.jsonl").write_text(cases)
    (tmp_path / "one.json").write_text(json.dumps(QUESTIONS[:1]))
    fitted = json.loads(
        leap("decide", "Late?", "-m", "builtin", "--calibrate", "cases.jsonl", "--format", "json").stdout
    )
    assert fitted["readout"] == "recipe"
    alone = json.loads(leap("decide", "Late?", "-m", "builtin", "--format", "json", "Late.").stdout)
    assert alone["temperature"] == pytest.approx(fitted["temperatures"]["noul.2"])
    state_first = ("decide", "--questions", "one.json", "-m", "builtin", "--format", "json", "Late.")
    assert "temperature" not in json.loads(leap(*state_first).stdout)["answers"]["late"]


@pytest.mark.slow
def test_columns_of_rows_are_the_state(leap, questions, tmp_path):
    (tmp_path / "table.csv").write_text('what,when,who\n"par\ncel",late,me\nletter,early,you\n')
    ask = ("decide", *questions, "-m", "builtin", "--dry-run", "table.csv")
    dry = leap(*ask, "--columns", "when, what").stdout
    assert '{\n  "when": "late",\n  "what": "par\\ncel"\n}' in dry and '"who"' not in dry
    assert '"who": "you"' in leap(*ask, "--rows").stdout
    assert "table.csv has no column 'which' (it has what, when, who)" in leap(*ask, "--columns", "which").stderr
    assert "give the names of columns" in leap(*ask, "--columns", "a,,b").stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "there is no question"),
        (("--questions", "nosuch.json", "x"), "cannot read nosuch.json"),
        (("--questions", "broken.json", "x"), "broken.json is not JSON"),
        (("--questions", "questions.json", "--choices", "a,b", "x"), "cannot be combined with --choices"),
        (("q", "--calibrate", "wrong.jsonl"), "wrong.jsonl, line 1: answer: 'maybe' is not one of yes, no"),
        (("q", "--calibrate", "wrong.jsonl", "--rows"), "--calibrate cannot be combined with --rows"),
        (("q", "x", "--calibrate", "wrong.jsonl"), "--calibrate takes its texts from the cases"),
        (("q", "x", "--orders", "0"), "--orders"),
        (("q", "--rows", "empty.csv"), "there is no row"),
    ],
)
def test_contradictory_options_are_refused(leap, questions, tmp_path, arguments, message):
    (tmp_path / "broken.json").write_text("[")
    (tmp_path / "empty.csv").write_text("a,b\n")
    (tmp_path / "wrong.jsonl").write_text('{"text": "a", "answer": "maybe"}\n')
    done = leap("decide", *arguments)
    assert done.code == 2 and message in done.stderr.replace("\n", " ") and done.stdout == ""


def test_bars_are_as_long_as_the_shares():
    assert bar(0.0) == " " * BAR and bar(1.0) == "█" * BAR and bar(0.5).rstrip() == "█" * (BAR // 2)
    shown = bars({"late": {"probabilities": {"yes": 0.25, "no": 0.75}, "confidence": 0.5, "stable": "1/2"}})
    assert shown.splitlines()[0] == "late: no (confidence 0.50, 1/2 orders agree)"
    assert [line.split()[-1] for line in shown.splitlines()[1:]] == ["25.0%", "75.0%"]

"""``leap eval`` over a runner that plays: what is asked, what is kept, what is said, and how it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.batch.conftest import AnsweringRunner

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "scripts"))
import evaluation_under_kills  # noqa: E402

CASES = [
    {"id": "a", "prompt": "one", "expect": "<one>", "group": "g"},
    {"id": "b", "prompt": "two", "expect": {"contains": "two"}, "group": "g"},
    {"id": "c", "prompt": "three", "expect": {"not_contains": "three"}},
]


@pytest.fixture
def evaluate(leap, tmp_path):
    """Write cases and run ``leap eval`` on them with a fresh runner; returns (finished, what it was asked)."""

    def run(cases=CASES, *args, answer=lambda text: f"<{text}>", models=("builtin",)):
        text = cases if isinstance(cases, str) else "".join(json.dumps(case) + "\n" for case in cases)
        (tmp_path / "c.jsonl").write_text(text, "utf-8")
        runners = []

        def load(_reference, _options):
            runners.append(AnsweringRunner(answer))
            return runners[-1]

        leap.load = load
        options = [word for model in models for word in ("-m", model)]
        done = leap("eval", "c.jsonl", *options, *args)
        leap.asked = [request for runner in runners for request in runner.requests]
        return done, sorted(text for runner in runners for text in runner.asked)

    return run


def test_the_table_has_the_pass_rate_with_its_interval(evaluate):
    done, asked = evaluate()
    assert done.code == 0, done.stderr
    assert "66.7% of 3" in done.stdout and "20.8% to 93.9%" in done.stdout
    assert asked == ["one", "three", "two"]
    assert "builtin: 3 of 3 requests answered" in done.stderr


def test_only_new_cases_are_asked(evaluate):
    evaluate()
    assert evaluate()[1] == []
    changed = [*CASES[:2], {**CASES[2], "prompt": "four"}]
    assert evaluate(changed)[1] == ["four"], "a changed case alone is asked again"
    expecting = [{**CASES[0], "expect": "other"}, *changed[1:]]
    done, asked = evaluate(expecting)
    assert asked == [] and "66.7%" in done.stdout, "other expectations ask nothing"
    assert evaluate(expecting, models=("builtin", "builtin-vl"))[1] == ["four", "one", "two"], "a new model is a column"
    assert evaluate(expecting, "--replace")[1] == ["four", "one", "two"]


def test_models_and_variants_are_columns(evaluate, leap):
    done, asked = evaluate(
        CASES[:1], "--vary", "temperature=0,0.5", "--format", "json", models=("builtin", "builtin-vl")
    )
    found = json.loads(done.stdout)
    names = [each["name"] for each in found["columns"]]
    assert names == [f"{model} temperature={value}" for model in ("builtin", "builtin-vl") for value in ("0", "0.5")]
    assert len(found["comparisons"]) == 6 and asked == ["one"] * 4


def test_repeats_have_consecutive_seeds(evaluate, leap):
    evaluate(CASES[:1], "--repeat", "3", "--seed", "7")
    assert sorted(request.options.rng_seed for request in leap.asked) == [7, 8, 9]
    assert all(request.options.temperature is None for request in leap.asked)
    assert evaluate(CASES[:1], "--repeat", "4", "--seed", "7")[1] == ["one"], "a further repeat alone is asked"


def test_templates_take_variables(evaluate):
    cases = [{"id": "x", "vars": {"text": "Hi"}, "expect": {"contains": "Hi"}}]
    done, _ = evaluate(cases)
    assert done.code == 2 and "give a template" in done.stderr
    _, asked = evaluate(cases, "--pattern", "Translate: {text}")
    assert asked == ["Translate: Hi"]


def test_two_columns_are_compared_for_significance(leap, evaluate, tmp_path):
    cases = [{"id": str(n), "prompt": str(n), "expect": "good"} for n in range(8)]
    evaluate(cases, "-o", "x", answer=lambda text: "bad")
    done, _ = evaluate(cases, "-o", "y", answer=lambda text: "good")
    rows = [
        *_lines(tmp_path / "x/results.jsonl"),
        *({**row, "column": "other"} for row in _lines(tmp_path / "y/results.jsonl")),
    ]
    (tmp_path / "both.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = leap("eval", "show", "both.jsonl")
    assert "other is better than builtin over 8 cases (p = 0.008" in done.stdout
    done = leap("eval", "show", "both.jsonl", "--option", "alpha=0.001")
    assert "cannot be told apart" in done.stdout
    done = leap("eval", "show", "both.jsonl", "--differs", "builtin", "other")
    assert done.stdout.count("[failed] builtin: bad") == 8 == done.stdout.count("[passed] other: good")


def test_regressions_and_a_minimum_rate_exit_with_8(evaluate, tmp_path):
    cases = [{"id": str(n), "prompt": str(n), "expect": "good"} for n in range(8)]
    assert evaluate(cases, "-o", "before", answer=lambda text: "good")[0].code == 0
    same, _ = evaluate(cases, "-o", "now", "--baseline", "before/results.jsonl", answer=lambda text: "good")
    assert same.code == 0 and "cannot be told apart from the earlier builtin" in same.stderr
    worse, _ = evaluate(cases, "-o", "worse", "--baseline", "before", answer=lambda text: "bad")
    assert (
        worse.code == 8 and "builtin is worse than the earlier builtin over 8 cases (-100.0%, p = 0.008" in worse.stderr
    )
    some, _ = evaluate(
        cases, "-o", "some", "--baseline", "before", answer=lambda text: "bad" if text == "1" else "good"
    )
    assert some.code == 0, "one case is no evidence"
    low, _ = evaluate(cases, "-o", "some", "--min", "0.9", answer=lambda text: "")
    assert low.code == 8 and "87.5% is below 90.0%" in low.stderr
    none, _ = evaluate(cases, "-o", "some", "--baseline", "nowhere")
    assert none.code == 2 and "cannot read results" in none.stderr


def test_a_case_without_an_answer_is_an_error_and_is_retried(evaluate, tmp_path):
    from leap_core.errors import LeapGenerationError

    done, _ = evaluate(answer=lambda text: LeapGenerationError("out of order") if text == "two" else f"<{text}>")
    assert done.code == 8 and "1 answers are missing" in done.stderr
    assert [row.get("error") for row in _lines(tmp_path / "c.eval/results.jsonl")] == [None, "out of order", None]
    assert evaluate()[1] == ["two"]


def test_the_page_and_junit_and_markdown(evaluate, tmp_path):
    cases = [*CASES, {"id": "<script>", "prompt": "\x01&", "expect": "<b>"}]
    done, _ = evaluate(cases, "--html", "p.html", "--junit", "j.xml", "--format", "markdown")
    page = (tmp_path / "p.html").read_text("utf-8")
    assert "<script>" not in page and "&lt;script&gt;" in page and "http" not in page, "escaped, and self-contained"
    assert "prefers-color-scheme: dark" in page and "width=device-width" in page
    root = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("4", "2", "0")
    assert [case.get("name") for case in root.iter("testcase")] == ["a", "b", "c", "<script>"]
    assert "| builtin | 50.0% of 4 |" in done.stdout and "| g | 2/2 |" in done.stdout


def test_answers_are_shown_side_by_side(evaluate, leap):
    evaluate(models=("builtin", "builtin-vl"))
    failed = leap("eval", "show", "--failed")
    assert failed.stdout.startswith(
        "c: three\n  [failed] builtin: <three>\n    - not_contains: contains, and should not\n"
    )
    assert "a: one" not in failed.stdout
    one = leap("eval", "show", "c.eval", "--case", "a")
    assert one.stdout == "a: one\n  [passed] builtin: <one>\n  [passed] builtin-vl: <one>\n"
    assert leap("eval", "show", "--case", "z").code == 2
    assert leap("eval", "show", "nowhere").code == 2


def test_files_that_name_programs_are_refused_unless_allowed(evaluate, tmp_path):
    (tmp_path / "check.py").write_text("def good(text, about): return about['prompt'] in text\n")
    cases = [{"id": "a", "prompt": "x", "expect": {"python": "check.py:good"}}]
    done, asked = evaluate(cases)
    assert done.code == 2 and "--allow-python" in done.stderr and asked == []
    assert "100.0% of 1" in evaluate(cases, "--allow-python")[0].stdout


def test_an_unusable_case_is_named(evaluate):
    done, asked = evaluate([{"id": "odd", "prompt": "x", "temprature": 1, "expect": "a"}])
    assert done.code == 2 and "odd: " in done.stderr and "temprature" in done.stderr and asked == []


def test_a_judge_rates_the_answers(evaluate):
    cases = [{"id": "a", "prompt": "x", "expect": {"judge": "Is it polite?"}}]
    done, _ = evaluate(cases)
    assert done.code == 2 and "--judge MODEL" in done.stderr


def test_cases_of_a_batch(leap, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"id": "a", "prompt": "one"}\n{"id": "b", "prompt": "two"}\n')
    (tmp_path / "out.jsonl").write_text(
        '{"custom_id": "a", "text": "{\\"x\\": 1}"}\n{"custom_id": "b", "error": {"message": "no"}}\n'
    )
    done = leap("eval", "make", "--from", "batch", "in.jsonl", "out.jsonl")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"id": "a", "prompt": "one", "expect": {"json": {"x": 1}}}
    ]
    assert leap("eval", "make", "--from", "batch", "in.jsonl").code == 2
    assert leap("eval", "make", "--from", "sessions").code == 2


def test_measuring_requests_in_the_log_become_no_cases(leap):
    from leap_core.conversation.prompt_log import Entry, PromptLog

    with PromptLog(leap.home / "log.db") as log:
        for command in ("generate", "improve", "eval run", "bench", "chat", "job generate"):
            log.add(Entry(command, "m", f"asked by {command}", answer="yes", finish="stop"))
    done = leap("eval", "make", "--from", "log")
    prompts = [json.loads(line)["prompt"] for line in done.stdout.splitlines()]
    assert sorted(prompts) == ["asked by chat", "asked by generate", "asked by job generate"]


def test_answers_rated_bad_become_no_cases(leap):
    from leap_core.conversation.messages import ChatMessage
    from leap_core.conversation.prompt_log import Entry, PromptLog
    from leap_core.conversation.sessions import SessionStore

    with PromptLog(leap.home / "log.db") as log:
        for text in ("one", "two"):
            log.add(Entry("generate", "m", text, answer=f"<{text}>", finish="stop"))
        log.rate(1, "bad")
    done = leap("eval", "make", "--from", "log")
    assert [json.loads(line)["prompt"] for line in done.stdout.splitlines()] == ["two"]
    assert "left out 1 answer that is rated bad" in done.stderr
    with SessionStore(leap.home / "leap.db") as store:
        id = store.create(name="ada").id
        for text in ("good?", "bad?"):
            store.append(id, ChatMessage("user", text))
            store.append(id, ChatMessage("assistant", f"<{text}>"))
        store.rate(id, "bad")
    done = leap("eval", "make", "--from", "sessions", "ada")
    assert [json.loads(line)["expect"] for line in done.stdout.splitlines()] == [{"equals": "<good?>"}]


@pytest.mark.parametrize("name", ["expected", "expected_output", "ideal", "target", "answer", "output", "reference"])
def test_another_programs_name_for_expect_leads_to_it(evaluate, leap, tmp_path, name):
    done, _ = evaluate([{"prompt": "one", name: "<one>"}])
    said = f"did you mean expect, in the place of {name}?"
    assert done.code == 2 and said in done.stderr and done.stderr.count("\n") == 1
    (tmp_path / "c.csv").write_text(f"prompt,{name}\none,<one>\n")
    assert said in leap("eval", "c.csv", "-m", "builtin").stderr


def test_a_case_file_as_results_is_refused(evaluate, leap, tmp_path):
    for text in (json.dumps(CASES[0]), "[]", '"x"', "{}"):
        (tmp_path / "c.jsonl").write_text(f"{text}\n")
        done = leap("eval", "show", "c.jsonl")
        assert done.code == 2 and done.stderr.count("\n") == 1 and "has no results of an evaluation" in done.stderr
        assert "__init__" not in done.stderr and "leap eval show CASES.eval" in done.stderr


def test_equals_that_matches_a_part_suggests_contains(evaluate):
    cases = [{"prompt": text, "expect": text.upper()} for text in ("one", "two")]
    done, _ = evaluate(cases)
    assert done.stderr.count("`contains` finds a text within") == 1 and done.code == 0
    for hintless in ([*cases, {"prompt": "x", "expect": "y"}], [*cases, {"prompt": "x", "expect": "<x>"}]):
        assert "`contains`" not in evaluate(hintless)[0].stderr
    assert "`contains`" not in evaluate(cases, "-q")[0].stderr


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85"])
def test_unicode_line_separators_are_characters_of_a_case(evaluate, leap, tmp_path, mark):
    case = json.dumps({"id": "a", "prompt": f"one{mark}two", "expect": f"<one{mark}two>"}, ensure_ascii=False)
    done, _ = evaluate(f"{case}\n")
    assert "100.0% of 1" in done.stdout, done.stderr
    assert leap("eval", "show").stdout.split("\n")[1] == done.stdout.split("\n")[1]


def test_results_of_shards_are_merged(evaluate, tmp_path):
    """Each part by itself, and then the table of all, which asks nothing."""
    whole, asked = evaluate(CASES, "-o", "whole")
    of_parts = [evaluate(CASES, "-o", "parts", "--shard", f"{n}/2") for n in (1, 2)]
    assert sorted(text for _, texts in of_parts for text in texts) == asked
    assert all(done.stdout == "" and "--merge 2 shows the table" in done.stderr for done, _ in of_parts)
    merged, again = evaluate(CASES, "-o", "parts", "--merge", "2")
    assert again == [] and merged.code == 0, merged.stderr
    assert "66.7% of 3" in merged.stdout and "66.7% of 3" in whole.stdout


def test_missing_models_are_found_before_anything_is_asked(evaluate):
    cases = [*CASES, {"id": "z", "prompt": "x", "expect": {"judge": "Is it?"}}]
    for options, message in [((), "--judge MODEL"), (("--judge", "nosuch"), "no model 'nosuch'")]:
        done, asked = evaluate(cases, *options)
        assert done.code == 2 and message in done.stderr and asked == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_evaluation_resumes_with_the_same_result(tmp_path):
    """The whole form, with 100 cases, three models and five kills, is scripts/evaluation_under_kills.py."""
    lines = "".join(json.dumps(case) + "\n" for case in evaluation_under_kills.cases(16))
    (tmp_path / "cases.jsonl").write_text(lines)
    assert evaluation_under_kills.under_kills(tmp_path, ["builtin"], 2)


def _lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]

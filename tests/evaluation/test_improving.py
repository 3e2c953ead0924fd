"""The ladder over rules in the place of models: which rung is kept, where it stops, and that it goes on."""

from __future__ import annotations

import json
import threading

import pytest

from leap_core import LeapError
from leap_core.evaluation.cases import Case, CaseFile, read_cases
from leap_core.evaluation.expectations import KINDS, read_expectations
from leap_core.evaluation.improving import Ended, ImprovementWish, Ladder, answer_of, report, split
from leap_core.evaluation.results import CaseResult
from leap_core.evaluation.running import Column, Evaluation
from leap_core.tasks.reading import check_places
from leap_core.tasks.recipe import parse_recipe, read_recipe


def cases(count: int = 60, answer="word-{}") -> CaseFile:
    made = [
        Case(
            f"c{n}", {"prompt": f"question {n}"}, read_expectations({"equals": answer.format(n % 20)}, "expect", KINDS)
        )
        for n in range(count)
    ]
    return CaseFile(tuple(made))


class Rule:
    """Answers right where the rule says so of a column; counts what it is asked."""

    def __init__(self, passes):
        self.passes, self.asked, self.stop_after = passes, 0, None

    def __call__(self, column, part_cases, part):
        results = []
        for case in part_cases:
            if self.stop_after is not None and self.asked >= self.stop_after:
                raise Ended("stopped")
            self.asked += 1
            right = self.passes(column, case)
            told = [{"expect": "equals", "passed": right, "score": float(right), "message": "it is not in capitals"}]
            answer = answer_of(case) if right else "?"
            results.append(
                CaseResult(case.id, column.name, passed=right, score=float(right), answer=answer, expectations=told,
                           prompt=case.prompt)
            )  # fmt: skip
        return results


def climb(tmp_path, passes, file=None, **wishes):
    rule = Rule(passes)
    wish = ImprovementWish(file or cases(), Column("as it is", "m"), tmp_path, **wishes)
    ladder = Ladder(wish, rule, lambda line: None, threading.Event())
    return ladder.climb(), rule


def kept(improved) -> list[str]:
    return [step.rung for step in improved.steps if step.kept]


def test_parts_are_of_the_seed_alone():
    file = cases(100)
    parts = split(file.cases, 1)
    assert [len(part) for part in parts.values()] == [30, 35, 35]
    assert {case.id for part in parts.values() for case in part} == {case.id for case in file.cases}
    assert split(file.cases, 1) == parts and split(file.cases, 2) != parts
    with pytest.raises(LeapError, match="too few"):
        split(file.cases[:19], 1)


def test_what_passes_already_is_left(tmp_path):
    improved, rule = climb(tmp_path, lambda column, case: True)
    assert kept(improved) == ["as it is"] and not improved.is_better and len(improved.steps) == 1
    assert (improved.before, improved.after, improved.p) == (1.0, 1.0, 1.0)


def test_labels_are_the_cheapest_mend(tmp_path):
    file = cases(60, "yes")
    file = CaseFile(tuple(file.cases[:30]) + tuple(cases(30, "no").cases))
    file = CaseFile(tuple(Case(f"c{n}", each.request, each.expectations) for n, each in enumerate(file.cases)))
    improved, _ = climb(tmp_path, lambda column, case: "choices_constraint" in column.options, file)
    assert kept(improved) == ["as it is", "settings"] and improved.p < 0.05 and improved.after == 1.0
    assert improved.column.options["choices_constraint"] == ["no", "yes"]


def test_examples_mend_a_format(tmp_path):
    improved, _ = climb(tmp_path, lambda column, case: "Answer: word-" in (column.system or ""))
    assert kept(improved) == ["as it is", "examples"] and improved.p < 0.05
    assert improved.steps[-1].way == "4 examples", "and there it stops"
    assert "pass on choose" in report(improved) and "Answer as in these examples." in report(improved)


REWRITTEN = "```\nAlways answer in capitals.\n```"


def test_reflection_finds_a_fault_of_the_prompt(tmp_path):
    pytest.importorskip("gepa")
    seen = []

    def reflect(prompt: str) -> str:
        seen.append(prompt)
        return REWRITTEN

    improved, rule = climb(tmp_path, lambda column, case: "capitals" in (column.system or ""), reflect=reflect)
    assert kept(improved) == ["as it is", "prompt"] and improved.p < 0.05
    assert improved.column.system == "Always answer in capitals."
    assert "it is not in capitals" in seen[0], "it is told what was wrong"
    asked = len(seen)
    again, _ = climb(tmp_path, rule.passes, reflect=reflect)
    assert len(seen) == asked and again.steps[-1].way == improved.steps[-1].way, "no reflection is asked for twice"
    assert [each.p for each in again.steps] == [each.p for each in improved.steps], "the same ladder"


def test_a_reflector_that_answers_nonsense_changes_nothing(tmp_path):
    pytest.importorskip("gepa")
    improved, _ = climb(tmp_path, lambda column, case: False, reflect=lambda prompt: "blah")
    assert kept(improved) == ["as it is"] and improved.p == 1.0


def test_a_larger_model_is_the_last_but_one(tmp_path):
    improved, _ = climb(tmp_path, lambda column, case: column.escalate_to == "big", escalate_to="big")
    assert kept(improved) == ["as it is", "escalation"] and improved.column.when == "invalid"


def test_a_task_is_mended_in_its_recipe(tmp_path):
    recipe = read_recipe("classify")
    request = {"task": "classify", "labels": ["yes", "no"], "text": "is {labels} or {this} it?"}
    expect = read_expectations({"equals": "yes"}, "expect", KINDS)
    file = CaseFile(tuple(Case(f"c{n}", request, expect) for n in range(60)))

    def wording(column):
        text = column.recipes.get("classify", recipe.source)
        return parse_recipe("classify", text).wording_for("m[1]").system

    improved, _ = climb(
        tmp_path, lambda column, case: "Answer: yes" in wording(column), file, recipe=recipe, model_id="m[1]"
    )
    assert kept(improved) == ["as it is", "examples"] and [step.rung for step in improved.steps[1:]] == ["examples"]
    found = parse_recipe("classify", improved.column.recipes["classify"])
    check_places(found)
    assert found.wording_for("another") == recipe.wording_for("another") and improved.column.system is None
    system = found.wording_for("m[1]").system
    assert system.startswith(recipe.wording_for("m[1]").system) and "is { labels } or { this } it?" in system
    assert "Answer as in these examples." in report(improved) and improved.opening[1] == system
    evaluation = Evaluation(file, [], tmp_path, print, {})
    assert evaluation.settings(improved.column).recipes == improved.column.recipes


def test_a_rewritten_recipe_keeps_its_places():
    recipe = read_recipe("classify").with_system("m", "Say {what} fits.")
    assert recipe.wording_for("m").system == "Say { what } fits.\n\nlabels: {labels}"
    check_places(parse_recipe("classify", recipe.source))


def test_chance_is_no_gain(tmp_path):
    """Two cases more of twenty-one are not enough to be kept."""
    lucky = {f"c{n}" for n in range(60)}
    better = set(sorted(lucky)[:2])
    improved, _ = climb(tmp_path, lambda column, case: column.system is not None and case.id in better)
    assert kept(improved) == ["as it is"]


def test_no_answers_to_learn_from(tmp_path):
    (tmp_path / "cases.jsonl").write_text(
        "".join(json.dumps({"prompt": f"q{n}", "expect": {"contains": "x"}}) + "\n" for n in range(30))
    )
    (tmp_path / "ck").mkdir()
    file = read_cases(tmp_path / "cases.jsonl")
    improved, _ = climb(tmp_path, lambda column, case: False, file, checkpoint=tmp_path / "ck")
    assert improved.notes == ["adapter: the cases say no answers to train on"]


def test_it_is_stopped_anywhere(tmp_path):
    for after in (0, 5, 30, 60):
        rule = Rule(lambda column, case: False)
        rule.stop_after = after
        ladder = Ladder(ImprovementWish(cases(), Column("a", "m"), tmp_path), rule, print, threading.Event())
        with pytest.raises(Ended):
            ladder.climb()

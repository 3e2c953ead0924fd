"""The improver over rules in the place of models: which step is kept, where it stops, and that it goes on."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest

from leap_core import LeapError
from leap_core.evaluation.cases import Case, CaseFile, read_cases
from leap_core.evaluation.expectations import KINDS, read_expectations
from leap_core.evaluation.improvement.improver import ImprovementSettings, Improver, answer_of, report
from leap_core.evaluation.improvement.prompt_search import Ended
from leap_core.evaluation.results import CaseResult
from leap_core.evaluation.running import Column, Evaluation
from leap_core.evaluation.splitting import doubts_about, questions_of, split
from leap_core.tasks.recipe import parse_recipe, read_recipe
from leap_core.tasks.task_fields import check_places

sys.path.insert(0, str(Path(__file__).parent.parent.parent.parent / "scripts"))
import improve_by_chance  # noqa: E402


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
        assert len({case.id for case in part_cases}) == len(part_cases), "a batch takes each id once"
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


def improve(tmp_path, passes, file=None, **given):
    rule = Rule(passes)
    settings = ImprovementSettings(file or cases(), Column("baseline", "m"), tmp_path, **given)
    improver = Improver(settings, rule, lambda line: None, threading.Event())
    return improver.run(), rule


def kept(improved) -> list[str]:
    return [trial.step for trial in improved.trials if trial.kept]


def test_the_split_depends_only_on_the_seed():
    file = cases(100)
    parts = split(file.cases, 1)
    assert [len(part) for part in parts.values()] == [30, 35, 35]
    assert {case.id for part in parts.values() for case in part} == {case.id for case in file.cases}
    assert split(file.cases, 1) == parts and split(file.cases, 2) != parts
    with pytest.raises(LeapError, match="too few"):
        split(file.cases[:19], 1)


def test_a_passing_baseline_is_kept(tmp_path):
    improved, rule = improve(tmp_path, lambda column, case: True)
    assert kept(improved) == ["baseline"] and not improved.is_better and len(improved.trials) == 1
    assert (improved.before, improved.after, improved.p) == (1.0, 1.0, 1.0)


def test_limiting_to_labels_is_tried_first(tmp_path):
    file = CaseFile(cases(60, "yes").cases[:30] + cases(60, "no").cases[30:])
    improved, _ = improve(tmp_path, lambda column, case: "choices_constraint" in column.options, file)
    assert kept(improved) == ["baseline", "settings"] and improved.p < 0.05 and improved.after == 1.0
    assert improved.column.options["choices_constraint"] == ["no", "yes"]


def test_examples_fix_a_format(tmp_path):
    improved, _ = improve(tmp_path, lambda column, case: "Answer: word-" in (column.system or ""))
    assert kept(improved) == ["baseline", "examples"] and improved.p < 0.05
    assert improved.trials[-1].variant == "4 examples", "and there it stops"
    assert "pass on choose" in report(improved) and "Answer as in these examples." in report(improved)


REWRITTEN = "```\nAlways answer in capitals.\n```"


def test_reflection_fixes_a_fault_of_the_prompt(tmp_path):
    pytest.importorskip("gepa")
    seen = []

    def reflect(prompt: str) -> str:
        seen.append(prompt)
        return REWRITTEN

    improved, rule = improve(tmp_path, lambda column, case: "capitals" in (column.system or ""), reflect=reflect)
    assert kept(improved) == ["baseline", "prompt"] and improved.p < 0.05
    assert improved.column.system == "Always answer in capitals."
    assert "it is not in capitals" in seen[0], "it is told what was wrong"
    asked = len(seen)
    again, _ = improve(tmp_path, rule.passes, reflect=reflect)
    assert len(seen) == asked, "no reflection is asked for twice"
    assert again.trials[-1].variant == improved.trials[-1].variant
    assert [each.p for each in again.trials] == [each.p for each in improved.trials], "the same trials"


def test_a_reflector_that_answers_nonsense_changes_nothing(tmp_path):
    pytest.importorskip("gepa")
    improved, _ = improve(tmp_path, lambda column, case: False, reflect=lambda prompt: "blah")
    assert kept(improved) == ["baseline"] and improved.p == 1.0


def test_a_larger_model_is_tried_second_to_last(tmp_path):
    improved, _ = improve(tmp_path, lambda column, case: column.escalate_to == "big", escalate_to="big")
    assert kept(improved) == ["baseline", "escalation"] and improved.column.when == "invalid"


def test_a_task_is_improved_in_its_recipe(tmp_path):
    recipe = read_recipe("classify")
    request = {"task": "classify", "labels": ["yes", "no"]}
    expect = read_expectations({"equals": "yes"}, "expect", KINDS)
    text = "is {{labels}} or {{this}} it? {}"
    file = CaseFile(tuple(Case(f"c{n}", {**request, "text": text.format(n)}, expect) for n in range(60)))

    def wording(column):
        text = column.recipes.get("classify", recipe.source)
        return parse_recipe("classify", text).wording_for("m[1]").system

    improved, _ = improve(
        tmp_path, lambda column, case: "Answer: yes" in wording(column), file, recipe=recipe, model_id="m[1]"
    )
    assert kept(improved) == ["baseline", "examples"] and [trial.step for trial in improved.trials[1:]] == ["examples"]
    found = parse_recipe("classify", improved.column.recipes["classify"])
    check_places(found)
    assert found.wording_for("another") == recipe.wording_for("another") and improved.column.system is None
    system = found.wording_for("m[1]").system
    assert system.startswith(recipe.wording_for("m[1]").system) and "is { labels } or { this } it? " in system
    assert "Answer as in these examples." in report(improved) and improved.opening[1] == system
    evaluation = Evaluation(file, [], tmp_path, print, {})
    assert evaluation.settings(improved.column).input.recipes == improved.column.recipes


def test_a_rewritten_recipe_keeps_its_placeholders():
    recipe = read_recipe("classify").with_system("LFM2-350M", "Say {what} fits.")
    assert recipe.wording_for("LFM2-350M").system == "Say { what } fits.\n\nlabels: {labels}"
    check_places(parse_recipe("classify", recipe.source))


def test_a_gain_by_chance_is_not_kept(tmp_path):
    """Two cases more of twenty-one are not enough to be kept."""
    lucky = {f"c{n}" for n in range(60)}
    better = set(sorted(lucky)[:2])
    improved, _ = improve(tmp_path, lambda column, case: column.system is not None and case.id in better)
    assert kept(improved) == ["baseline"]


def test_cases_without_answers_give_no_examples(tmp_path):
    (tmp_path / "cases.jsonl").write_text(
        "".join(json.dumps({"prompt": f"q{n}", "expect": {"contains": "x"}}) + "\n" for n in range(30))
    )
    (tmp_path / "ck").mkdir()
    file = read_cases(tmp_path / "cases.jsonl")
    improved, _ = improve(tmp_path, lambda column, case: False, file, checkpoint=tmp_path / "ck")
    assert improved.notes == ["adapter: the cases say no answers to train on"]


def test_a_variant_that_reaches_the_goal_without_a_gain_does_not_stop_the_search(tmp_path):
    """All of 21 pass with the last way of the settings, 20 do as it is: no gain, and the other rungs are tried."""
    file = CaseFile(tuple(Case(each.id, {**each.request, "schema": {}}, each.expectations) for each in cases().cases))
    weak = split(file.cases, 1)["choose"][0].id
    improved, _ = improve(
        tmp_path,
        lambda column, case: case.id != weak or "inject_schema_into_prompt" in column.options,
        file,
        goal=1.0,
        escalate_to="big",
    )
    tried = [trial.step for trial in improved.trials]
    assert improved.trials[3].rate == 1.0 and not improved.trials[3].kept
    assert tried[4:] == ["examples", "examples", "escalation", "escalation", "escalation"]


def test_steps_not_tried_after_the_goal_are_reported(tmp_path):
    improved, _ = improve(tmp_path, lambda column, case: "Answer: word-" in (column.system or ""))
    assert improved.notes == ["prompt, escalation, adapter: the goal was reached before"]


def test_a_gain_absent_on_held_out_cases_is_not_kept(tmp_path):
    """Better on the cases to choose by, and worse on those held back."""
    file = cases()
    held = {case.id for case in split(file.cases, 1)["held"]}
    improved, _ = improve(tmp_path, lambda column, case: (column.system is None) == (case.id in held), file)
    text = report(improved)
    assert not improved.is_better and kept(improved) == ["baseline"] and improved.column.system is None
    assert (improved.before, improved.after) == (1.0, 1.0) and improved.rejected[1] == 0.0 and improved.p == 1.0
    assert text.startswith("# No better than it was") and improved.rejected[0] in text
    assert "100.0% before, 0.0% with it (p = 1.000), which is no gain." in text


@pytest.mark.parametrize("count", [61, 62, 63, 64])
def test_reflection_asks_no_case_twice_at_once(tmp_path, count):
    pytest.importorskip("gepa")
    improved, _ = improve(
        tmp_path,
        lambda column, case: "capitals" in (column.system or ""),
        cases(count),
        reflect=lambda prompt: REWRITTEN,
    )
    assert kept(improved) == ["baseline", "prompt"]


def case(name: str, prompt: str, **expect) -> Case:
    return Case(name, {"prompt": prompt}, read_expectations(expect, "expect", KINDS))


def test_equal_questions_are_in_one_part_and_count_once(tmp_path):
    twice = [case(f"d{n}", f" question  {n}\n", equals=f"word-{n % 20}") for n in range(30)]
    other = [case(f"e{n}", f"question {n}", contains="word") for n in range(30)]
    file = CaseFile((*cases(30).cases, *twice, *other))
    parts = split(file.cases, 1)
    numbers = [{each.id[1:] for each in part} for part in parts.values()]
    assert [len(part) for part in parts.values()] == [18, 20, 22], "two cases of each of thirty questions"
    assert not numbers[0] & numbers[1] | numbers[0] & numbers[2] | numbers[1] & numbers[2]
    assert doubts_about(file.cases) == ["30 of 90 cases repeat another and count once"]
    few = parts["choose"][0].id[1:], parts["choose"][2].id[1:]
    improved, _ = improve(tmp_path, lambda column, case: column.system is not None and case.id[1:] in few, file)
    assert all(step.p >= 0.25 for step in improved.trials[1:]), "four cases that pass are two questions"


def asking(name: str, expect: str, **request) -> Case:
    return Case(name, request, read_expectations({"equals": expect}, "expect", KINDS))


SPELLINGS = [
    {"prompt": "which one?", "system": "Be brief."},
    {"prompt": "which one?", "system": "Be brief.", "temperature": 0.7, "seed": 3},
    {"prompt": "which  one?", "system": "Be brief.\n", "max_tokens": 9, "model": "other"},
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "which one?"}]},
    {
        "messages": [
            {"content": [{"type": "text", "text": "Be brief."}], "role": "system"},
            {"content": [{"type": "text", "text": "which one?"}], "role": "user"},
        ],
        "top_p": 0.5,
    },
]
OTHERS = [{"prompt": "which one?"}, {"prompt": "Be brief.", "system": "which one?"}, {"task": "classify", "text": "x"}]
OTHERS += [{"prompt": "which one?", "system": "Be brief.", "schema": {"type": "integer"}}]


def test_one_question_in_any_spelling_is_one_question():
    same = [asking(f"s{n}", "left", **request) for n, request in enumerate(SPELLINGS)]
    others = [asking(f"o{n}", "left", **request) for n, request in enumerate(OTHERS)]
    assert [len(each) for each in questions_of([*same, *others])] == [1, 1, 1, 1, 1]
    contrary = [asking(f"c{n}", "right" if n else "left", **request) for n, request in enumerate(SPELLINGS[:2])]
    messages = [asking(f"m{n}", "right" if n else "left", **request) for n, request in enumerate(SPELLINGS[3:])]
    for one, other in (contrary, messages):
        assert doubts_about([one, other]) == [f"{one.id} and {other.id} ask the same and expect different answers"]


def test_cases_that_contradict_each_other_are_named(tmp_path):
    doubtful = [
        case("a", "which?", equals="left"), case("b", "which? ", equals="right"), case("c", "which?", contains="ft"),
        case("d", "how?", equals=["so", "thus"]), case("e", "how?", equals="thus"), case("f", "why?", contains="x"),
        case("g", "why?", not_contains="x"),
    ]  # fmt: skip
    said = ["a and b ask the same and expect different answers", "f and g ask the same and expect different answers"]
    assert doubts_about(doubtful) == said
    told = []
    settings = ImprovementSettings(CaseFile((*cases().cases, *doubtful)), Column("baseline", "m"), tmp_path)
    improved = Improver(settings, Rule(lambda column, case: True), told.append, threading.Event()).run()
    assert told[:2] == said and all(f"- {each}" in report(improved) for each in said)


@pytest.mark.slow
@pytest.mark.parametrize("scores", improve_by_chance.SCORES)
def test_chance_gains_are_kept_at_most_once_in_twenty(scores):
    """``scripts/improve_by_chance.py`` in short: the interval of the share admits 5 %, and a true gain is kept."""
    _, low, _ = improve_by_chance.share_kept(scores, 30, 0.0, 40)
    assert low <= 0.05
    assert improve_by_chance.share_kept(scores, 150, 0.7, 5)[0] >= 0.6


def test_an_improvement_can_be_stopped_anywhere(tmp_path):
    for after in (0, 5, 30, 60):
        rule = Rule(lambda column, case: False)
        rule.stop_after = after
        improver = Improver(ImprovementSettings(cases(), Column("a", "m"), tmp_path), rule, print, threading.Event())
        with pytest.raises(Ended):
            improver.run()

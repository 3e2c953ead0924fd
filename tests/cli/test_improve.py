"""``leap improve``: what it says of the result."""

from __future__ import annotations

import pytest

from leap_core.evaluation.improvement.improver import Improved, Improver, Trial
from leap_core.evaluation.running import Column


def test_a_chosen_larger_model_is_named_beside_the_template(leap, leap_home, tmp_path, monkeypatch):
    cases = tmp_path / "cases.jsonl"
    cases.write_text("".join(f'{{"prompt": "{n}?", "expect": {{"equals": "yes"}}}}\n' for n in range(40)))
    column = Column("kept", "builtin", escalate_to="big", when="uncertain<0.7")
    trial = Trial("escalation", "to big", 0.9, 0.8, 1.0, 1.0, 0.1, 0.01, True)
    improved = Improved(column, [trial, trial], [], 0.1, 0.9, 0.01, {}, Column("start", "builtin"), [])
    monkeypatch.setattr(Improver, "run", lambda _self: improved)
    done = leap("improve", str(cases), "-m", "builtin", "--save-template", "mine", "--format", "quiet")
    assert done.code == 0, done.stderr
    assert "`leap batch -t mine --escalate-to big --escalate-when 'uncertain<0.7'` uses it" in done.stderr
    assert (leap_home / "templates" / "mine.toml").is_file()


@pytest.mark.parametrize("background", [[], ["--background"]])
@pytest.mark.parametrize(
    ("option", "reason"),
    [
        (["--save-template", "a/b"], "'a/b' cannot name a template"),
        (["--option", "reflection-model=nosuch"], "there is no model 'nosuch'"),
        (["--escalate-to", "nosuch"], "there is no model 'nosuch'"),
        (["--to", "nan"], "--to: nan is not a number"),
    ],
)
def test_a_wrong_option_is_refused_before_the_first_request(leap, tmp_path, option, reason, background):
    cases = tmp_path / "cases.jsonl"
    cases.write_text("".join(f'{{"prompt": "{n}?", "expect": {{"equals": "yes"}}}}\n' for n in range(40)))
    done = leap("improve", str(cases), "-m", "builtin", *option, *background)
    assert done.code != 0 and reason in done.stderr and "Traceback" not in done.stderr
    assert not leap.loaded and not cases.with_suffix(".improve").exists()


@pytest.mark.parametrize("line", ["--min=nan", "--option=alpha=nan"])
def test_eval_refuses_a_limit_that_is_not_a_number(leap, tmp_path, line):
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"prompt": "hi", "expect": {"equals": "yes"}}\n')
    done = leap("eval", str(cases), "-m", "builtin", line)
    assert done.code == 2 and f"{line.rpartition('=')[0].replace('=', ' ')}: nan is not a number" in done.stderr

"""``leap improve``: what it says of the result."""

from __future__ import annotations

from leap_core.evaluation.improvement.improver import Improved, Improver, Trial
from leap_core.evaluation.running import Column


def test_a_larger_model_that_is_kept_is_named_beside_the_template(leap, leap_home, tmp_path, monkeypatch):
    cases = tmp_path / "cases.jsonl"
    cases.write_text("".join(f'{{"prompt": "{n}?", "expect": {{"equals": "yes"}}}}\n' for n in range(40)))
    column = Column("kept", "builtin", escalate_to="big", when="uncertain<0.7")
    trial = Trial("escalation", "to big", 0.9, 0.8, 1.0, 1.0, 0.1, 0.01, True)
    improved = Improved(column, [trial, trial], [], 0.1, 0.9, 0.01, {}, Column("start", "builtin"), [])
    monkeypatch.setattr(Improver, "run", lambda _self: improved)
    done = leap("improve", str(cases), "-m", "builtin", "--save-template", "mine", "--format", "quiet")
    assert done.code == 0, done.stderr
    assert "`leap batch -t mine --escalate-to big --escalate-when 'uncertain<0.7'` asks so" in done.stderr
    assert (leap_home / "templates" / "mine.toml").is_file()

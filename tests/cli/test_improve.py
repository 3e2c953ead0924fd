"""``leap improve``: what it says of the result."""

from __future__ import annotations

import json

from leap_core.evaluation.improvement.improver import Improved, Improver
from leap_core.evaluation.running import Column


def test_a_larger_model_that_is_kept_is_named_beside_the_template(leap, leap_home, tmp_path, monkeypatch):
    case = {"prompt": "Hi", "expect": {"equals": "yes"}}
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps({"id": f"c{n}", **case}) + "\n" for n in range(40)))
    column = Column("kept", "builtin", escalate_to="big", when="uncertain<0.7")
    improved = Improved(column, [], [], 0.1, 0.9, 0.01, {}, Column("start", "builtin"), [])
    monkeypatch.setattr(Improver, "run", lambda _self: improved)
    done = leap(
        "improve", str(tmp_path / "cases.jsonl"), "-m", "builtin", "--save-template", "mine", "--format", "quiet"
    )
    assert done.code == 0, done.stderr
    assert "`leap batch -t mine --escalate-to big --escalate-when 'uncertain<0.7'` asks so" in done.stderr
    assert (leap_home / "templates" / "mine.toml").is_file()

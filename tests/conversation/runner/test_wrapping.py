"""The wrappers of a runner have one order, and one place that puts them around it."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from leap_core.batch.escalation import EscalatingRunner, When
from leap_core.conversation.logged_runner import LoggedRunner, LogWriter
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.prompt_progress import ReportingRunner
from leap_core.conversation.runner import ModelRunner, PassingRunner, PrioritizedRunner
from leap_core.conversation.streams import last_of
from leap_core.conversation.wrapping import wrapped
from leap_core.testing import ScriptedModelRunner
from leap_core.tools.deferred_tools import FoldingRunner

ROOT = Path(__file__).parents[3]
ORDER = [FoldingRunner, EscalatingRunner, ReportingRunner, PrioritizedRunner, LoggedRunner]
"""From the outside in."""


def layers(runner: ModelRunner) -> list[type]:
    found = []
    while isinstance(runner, PassingRunner):
        found.append(type(runner))
        runner = runner._runner
    return found


def test_the_order_is_the_one_that_is_written_down(tmp_path):
    log = LogWriter(tmp_path / "log.db", lambda: False, print)
    near, far = ScriptedModelRunner("near"), ScriptedModelRunner("far")
    runner = wrapped(
        near,
        fold=FoldingRunner,
        escalate=partial(EscalatingRunner, far=far, when=When.parse("invalid")),
        report=lambda *_: None,
        priority=-7,
        log=lambda inner: LoggedRunner(inner, log, "test"),
    )
    assert layers(runner) == ORDER
    assert runner.priority == -7
    assert last_of(runner.start([], (), GenerationOptions())).full_message.text == "near"
    assert near.requests[0].options.priority == -7
    assert wrapped(near) is near


def test_no_other_place_makes_a_wrapper():
    names = "|".join(each.__name__ for each in ORDER)
    made = {
        f"{path.relative_to(ROOT)}: {match}"
        for package in ("leap_core", "leap_cli", "jobs")
        for path in (ROOT / package).rglob("*.py")
        for match in re.findall(rf"(?<!class )\b(?:{names})\(", path.read_text("utf-8"))
    }
    assert made == {
        "leap_core/conversation/wrapping.py: PrioritizedRunner(",
        "leap_core/conversation/wrapping.py: ReportingRunner(",
        "leap_core/conversation/logged_runner.py: LoggedRunner(",
    }

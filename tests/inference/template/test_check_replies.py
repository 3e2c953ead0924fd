"""scripts/check_replies.py over a small checkout of our own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .unseen_templates import UNSEEN

SOURCE = r"""
static common_chat_tool clock_tool{
    /* .name = */ "clock",
    /* .description = */ "The time",
    /* .parameters = */ R"({"type": "object", "properties": {"zone": {"type": "string"}}})",
};
static void test() {
    auto tst = peg_tester("models/templates/ours.jinja", false);
    const std::string call = "<fn_call>{\"name\": \"clock\", " "\"arguments\": {\"zone\": \"\xc3\xa9\"}}</fn_call>";
    tst.test("<reflect>Hm.</reflect>\nHello").expect_reasoning("Hm.").expect_content("Hello").run();
    tst.test("One moment.\n" + call).tools({ clock_tool }).expect_content("One moment.")
        .expect_tool_calls({ { "clock", R"({"zone": "é"})", {} } }).run();
    tst.test("Hello").expect(simple_assist_msg("Hi")).run();  // is read otherwise
    tst.test("Hel").is_partial(true).expect(simple_assist_msg("Hel")).run();
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("least", "code"), [(2, 0), (3, 1)])
def test_cases_are_read_and_counted(tmp_path: Path, least: int, code: int):
    (tmp_path / "tests").mkdir()
    (tmp_path / "models" / "templates").mkdir(parents=True)
    (tmp_path / "tests" / "test-chat.cpp").write_text(SOURCE, "utf-8")
    (tmp_path / "models" / "templates" / "ours.jinja").write_text(UNSEEN["an object in a tag"].template, "utf-8")
    script = Path(__file__).parents[3] / "scripts" / "check_replies.py"
    command = [sys.executable, str(script), str(tmp_path), "--least", str(least)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == code, done.stdout + done.stderr
    assert "2 of 3 cases right" in done.stdout and "0 readings in pieces differ" in done.stdout

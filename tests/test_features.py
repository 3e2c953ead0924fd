"""Features that can be taken out of leap: nothing else imports their files, and without them the rest works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from leap_cli.command_table import FEATURES as COMMANDS_OF_FEATURES

from .test_imports import imports

ROOT = Path(__file__).parent.parent
PACKAGES = ("leap_core", "leap_cli", "jobs")
IMPROVE = (
    "leap_core.evaluation.improvement",
    *("leap_cli.commands.tasks.improve", "leap_cli.commands.tasks.train", "leap_cli.options.lora"),
)
EVALUATION = (
    "leap_core.evaluation",
    *("leap_cli.commands.tasks.eval", "leap_cli.options.evaluation", "leap_cli.answers.cases"),
    "leap_cli.display.evaluation",
)
FEATURES = {
    "launch": (("launch",), ("leap_cli.commands.models.launch",)),
    "MCP server": (("mcp",), ("leap_cli.commands.models.mcp",)),
    "talk": (("talk",), ("leap_core.conversation.talk", "leap_cli.talk", "leap_cli.commands.ask.talk")),
    "improve": (("improve", "train"), IMPROVE),
    "evaluation": (("eval", "improve", "train"), EVALUATION + IMPROVE),
}
"""The commands and the modules and packages of each feature; those of what builds on it are among them."""
PROGRAM = [sys.executable, "-m", "leap_cli"]


def test_every_command_of_the_table_of_features_belongs_to_one():
    assert {command for commands, _ in FEATURES.values() for command in commands} == {*COMMANDS_OF_FEATURES}


@pytest.mark.slow
@pytest.mark.parametrize("feature", FEATURES)
def test_nothing_else_imports_a_feature(feature):
    _, modules = FEATURES[feature]

    def is_inside(name: str) -> bool:
        return any(name == each or name.startswith(f"{each}.") for each in modules)

    assert [str(each) for each in imports() if is_inside(each.imported) and not is_inside(each.importer)] == []


@pytest.mark.long
@pytest.mark.parametrize("feature", FEATURES)
def test_leap_works_without_a_feature(feature, tmp_path, leap_home):
    """In a copy without its files: help, the reference, which imports every command, and an answer."""
    commands, modules = FEATURES[feature]
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for module in modules:
        place = tmp_path.joinpath(*module.split("."))
        shutil.rmtree(place, ignore_errors=True)
        place.with_suffix(".py").unlink(missing_ok=True)

    def run(*arguments: str) -> str:
        variables = os.environ | {"PYTHONPATH": str(tmp_path), "LEAP_HOME": str(leap_home)}
        done = subprocess.run(
            [*PROGRAM, *arguments], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = run("--help")
    assert "generate" in shown and [command for command in commands if f" {command} " in shown] == []
    reference = run("help", "reference")
    assert "[leap generate]" in reference
    assert [command for command in commands if f"[leap {command}]" in reference] == []
    assert "Paris" in run("-m", "builtin", "What is the capital of France?")

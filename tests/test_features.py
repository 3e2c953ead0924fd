"""Features that can be taken out of leap: nothing else imports their files, and without them the rest works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence

import pytest

from leap_cli.command_table import FEATURES as COMMANDS_OF_FEATURES
from tests.support.source import PACKAGES, ROOT

from .test_imports import imports

IMPROVE = (
    "leap_core.evaluation.improvement",
    *("leap_cli.commands.tasks.improve", "leap_cli.commands.tasks.train", "leap_cli.options.lora"),
)
CONVERSION = (
    *("leap_core.models.conversion", "leap_core.inference.llama.quantizer"),
    "leap_cli.commands.models.making",
)
EVALUATION = (
    "leap_core.evaluation",
    *("leap_cli.commands.tasks.eval", "leap_cli.options.evaluation", "leap_cli.answers.cases"),
    "leap_cli.display.evaluation",
)
DECIDE = (
    *("leap_core.tasks.decisions.protocols", "leap_core.server.endpoints.decisions"),
    "leap_cli.commands.tasks.decide",
)
RAY = (
    *("leap_core.batch.clusters.ray_workers", "leap_core.batch.clusters.opening"),
    *("leap_cli.options.ray", "leap_cli.diagnosis.ray_cluster"),
)
REVIEW = (
    *("leap_core.tasks.review", "leap_core.server.review"),
    "leap_cli.answers.reviews",
)
WEB_UI = (
    *("leap_core.server.page", "leap_cli.options.web_ui"),
    "leap_cli.commands.records.job_page",
)
SEARCH = (
    *("leap_core.tasks.search", "leap_core.server.page.passages", "leap_cli.options.passages"),
    *("leap_cli.commands.ask.search", "leap_cli.commands.models.mcp_search"),
)
FEATURES = {
    "launch": (("launch",), ("leap_cli.commands.models.launch",)),
    "MCP server": (("mcp",), ("leap_cli.commands.models.mcp", "leap_cli.commands.models.mcp_search")),
    "talk": (("talk",), ("leap_core.conversation.talk", "leap_cli.talk", "leap_cli.commands.ask.talk")),
    "improve": (("improve", "train"), IMPROVE),
    "evaluation": (("eval", "improve", "train"), EVALUATION + IMPROVE),
    "conversion and quantization": (
        ("models convert", "models quantize", "models merge", "improve", "train"),
        CONVERSION + IMPROVE,
    ),
    "decide": (("decide",), DECIDE),
    "Ray": ((), RAY),
    "review": ((), REVIEW),
    "web UI": (("jobs page",), WEB_UI),
    "search and RAG": (("index", "search", "ask"), SEARCH),
}
"""The commands and the modules and packages of each feature; those of what builds on it are among them."""
PROGRAM = [sys.executable, "-m", "leap_cli"]
IMPORT_ALL = """
import importlib, pathlib
for package in ("leap_core", "leap_cli", "jobs"):
    for path in sorted(pathlib.Path(package).rglob("*.py")):
        if not path.name.startswith("__main__"):
            module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
            assert importlib.import_module(module).__file__ == str(path.absolute()), module
"""


def test_every_command_of_the_table_of_features_belongs_to_one():
    of_features = {command for commands, _ in FEATURES.values() for command in commands}
    assert {command for command in of_features if " " not in command} == {*COMMANDS_OF_FEATURES}


@pytest.mark.slow
def test_nothing_else_imports_a_feature():
    for feature, (_, modules) in FEATURES.items():
        inside = re.compile(rf"({'|'.join(map(re.escape, modules))})(\.|$)").match
        assert [str(each) for each in imports() if inside(each.imported) and not inside(each.importer)] == [], feature


@pytest.mark.long
@pytest.mark.parametrize("feature", FEATURES)
def test_leap_works_without_a_feature(feature, tmp_path, leap_home):
    """In a copy without its files: help, the reference, every module imported, and an answer."""
    commands, modules = FEATURES[feature]
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for module in modules:
        place = tmp_path.joinpath(*module.split("."))
        shutil.rmtree(place, ignore_errors=True)
        place.with_suffix(".py").unlink(missing_ok=True)

    def run(*arguments: str, program: Sequence[str] = PROGRAM) -> str:
        variables = os.environ | {"PYTHONPATH": str(tmp_path), "LEAP_HOME": str(leap_home)}
        done = subprocess.run(
            [*program, *arguments], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = run("--help")
    listed = {*re.findall(r"^(?:[A-Z]\w*)? +([a-z]+) ", shown, re.MULTILINE)}
    assert "generate" in listed and listed.isdisjoint(commands)
    reference = run("help", "reference")
    assert "[leap generate]" in reference
    assert [command for command in commands if f"[leap {command}]" in reference] == []
    run("-c", IMPORT_ALL, program=[sys.executable])
    assert "Paris" in run("-m", "builtin", "What is the capital of France?")

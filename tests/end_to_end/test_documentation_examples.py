"""The examples of the documentation run, and do what stands beside them.

Shell examples are fenced as ``sh``, Python as ``python``; what cannot run here (it waits for Ctrl-C, or downloads) is
``console`` or in ELSEWHERE. A Python block that begins with a file's name in a comment is that file.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from .conftest import ROOT, Program

WITH_TESTS_OF_THEIR_OWN = ("reference.md", "pipelines.md", "quickstart.md", "tasks.md")
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in WITH_TESTS_OF_THEIR_OWN),
]

ELSEWHERE = {
    "from openai import OpenAI": "talks to leap serve; test_host_serve.py does the same",
    "LeapModelDownloader()": "downloads; tests/models brings a hub along",
}
FILE = re.compile(r"# (\w+\.py)\n")


def blocks(language: str) -> list[tuple[str, str]]:
    """Each page's name, and the text of a fenced block."""
    return [
        (page.name, block)
        for page in PAGES
        for block in re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    ]


def programs() -> list[tuple[str, str]]:
    return [
        (page, code)
        for page, code in blocks("python")
        if not FILE.match(code) and not any(mark in code for mark in ELSEWHERE)
    ]


def shell_lines() -> list[tuple[str, str]]:
    """The shell examples; those that install are README's own, which CI follows."""
    return [(page, block) for page, block in blocks("sh") if "pip install" not in block]


def named(examples: list[tuple[str, str]]) -> list[object]:
    """As parameters of a test: ``pipes.md-2`` is the third of its page."""
    pages = [page for page, _ in examples]
    return [
        pytest.param(*example, id=f"{example[0]}-{pages[:number].count(example[0])}")
        for number, example in enumerate(examples)
    ]


@pytest.fixture
def run(type_in: Program, tmp_path: Path) -> Program:
    """Run a command where the files are that the examples speak of."""
    directory = tmp_path / "work"
    (directory / "report.txt").write_text("Say hello.\n")
    (directory / "papers.jsonl").write_text(json.dumps({"id": 1, "abstract": "Say hello."}) + "\n")
    (directory / "in.jsonl").write_text(json.dumps({"prompt": "Say hello."}) + "\n")
    for _page, block in blocks("python"):
        if name := FILE.match(block):
            (directory / name[1]).write_text(block)
    return type_in


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("page", "code"), named(programs()))
def test_python_examples(page, code, run):
    done = run(sys.executable, "-W", "error::DeprecationWarning", "-c", code)
    assert (done.returncode, done.stderr) == (0, ""), page
    if "capital of France" in code and "print" in code:
        assert "Paris" in done.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("page", "lines"), named(shell_lines()))
def test_shell_examples(page, lines, run):
    if "jq" in lines and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    done = run("bash", "-c", f"set -eo pipefail\n{lines}")
    assert done.returncode == 0, (page, done.stderr)
    assert not [said for said in done.stderr.splitlines() if not said.startswith("leap: ") or ": error: " in said]
    assert done.stdout.strip()


def test_examples_are_found():
    assert len(programs()) >= 11 and len(shell_lines()) >= 11

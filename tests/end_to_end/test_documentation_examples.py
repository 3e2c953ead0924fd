"""The examples of the documentation run, and do what stands beside them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = ("README.md", "docs/command-line.md", "docs/python-api.md")


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text("utf-8")
        for block in re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            found.append((page, block))
    return found


def shell_lines() -> list[tuple[str, str]]:
    """Each line of the shell examples; those that install are README's own, which CI follows."""
    return [
        (page, line)
        for page, block in blocks("sh")
        if "pip install" not in block
        for line in block.splitlines()
        if line.strip()
    ]


def label(value: str) -> str:
    return value.strip().splitlines()[-1][:50]


@pytest.mark.parametrize(("page", "code"), blocks("python"), ids=label)
def test_python_examples(page, code, variables, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=tmp_path,
        env=variables,
    )
    assert (done.returncode, done.stderr) == (0, ""), page
    if "capital of France" in code and "print" in code:
        assert "Paris" in done.stdout


@pytest.mark.parametrize(("page", "line"), shell_lines(), ids=label)
def test_shell_examples(page, line, variables, tmp_path):
    if "jq" in line and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    (tmp_path / "report.txt").write_text("Say hello.\n")
    program = tmp_path / "bin" / "leap"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m leap_cli "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", f"set -eo pipefail; {line}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=tmp_path,
        env={**variables, "LEAP_MODEL": "builtin", "PATH": f"{program.parent}{os.pathsep}{variables['PATH']}"},
    )
    assert done.returncode == 0, (page, done.stderr)
    assert not [said for said in done.stderr.splitlines() if not said.startswith("leap: ") or ": error: " in said]
    assert done.stdout.strip() or line == "leap chat"


def test_examples_are_found():
    assert len(blocks("python")) >= 7 and len(shell_lines()) >= 8

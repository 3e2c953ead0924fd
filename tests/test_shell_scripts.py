"""ShellCheck passes over the shell that leap ships and shows: scripts, bash's completion, the examples in the docs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = [".ci/run", "completions/leap.bash", "scripts/test_over_builds.sh", "scripts/test_under_load.sh"]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = {
    f"{page.name}-{number}": block
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```sh\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL))
}


def shellcheck(*arguments: str, script: str = "") -> str:
    """What ShellCheck says; it comes with the test extra, and stands beside this Python or on PATH."""
    places = os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)))
    program = shutil.which("shellcheck", path=places)
    assert program is not None, "pip install -e '.[test]' brings shellcheck"
    done = subprocess.run([program, *arguments], input=script, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def test_shellcheck_passes_on_scripts():
    assert shellcheck("--shell=bash", *[str(ROOT / script) for script in SCRIPTS]) == ""


@pytest.mark.slow
def test_shellcheck_passes_on_examples_in_the_documentation(tmp_path):
    """One process reads them all; its output has the file of each fault."""
    for name, example in EXAMPLES.items():
        (tmp_path / name).write_text(example)
    assert shellcheck("--shell=bash", *[str(tmp_path / name) for name in EXAMPLES]) == ""


def test_shellcheck_finds_errors():
    assert "SC2086" in shellcheck("--shell=bash", "-", script='file="a b"\nrm $file\n')
    assert len(EXAMPLES) >= 15

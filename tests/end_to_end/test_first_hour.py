"""docs/quickstart.md as one script, run from top to bottom in one home: each block prints what stands below it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from leap_core.models.builtin import model_path
from leap_core.testing import FakeHub

from .conftest import ROOT

PAGE = ROOT / "docs" / "quickstart.md"
STEPS = re.findall(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
BETWEEN = "----- the next step"


def pattern(recorded: str) -> str:
    """What matches a recording, in which ``…`` stands for anything on its line."""
    return re.escape(recorded).replace("…", "[^\n]*")


@pytest.mark.timeout(400)
@pytest.mark.skipif(shutil.which("bash") is None, reason="the page is written for a shell")
def test_the_first_hour(variables, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "work").mkdir()
    program = tmp_path / "bin" / "leap"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m leap_cli "$@"\n')
    program.chmod(0o755)
    variables |= {"HOME": str(tmp_path), "SHELL": "/bin/bash", "LC_ALL": "C.UTF-8"}
    variables["PATH"] = f"{program.parent}{os.pathsep}{variables['PATH']}"
    script = f"\necho '{BETWEEN}'\n".join(["set -eo pipefail\nexec 2>&1", *(step for step, _ in STEPS)])

    def run(lines: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", lines],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=tmp_path / "work",
            env=variables,
        )

    with FakeHub() as hub:
        for name, quantization in (("LFM2.5-350M", "Q4_K_M"), ("LFM2.5-230M", "Q8_0")):
            hub.add_file(f"LiquidAI/{name}-GGUF", f"{name}-{quantization}.gguf", model_path())
        variables |= hub.environment
        try:
            done = run(script)
        finally:
            run("leap jobs worker --end; leap unload --all")
    _, *printed = done.stdout.split(f"{BETWEEN}\n")
    assert done.returncode == 0 and len(printed) == len(STEPS) >= 8, done.stdout
    for (step, recorded), output in zip(STEPS, printed, strict=True):
        assert recorded, f"nothing is recorded below {step}"
        assert re.fullmatch(pattern(recorded), output), f"{step}\nprints\n{output}"
    assert (tmp_path / ".bashrc").read_text().count("completion of leap") == 1

"""The examples of every command, as `--help` shows them: run in order, in one home, each of them works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from leap_core.models.builtin import model_path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from leap_cli.help.examples import EXAMPLES, OUTPUTS  # noqa: E402

from .conftest import install  # noqa: E402

ELSEWHERE = {
    "transcribe": "needs a model that hears; test_media.py makes one",
    "jobs page": "runs until Ctrl-C; test_page.py starts it",
    "serve": "runs until Ctrl-C; test_host.py starts and ends it",
    "say": "needs a model that speaks; test_speech.py brings one along",
    "models convert": "needs a checkpoint; test_convert.py makes one of each family",
    "models merge": "needs an adapter; test_adapters.py makes one",
    "download": "needs a hub; test_download.py brings one along",
    "models search": "needs a hub; test_hub_search.py brings one along",
    "engine add": "needs a build of llama.cpp; test_engines.py brings one along",
    "engine install": "needs a server of releases; test_engines.py brings one along",
    "engine remove": "needs an engine; test_engines.py adds one",
}
REAL_MODEL = "-m LFM2.5-"
"""What no test has; the first example of each command runs on the built-in model."""
SAYS = {
    "models info": '"name": "Mine-Q8_0"',
    "models verify": "Mine-Q8_0",
    "models list": "Mine-Q8_0",
    "models remove": "Mine-Q8_0",
    "ps": '"model":"builtin"',
    "tools check": "greet: ok",
    "jobs status": "succeeded",
    "config get": "0.2",
    "doctor": "generation",
}


@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("bash") is None, reason="the examples are written for a shell")
def test_all_examples_of_help_run_in_order(variables, warm_leap, tmp_path):
    program = install(warm_leap, tmp_path)
    shutil.copy(model_path(), tmp_path / "model.gguf")
    question = {"type": "predicate", "name": "polite", "instructions": "Is it polite?"}
    (tmp_path / "questions.json").write_text(json.dumps([question]))
    (tmp_path / "letter.txt").write_text("Could you please send me the invoice?\n")
    (tmp_path / "tools.py").write_text("def shout(text: str) -> str:\n    return text.upper()\n")
    (tmp_path / "person.json").write_text('{"type": "object", "properties": {"age": {"type": "integer"}}}')
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"prompt": "Say hello."}) + "\n")
    variables |= {
        "LEAP_MODEL": "builtin",
        "HF_HUB_OFFLINE": "1",
        "LEAP_MODELS_BENCH_REPEAT": "1",
        "PATH": f"{program.parent}{os.pathsep}{variables['PATH']}",
    }

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", f"set -eo pipefail; {line}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
            cwd=tmp_path,
            env=variables,
        )

    try:
        for path, lines in EXAMPLES.items():
            for number, line in enumerate(lines):
                if path in ELSEWHERE or REAL_MODEL in line:
                    continue
                done = run(line)
                assert done.returncode == 0, (line, done.stderr)
                assert number or SAYS.get(path, "") in done.stdout, (line, done.stdout, done.stderr)
                assert number or OUTPUTS.get(path, done.stdout.strip()) == done.stdout.strip(), (line, done.stdout)
    finally:
        run("leap unload --all; leap jobs worker --shutdown")
    assert (tmp_path / "answers.jsonl").read_text().count("\n") == 1
    assert (tmp_path / "_leap").read_text().startswith("#compdef leap")

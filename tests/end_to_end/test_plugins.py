"""The example package of docs/plugins.md, installed by pip, adds a command, a model and a tool; a broken one harms
nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.jobs.waiting import until
from tests.support.pages import blocks_of

from .conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.cold]
PARIS = "The capital of France is Paris."
QUESTION = "What is the capital of France?"
BROKEN = """
[leap.commands]
broken = leap_broken:command
generate = leap_shout:shout
[leap.openers]
broken = leap_broken:open_model
[leap.tools]
broken = leap_broken:tool
calculate = leap_shout:count_letters
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A directory with the package as the page shows it."""
    pytest.importorskip("setuptools", minversion="70.1")  # older ones build no wheels by themselves
    source, target = tmp_path_factory.mktemp("leap-shout"), tmp_path_factory.mktemp("site")
    for block in blocks_of(ROOT / "docs" / "plugins.md"):
        name, _, code = block.code.partition("\n")
        if name in ("# pyproject.toml", "# leap_shout.py"):
            (source / name[2:]).write_text(code, "utf-8")
    assert sum(len(path.read_text().splitlines()) for path in source.iterdir()) <= 95
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(target), str(source)], check=True, timeout=100, capture_output=True)
    return target


@pytest.fixture
def variables(variables, site) -> dict[str, str]:
    return variables | {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}


@pytest.fixture
def broken(variables, tmp_path) -> None:
    """Another package whose module fails at import, and which offers names of leap."""
    metadata = tmp_path / "broken" / "leap_broken-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: leap-broken\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(BROKEN)
    (metadata.parent / "leap_broken.py").write_text("raise SystemExit('out of order\\nfor today')\n")
    variables["PYTHONPATH"] += f"{os.pathsep}{metadata.parent}"


def output(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return done.stdout


def test_a_plugin_adds_a_command(program):
    assert output(program("shout", "hello")) == "HELLO\n"
    assert "Print TEXT in capitals." in output(program("shout", "--help"))
    assert "Plugins  shout       Answer in capitals.\n" in output(program("--help"))


def test_a_plugin_adds_a_tool(program):
    assert output(program("tools", "call", "count_letters", '{"text": "a-b"}', "--yes")) == "2\n"
    assert "count_letters  plugin  ask " in output(program("tools", "list"))


def test_a_plugin_adds_a_function_for_jobs_and_a_topic_of_help(program):
    job = output(program("shout", "--background", "hello")).strip()
    program("jobs", "wait", job, "--timeout", "200s")
    assert json.loads(output(program("jobs", "output", job))) == {"text": "HELLO"}
    assert output(program("help", "shouting")) == "# Shouting\n\n`leap shout TEXT` prints TEXT in capitals.\n"
    assert "shouting" in output(program("help"))
    program("jobs", "worker", "--shutdown")


def test_a_plugin_opens_a_model_here_and_in_a_job(program):
    model = ("-m", "shout://builtin", QUESTION)
    assert output(program("generate", *model)).strip() == PARIS
    job = output(program("generate", "--background", *model)).strip()
    assert output(program("jobs", "wait", job, "--timeout", "200s")) is not None
    assert output(program("jobs", "output", job)).strip() == PARIS
    program("jobs", "worker", "--shutdown")


def test_a_plugin_opens_a_model_of_a_batch(program, tmp_path):
    (tmp_path / "in.jsonl").write_text(json.dumps({"prompt": QUESTION}) + "\n")
    assert PARIS in output(program("batch", "in.jsonl", "-m", "shout://builtin", "--format", "plain"))


def test_a_plugin_opens_a_model_that_the_host_holds(program):
    try:
        output(program("load", "shout://builtin"))
        assert output(program("generate", "--host", "-m", "shout://builtin", QUESTION)).strip() == PARIS
    finally:
        program("unload", "--all")


def answer_of(request: urllib.request.Request) -> str | None:
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        assert error.code == 503  # still loading
        return None


def test_a_plugin_opens_a_model_that_is_served(start):
    server = start("serve", "-m", "shout://builtin", "--port", "0", "--threads", "1", stdout=subprocess.PIPE)
    url = server.stdout.readline().decode().strip()
    body = {"model": "shout://builtin", "messages": [{"role": "user", "content": QUESTION}]}
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    assert until(lambda: answer_of(request)) == PARIS
    shout = urllib.request.Request(f"{url}/shout", b'{"text": "hello"}', {"Content-Type": "application/json"})
    with urllib.request.urlopen(shout, timeout=60) as answer:
        assert json.load(answer) == {"text": "HELLO"}
    server.terminate()
    server.wait(100)


@pytest.mark.usefixtures("broken")
def test_a_broken_plugin_is_one_line_and_everything_else_works(program):
    listed = program("tools", "list")
    assert "count_letters" in output(listed)
    assert sorted(line.partition(" (")[0] for line in listed.stderr.splitlines()) == [
        "leap: warning: the plugin broken",
        "leap: warning: the plugin calculate",
    ]
    assert "SystemExit: out of order for today" in listed.stderr
    assert output(program("tools", "call", "calculate", '{"expression": "1+1"}')).strip() == "2"
    done = program("broken")
    assert (done.returncode, done.stdout, done.stderr.count("leap: error:")) == (1, "", 1)
    assert "cannot be loaded: SystemExit" in done.stderr
    assert "Traceback" not in done.stderr
    done = program("generate", "-m", "broken://x", "hi")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert "cannot be loaded: SystemExit" in done.stderr
    helped = program("--help")
    assert "shout" in output(helped)
    assert "generate (leap.commands, package leap-broken) is left out" in helped.stderr
    assert PARIS in output(program("generate", "-m", "builtin", QUESTION))

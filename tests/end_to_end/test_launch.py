"""Coding agents started by leap: programs of these tests' own in the place of the real ones (scripts/agents.py)."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.random_models import Shape, write_random_model

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="programs are POSIX scripts")

ASKING = """#!{python}
import json, os, sys, urllib.request
from pathlib import Path
if "--sleep" in sys.argv:
    import time
    try:
        print("asleep", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        sys.exit(5)
settings = json.loads((Path(os.environ["PI_CODING_AGENT_DIR"]) / "models.json").read_text())
provider = settings["providers"]["leap"]
model = provider["models"][0]
body = {{"model": model["id"], "messages": [{{"role": "user", "content": "Hi"}}], "max_tokens": 3}}
request = urllib.request.Request(
    provider["baseUrl"] + "/chat/completions",
    json.dumps(body).encode(),
    {{"Authorization": "Bearer " + provider["apiKey"], "Content-Type": "application/json"}},
)
answer = json.load(urllib.request.urlopen(request))
if "--again" in sys.argv:
    import signal, time
    state = Path(os.environ["LEAP_HOME"]) / "run" / "host.json"
    os.kill(json.loads(state.read_text())["pid"], signal.SIGKILL)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            answer = json.load(urllib.request.urlopen(request))
            break
        except OSError:
            time.sleep(0.2)
    else:
        sys.exit("the host did not come back")
said = {{"argv": sys.argv[1:], "context": model["contextWindow"]}}
print(json.dumps({{**said, "tokens": answer["usage"]["completion_tokens"]}}))
sys.exit(7)
"""
LONG = Shape(2, 64, 2, 1, 128, frozenset({1}), 1024, 32_768)


@pytest.fixture
def agent(tmp_path, variables):
    """``pi`` on the path, a model with room for it, and a home with a file of the user's."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "pi").write_text(ASKING.format(python=sys.executable))
    (tools / "pi").chmod(0o755)
    variables["PATH"] = f"{tools}:{variables['PATH']}"
    home = tmp_path / "user"
    home.mkdir()
    (home / ".profile").write_text("# mine\n")
    variables["HOME"] = str(home)
    return write_random_model(tmp_path / "long.gguf", LONG)


def digest(directory: Path) -> str:
    return hashlib.sha256(
        b"".join(
            str(path).encode() + (path.read_bytes() if path.is_file() else b"") for path in sorted(directory.rglob("*"))
        )
    ).hexdigest()


@pytest.fixture
def ended(program):
    yield
    program("unload", "--all")


def test_an_agent_runs_with_a_configuration_of_its_own(program, agent, variables, ended):
    before = digest(Path(variables["HOME"]))
    done = program("launch", "pi", "-m", str(agent), "--", "-p", "say hi")
    assert done.returncode == 7, done.stderr
    said = json.loads(done.stdout)
    assert said == {"argv": ["-p", "say hi"], "context": 32_768, "tokens": 3}
    assert done.stderr == "leap: long is loaded with a context of 32768 tokens; pi needs 5496\n"
    assert digest(Path(variables["HOME"])) == before
    files = list((Path(variables["LEAP_HOME"])).rglob("agents/pi/*.json"))
    assert {file.name for file in files} == {"models.json", "settings.json"}
    assert all(file.stat().st_mode & 0o077 == 0 for file in files), "they hold the key"


def test_an_agent_continues_after_the_host_was_killed(program, agent, variables, ended):
    done = program("launch", "pi", "-m", str(agent), "--", "--again")
    assert done.returncode == 7, done.stderr
    assert json.loads(done.stdout)["tokens"] == 3
    (model,) = json.loads(program("ps", "--format", "json").stdout)
    assert (model["context_size"], model["keep_alive"]) == (32_768, 600)
    settings = next(Path(variables["LEAP_HOME"]).rglob("agents/pi/models.json")).read_text()
    program("unload", "--all")
    program("launch", "pi", "-m", str(agent))
    assert next(Path(variables["LEAP_HOME"]).rglob("agents/pi/models.json")).read_text() == settings


def test_the_model_is_unloaded_after_the_configured_keep_alive(program, agent, variables, ended):
    Path(variables["LEAP_HOME"]).mkdir(exist_ok=True)
    program("launch", "pi", "-m", str(agent), "--print-env")
    (model,) = json.loads(program("ps", "--format", "json").stdout)
    assert model["keep_alive"] == 0
    program("launch", "pi", "-m", str(agent))
    (model,) = json.loads(program("ps", "--format", "json").stdout)
    assert model["keep_alive"] == 600
    program("config", "set", "keep_alive", "3m")
    program("launch", "pi", "-m", str(agent))
    (model,) = json.loads(program("ps", "--format", "json").stdout)
    assert model["keep_alive"] == 180


def test_private_files_are_private_under_any_umask(agent, variables, program, ended):
    command = ["sh", "-c", 'umask 0; exec "$@"', "sh", sys.executable, "-m", "leap_cli"]
    for arguments in (["config", "set", "keep_alive", "3m"], ["launch", "pi", "-m", str(agent)], ["jobs", "list"]):
        subprocess.run([*command, *arguments], env=variables, check=False, capture_output=True, timeout=100)
    home = Path(variables["LEAP_HOME"])
    modes = {path.relative_to(home): path.stat().st_mode & 0o777 for path in [home, *home.rglob("*")]}
    assert not [path for path, mode in modes.items() if mode & 0o002]
    private = ("agents", "agents/pi", "agents/pi/models.json", "logs", "logs/host.log", "run", "run/host.address")
    assert not [path for path in private if modes[Path(path)] & 0o077]


def test_ctrl_c_goes_to_the_agent(program, start, agent, ended):
    running = start("launch", "pi", "-m", str(agent), "--", "--sleep", start_new_session=True)
    assert running.stdout.readline() == b"asleep\n"
    os.killpg(running.pid, signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 5


def test_print_env_prints_variables_for_a_shell(program, agent, variables, ended):
    for name, variable in (
        ("claude", "ANTHROPIC_BASE_URL"),
        ("codex", "CODEX_HOME"),
        ("opencode", "OPENCODE_CONFIG_CONTENT"),
    ):
        done = program("launch", name, "-m", str(agent), "--print-env")
        assert done.returncode == 0 and f"export {variable}=" in done.stdout, done.stderr
        assert done.stderr.splitlines()[-1] == "leap: long stays loaded until `leap unload long`"
    catalogue = next(Path(variables["LEAP_HOME"]).rglob("agents/codex/models.json"))
    (model,) = json.loads(catalogue.read_text())["models"]
    assert (model["slug"], model["context_window"]) == ("long", 32_768)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("launch", "pi", "-m", "builtin"), 2, "pi needs 5496 tokens and builtin holds 2048"),
        (
            ("launch", "claude", "-m", "{model}"),
            10,
            "claude is not installed (hint: `npm install -g @anthropic-ai/claude-code`",
        ),
        (("launch", "nobody"), 2, "'nobody' is not one of"),
        (("launch", "--dry-run"), 2, "name an agent: pi, aider"),
        (("launch", "pi", "-m", "nothing"), 2, "nothing"),
    ],
)
def test_unstartable_agents_are_errors(program, agent, arguments, code, said):
    done = program(*(argument.replace("{model}", str(agent)) for argument in arguments))
    assert (done.returncode, done.stdout) == (code, "") and said in done.stderr, done.stderr
    assert done.stderr.count("\n") <= 2


def test_known_agents_are_listed(program, agent):
    rows = [json.loads(line) for line in program("launch", "--format", "jsonl").stdout.splitlines()]
    assert [row["agent"] for row in rows if row["installed"]] == ["pi"] and len(rows) == 6
    assert not any(row["fits"] for row in rows), "the built-in model holds 2,048 tokens"
    plan = json.loads(program("launch", "claude", "-m", str(agent), "--dry-run", "--format", "json").stdout)
    assert (plan["needs"], plan["context_size"]) == (24196, 32_768)

"""``leap setup``: asked at a terminal, answered by options in a pipe, and all or nothing."""

from __future__ import annotations

import io
import json
import signal
import threading
import time
from pathlib import Path

import pytest

from leap_cli.main import main
from leap_cli.setup.machine import SPARE_DISK, Machine, ModelOffer, obstacle_to, offers, suggestion
from leap_core.models.builtin import model_path
from leap_core.system.memory import machine_memory
from tests.support.hub import FakeHub

GB = 10**9
NAME = "LFM2.5-350M"


@pytest.fixture
def home(leap, tmp_path) -> Path:
    """The user's own directory, with a shell."""
    directory = tmp_path / "user"
    directory.mkdir()
    leap.variables |= {"HOME": str(directory), "SHELL": "/bin/bash"}
    return directory


@pytest.fixture
def hub(leap):
    with FakeHub() as hub:
        hub.add_file(f"LiquidAI/{NAME}-GGUF", f"{NAME}-Q4_K_M.gguf", model_path())
        leap.variables |= hub.environment
        yield hub


def settings(leap) -> str:
    file = leap.home / "config.toml"
    return file.read_text() if file.exists() else ""


def test_a_pipe_is_told_which_options_to_give(leap, home):
    done = leap("setup", "--completion", "bash")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "leap: error: leap setup asks at a terminal; in a script give --model, --keep-alive, or"
    )
    assert done.stderr.count("\n") == 1 and not leap.home.exists() and not any(home.iterdir())


def test_options_answer_the_questions_and_a_second_run_changes_nothing(leap, home):
    arguments = ("setup", "--model", "builtin", "--completion", "zsh", "--keep-alive", "none")
    done = leap(*arguments)
    assert (done.code, done.stdout) == (0, "model       builtin\ncompletion  zsh\nkeep_alive  -\n")
    assert 'leap: next: leap "' in done.stderr
    assert settings(leap) == 'default_model = "builtin"\n'
    line = (home / ".zshrc").read_text()
    assert "completion of leap" in line
    again = leap(*arguments, "--format", "json")
    assert json.loads(again.stdout) == {"model": "builtin", "completion": ["zsh"], "keep_alive": None}
    assert (home / ".zshrc").read_text() == line and settings(leap) == 'default_model = "builtin"\n'
    assert "set up already: model builtin; completion in zsh" in leap("setup", "--dry-run").stderr


def test_none_keeps_the_model_and_unsets_keep_alive(leap, home):
    leap.home.mkdir()
    (leap.home / "config.toml").write_text('# mine\ndefault_model = "builtin"\nkeep_alive = "5m"\n')
    done = leap("setup", "--model", "none", "--completion", "none", "--keep-alive", "none")
    assert done.code == 0 and settings(leap) == '# mine\ndefault_model = "builtin"\n'
    assert not any(home.iterdir())


@pytest.mark.slow
def test_a_terminal_is_asked_until_the_answer_is_valid(leap, home, hub):
    typed = "99\n2\nfizz\nfish\n30\nno\n"
    done = leap("setup", stdin=typed, terminal=True, stdin_terminal=True)
    assert done.code == 0
    assert "there are the numbers 1 to" in done.stderr and "30 has no unit" in done.stderr.replace("\n      ", " ")
    assert f'default_model = "{NAME}-Q4_K_M"' in settings(leap) and "keep_alive" not in settings(leap)
    assert (home / ".config" / "fish" / "completions" / "leap.fish").exists()
    assert (leap.home / "models" / f"{NAME}-Q4_K_M" / f"{NAME}-Q4_K_M.gguf").exists()
    before = hub.bytes_served(f"{NAME}-Q4_K_M.gguf")
    again = leap("setup", stdin="\n\n\n", terminal=True, stdin_terminal=True)
    assert again.code == 0 and f"model {NAME}-Q4_K_M" in again.stderr and "here already" in again.stderr
    assert hub.bytes_served(f"{NAME}-Q4_K_M.gguf") == before, "nothing is fetched again"


def test_only_missing_options_are_asked(leap, home):
    done = leap("setup", "--model", "none", "--keep-alive", "no", terminal=True, stdin_terminal=True)
    assert done.code == 2 and "--keep-alive" in done.stderr
    done = leap("setup", "--model", "none", "--keep-alive", "none", stdin="no\n", terminal=True, stdin_terminal=True)
    assert done.code == 0 and "which model" not in done.stderr and "which shell" in done.stderr


def test_quitting_at_a_question_changes_nothing(leap, home):
    done = leap("setup", stdin="2\nbash\n", terminal=True, stdin_terminal=True)
    assert done.code == 130 and "nothing was changed" in done.stderr
    assert not leap.home.exists() and not any(home.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(signal.getsignal(signal.SIGINT) is not signal.default_int_handler, reason="SIGINT is ignored here")
def test_ctrl_c_in_the_download_sets_nothing_and_the_download_can_resume(leap, home, hub):
    hub.fault("stall", after=1_000_000)

    def press() -> None:
        deadline = time.monotonic() + 60
        while not hub.bytes_served(f"{NAME}-Q4_K_M.gguf") and time.monotonic() < deadline:
            time.sleep(0.02)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    arguments = ("setup", "--model", NAME, "--completion", "bash", "--keep-alive", "none")
    done = leap(*arguments)
    assert done.code == 130 and "resumes the download" in done.stderr
    assert settings(leap) == "" and not any(home.iterdir())
    hub.faults.clear()
    assert leap(*arguments).code == 0
    assert f'default_model = "{NAME}-Q4_K_M"' in settings(leap) and (home / ".bashrc").exists()


def test_a_failed_download_sets_no_model_and_keeps_the_other_answers(leap, home, hub):
    done = leap("setup", "--model", "no-such-model", "--completion", "none", "--keep-alive", "none")
    assert done.code == 2 and not any(home.iterdir())
    done = leap("setup", "--model", "LFM2.5-1.2B-Instruct", "--completion", "bash", "--keep-alive", "none")
    assert done.code == 4 and "the other answers are kept" in done.stderr
    assert settings(leap) == "" and (home / ".bashrc").exists()


@pytest.mark.slow
def test_an_installed_model_is_offered_first_and_suggested(leap, home, hub, tmp_path):
    (tmp_path / "Mine-Q8_0.gguf").write_bytes(model_path().read_bytes())
    assert leap("models", "import", "Mine-Q8_0.gguf").code == 0
    plan = json.loads(leap("setup", "--dry-run", "--format", "json").stdout)
    assert plan["suggested"]["model"] == plan["models"][0]["model"] == "Mine-Q8_0" and plan["models"][0]["installed"]
    assert leap("setup", "--yes", "--completion", "none", "--keep-alive", "none").code == 0
    assert settings(leap) == 'default_model = "Mine-Q8_0"\n'


def test_the_plan_as_json(leap, home):
    plan = json.loads(leap("setup", "--dry-run", "--format", "json").stdout)
    assert set(plan) == {"model", "machine", "set", "suggested", "models"}
    assert plan["suggested"]["completion"] == "bash"
    assert [model["model"] for model in plan["models"]][:2] == ["LFM2.5-230M", NAME]
    assert leap("setup", "--dry-run", "--format", "quiet").stdout.strip() == plan["suggested"]["model"]


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        (Machine(16 * GB, 100 * GB, 4), "LFM2.5-1.2B-Instruct"),
        (Machine(None, None, 1), "LFM2.5-1.2B-Instruct"),
        (Machine(1 * GB, 100 * GB, 4), NAME),
        (Machine(16 * GB, SPARE_DISK + 160_000_000, 4), "LFM2.5-230M"),
        (Machine(200_000_000, 100 * GB, 1), None),
    ],
)
def test_suggested_models_fit_memory_and_disk(leap, machine, name):
    env = leap.environment("", terminal=False, stdin_terminal=False)
    best = suggestion(offers(env, machine))
    assert (best and best.name) == name


def test_obstacles_are_reported():
    assert obstacle_to(5 * GB, 6 * GB, Machine(4 * GB, None, 1), installed=False) == "takes 6.0 GB of memory"
    assert obstacle_to(5 * GB, 6 * GB, Machine(None, 4 * GB, 1), installed=False) == "takes 5.0 GB of disk"
    assert obstacle_to(5 * GB, 6 * GB, Machine(None, 4 * GB, 1), installed=True) is None
    record = ModelOffer("m", GB, 2 * GB, "", False, "takes 5.0 GB of disk").record()
    assert record["fits"] is False and record["memory"] == 2 * GB


def test_the_limit_of_a_container_counts(tmp_path):
    group = tmp_path / "sys" / "fs" / "cgroup" / "a" / "b"
    group.mkdir(parents=True)
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/a/b\n")
    (group / "memory.max").write_text("max\n")
    whole = machine_memory(tmp_path)
    (group.parent / "memory.max").write_text("1000000\n")
    assert machine_memory(tmp_path) == 1_000_000 and whole != 1_000_000


def test_setup_says_that_a_variable_wins(leap, home):
    leap.variables["LEAP_MODEL"] = "another"
    env = leap.environment("", terminal=False, stdin_terminal=False)
    assert main(("setup", "--model", "builtin", "--completion", "none", "--keep-alive", "none"), env) == 0
    assert isinstance(env.stderr, io.StringIO) and "$LEAP_MODEL names another" in env.stderr.getvalue()

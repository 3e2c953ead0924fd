"""Warm models: real processes, real signals, and whatever may happen to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from leap_core.errors import LeapUnavailableError
from leap_core.protocols.host.host_state import HostFiles, HostState
from leap_core.protocols.host.model_host import ModelHost
from leap_core.system.directories import Directories
from leap_core.system.processes import start_time

from ..jobs.waiting import until
from .conftest import LONG, QUESTION

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")

SOON = 60.0
LOAD = ("load", "builtin", "--threads", "1")
ANSWERED = "POST /v1/chat/completions 200"


def soon(is_so: Callable[[], object]) -> bool:
    deadline = time.monotonic() + SOON
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Host:
    """The host of a test's data directory, as its files tell."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables = variables
        self.files = HostFiles.of(Directories.from_environment(variables))

    @property
    def pid(self) -> int:
        state = self.files.read_state()
        assert state is not None
        return state.pid

    @property
    def log(self) -> str:
        return self.files.log.read_text()

    def slots_in_use(self) -> int:
        try:
            host = ModelHost.running(self.variables)
            return -1 if host is None else sum(model["slots_in_use"] for model in host.status()["models"])
        except LeapUnavailableError:  # it was just killed
            return -1

    def has_left_nothing(self) -> bool:
        """Neither a process nor a file that says anything."""
        directory = self.files.directory
        left = {path.name for path in directory.iterdir()} if directory.exists() else set()
        return not self.files.is_alive() and left <= {"host.alive", "host.starting"}


@pytest.fixture
def host(variables: dict[str, str]) -> Iterator[Host]:
    made = Host(variables)
    yield made
    ModelHost.end_by_force(variables)


def test_a_model_is_loaded_used_and_unloaded(program, host):
    loaded = program(*LOAD)
    assert (loaded.returncode, loaded.stdout) == (0, "builtin\n")
    assert loaded.stderr == "leap: builtin stays loaded for 10m after its last use\n"
    pid = host.pid
    assert os.getsid(pid) == pid != os.getsid(0), "a session of its own: closing a terminal does not end it"
    for _ in range(2):
        answer = program("generate", "-m", "builtin", QUESTION)
        assert (answer.returncode, answer.stderr) == (0, "") and "Paris" in answer.stdout
    until(lambda: host.log.count(ANSWERED) == 2)  # a line follows its answer
    shown = program("ps").stdout.splitlines()
    assert len(shown) == 2 and shown[1].startswith("builtin ") and " 0/8 " in shown[1]
    (record,) = json.loads(program("ps", "--format", "json").stdout)
    assert record["pid"] == pid and record["tokens_per_second"] > 0 and 590 < record["expires_in"] <= 600
    assert record["memory"] >= record["size"] > 1_000_000
    assert program("ps", "--format", "quiet").stdout == "builtin\n"
    unloaded = program("unload")
    assert (unloaded.returncode, unloaded.stdout, unloaded.stderr) == (0, "builtin\n", "")
    assert host.has_left_nothing() and start_time(pid) is None
    assert program("ps").stderr == "leap: no model is loaded; `leap load MODEL` loads one\n"


def test_a_chat_and_a_file_path_use_the_loaded_model(program, host, tmp_path):
    from leap_core.models.builtin import model_path

    link = tmp_path / "tiny.gguf"
    link.symlink_to(model_path())
    assert program("load", "tiny.gguf", "--threads", "1", "--keep-alive", "0").returncode == 0
    done = program("chat", "--host", "-m", "./tiny.gguf", stdin="My name is Ada.\nWhat is my name?\n")
    assert done.returncode == 0 and "Ada" in done.stdout.splitlines()[-1]
    assert program("generate", "--host", "-m", str(model_path()), QUESTION).returncode == 0
    until(lambda: host.log.count(ANSWERED) == 3)
    (record,) = json.loads(program("ps", "--format", "json").stdout)
    assert record["expires_in"] is None


def test_a_shared_system_prompt_is_computed_once(program, host):
    assert program(*LOAD).returncode == 0
    system = "You answer in one sentence. " * 8
    asked = ["generate", "-m", "builtin", "-s", system, "--format", "json"]
    one, other = (json.loads(program(*asked, question).stdout) for question in (QUESTION, "Say hello."))
    assert one["stats"]["cached_prompt_tokens"] == 0
    assert 2 * other["stats"]["cached_prompt_tokens"] > other["stats"]["prompt_tokens"]


def test_no_host_and_different_options_do_not_use_the_host(program, host):
    assert program(*LOAD).returncode == 0
    for flags in (["--no-host"], ["--context-size", "256"], ["--threads", "2"], ["--verbose"]):
        assert program("generate", "-m", "builtin", *flags, QUESTION).returncode == 0
    assert "answer " not in host.log
    refused = program("generate", "--host", "-m", "builtin", "--context-size", "256", QUESTION)
    assert (refused.returncode, refused.stdout) == (10, "")
    assert "holds builtin with a context of" in refused.stderr and refused.stderr.count("\n") == 1


def test_a_batch_waits_while_the_queue_is_full(program, host, tmp_path):
    lines = [json.dumps({"prompt": f"Say {n}", "max_tokens": 4}) for n in range(30)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    assert program(*LOAD, "--slots", "2", "--queue", "1").returncode == 0
    done = program("batch", "in.jsonl", "-o", "out.jsonl", "-m", "builtin")
    assert done.returncode == 0 and "30 answered, 0 failed" in done.stderr, done.stderr


def test_a_required_host_that_does_not_run_is_an_error(program, host):
    done = program("generate", "--host", "-m", "builtin", QUESTION)
    assert (done.returncode, done.stdout) == (10, "")
    assert done.stderr == "leap: error: no model host is running (hint: `leap load builtin` starts one)\n"
    assert program(*LOAD).returncode == 0
    done = program("generate", "--host", "-m", "other.gguf", QUESTION)
    assert done.returncode == 10 and "does not hold other.gguf" in done.stderr


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_failed_load_leaves_no_host(program, host, tmp_path, damage):
    if damage == "damaged":
        (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(range(256)) * 40)
    done = program("load", "bad.gguf")
    code = 2 if damage == "missing" else 3
    assert (done.returncode, done.stdout) == (code, "") and "bad.gguf" in done.stderr and done.stderr.count("\n") == 1
    assert host.has_left_nothing()


def test_concurrent_loads_start_one_host_and_load_once(start, host):
    starting = [start(*LOAD) for _ in range(4)]
    outputs = [process.communicate(timeout=SOON) for process in starting]
    assert [process.returncode for process in starting] == [0] * 4, outputs
    assert {out for out, _ in outputs} == {b"builtin\n"}
    assert (host.log.count("listens"), host.log.count("loaded builtin")) == (1, 1)


def test_loading_again_restarts_the_keep_alive(program, host):
    assert program(*LOAD, "--keep-alive", "5m").returncode == 0
    pid = host.pid
    again = program("load", "builtin", "--keep-alive", "1h")
    assert again.stderr == "leap: builtin stays loaded for 1h after its last use\n" and host.pid == pid
    other = program("load", "builtin", "--context-size", "256")
    assert other.returncode == 3 and "leap unload builtin first" in other.stderr


def test_jobs_and_batches_share_the_engine_of_the_host(program, host, tmp_path):
    assert program(*LOAD).returncode == 0
    (tmp_path / "in.jsonl").write_text('{"prompt": "What is the capital of France?"}\n' * 3)
    ids = [
        program("batch", "in.jsonl", "-m", "builtin", "-o", "out.jsonl", "--background").stdout.strip(),
        program("generate", "-m", "builtin", QUESTION, "--background").stdout.strip(),
    ]
    assert [program("jobs", "wait", id).returncode for id in ids] == [0, 0]
    assert soon(lambda: host.log.count(ANSWERED) == 4)
    own = program("generate", "-m", "builtin", QUESTION, "--background", "--no-host").stdout.strip()
    assert program("jobs", "wait", own).returncode == 0
    assert host.log.count(ANSWERED) == 4


def test_an_unused_host_ends_after_its_keep_alive(program, host, leap_home):
    leap_home.mkdir()
    (leap_home / "config.toml").write_text('keep_alive = "1s"\n')
    assert program(*LOAD).stderr.endswith("for 1s after its last use\n")
    pid = host.pid
    assert soon(host.has_left_nothing) and start_time(pid) is None
    assert "was not used for 1 s" in host.log


def test_two_models_share_a_host_which_ends_with_the_last(program, host, tmp_path):
    from tests.support.random_models import write_random_model

    write_random_model(tmp_path / "random.gguf")
    assert program(*LOAD).returncode == 0 and program("load", "random.gguf", "--threads", "1").returncode == 0
    assert program("ps", "--format", "quiet").stdout == "builtin\nrandom\n"
    assert program("unload").returncode == 2, "which of the two?"
    assert program("generate", "--host", "-m", "random.gguf", "--max-tokens", "3", "Hi.").returncode == 0
    assert program("unload", "random.gguf").stdout == "random\n"
    assert program("ps", "--format", "quiet").stdout == "builtin\n"
    missing = program("unload", "random")
    assert missing.returncode == 2 and "loaded: builtin" in missing.stderr
    assert program("unload", "--all").stdout == "builtin\n" and host.has_left_nothing()
    assert program("unload", "--all").returncode == 0
    assert program("unload", "builtin").returncode == 2


def in_the_middle(start, *flags: str) -> subprocess.Popen[bytes]:
    """A long answer of which some text has come."""
    process = start("generate", "--host", "-m", "builtin", *flags, LONG)
    assert process.stdout.read(10)
    return process


def test_kill_9_of_the_host_during_an_answer(program, start, host):
    assert program(*LOAD).returncode == 0
    asking = in_the_middle(start)
    os.kill(host.pid, signal.SIGKILL)
    _, errors = asking.communicate(timeout=SOON)
    message = "leap: error: the model host ended unexpectedly during the generation (hint: its log is "
    assert asking.returncode == 1 and errors.decode().startswith(message) and errors.count(b"\n") == 1
    assert host.has_left_nothing(), "the one who asked has tidied up"
    assert program("generate", "-m", "builtin", QUESTION).returncode == 0
    assert program(*LOAD).returncode == 0, "and a new one starts"


@pytest.mark.parametrize("again", [False, True])
def test_kill_9_of_the_host_during_a_batch(again, program, start, host, tmp_path):
    """They are asked again of another host, twice too."""
    assert program(*LOAD).returncode == 0
    line = json.dumps({"prompt": LONG, "max_tokens": 200}) + "\n"
    (tmp_path / "in.jsonl").write_text(line * 8)
    batch = start("batch", "in.jsonl", "-m", "builtin", "--host", "-o", "out.jsonl", "--concurrency", "4")
    for _ in range(1 + again):
        assert soon(lambda: host.slots_in_use() >= 2)
        os.kill(host.pid, signal.SIGKILL)
    _, errors = batch.communicate(timeout=SOON)
    assert batch.returncode == 0, errors.decode()
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(rows) == 8 and not any(row.get("error") for row in rows)


def test_kill_9_of_the_host_between_answers(program, host):
    assert program(*LOAD).returncode == 0
    os.kill(host.pid, signal.SIGKILL)
    answer = program("generate", "-m", "builtin", QUESTION)
    assert (answer.returncode, answer.stderr) == (0, "") and "Paris" in answer.stdout
    assert host.has_left_nothing()


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="connections are seen in /proc")
def test_a_host_that_dies_during_a_load(program, start, host):
    """The connection stands, the question is sent, and then the host is gone: as though none had run."""
    assert program(*LOAD).returncode == 0
    os.kill(host.pid, signal.SIGSTOP)
    asking = start("generate", "-m", "builtin", QUESTION)
    port = host.files.read_state().port
    assert soon(lambda: is_connected(asking.pid, port))
    os.kill(host.pid, signal.SIGKILL)
    answer, errors = asking.communicate(timeout=SOON)
    assert (asking.returncode, errors) == (0, b"") and b"Paris" in answer


def is_connected(pid: int, port: int) -> bool:
    """Whether a connection to a port of this machine stands, whose accepting side has not been looked at yet."""
    remote = f":{port:04X} 01"
    return any(remote in line for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines())


def test_sigterm_of_the_host_during_an_answer(program, start, host):
    assert program(*LOAD).returncode == 0
    asking = in_the_middle(start)
    os.kill(host.pid, signal.SIGTERM)
    _, errors = asking.communicate(timeout=SOON)
    assert asking.returncode == 1 and b"unloaded" in errors and errors.count(b"\n") == 1
    assert soon(host.has_left_nothing)


def test_unloading_ends_running_answers(program, start, host):
    assert program(*LOAD).returncode == 0
    asking = in_the_middle(start)
    assert program("unload").returncode == 0
    _, errors = asking.communicate(timeout=SOON)
    assert asking.returncode == 1 and errors.count(b"\n") == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_client_that_dies_during_an_answer_frees_its_slot(program, start, host, number):
    assert program(*LOAD).returncode == 0
    asking = in_the_middle(start)
    os.kill(asking.pid, number)
    asking.communicate(timeout=SOON)
    assert asking.returncode == (130 if number is signal.SIGINT else -number)
    assert soon(lambda: host.slots_in_use() == 0), "its slot is free again"
    assert program("generate", "--host", "-m", "builtin", QUESTION).returncode == 0


@pytest.mark.parametrize("whose", ["ours", "nobody's"])
def test_a_stale_state_with_the_pid_of_another_process_is_ignored(program, host, whose):
    directory = host.files.directory
    directory.mkdir(parents=True, mode=0o700)
    pid = os.getpid() if whose == "ours" else 2**22 - 1
    state = HostState(pid, start_time(os.getpid()), 9, "old")
    host.files.state.write_text(json.dumps(asdict(state)))
    host.files.token.write_text("old")
    host.files.alive.touch()
    assert program("ps").returncode == 0 and host.has_left_nothing()
    host.files.state.write_text(json.dumps(asdict(state)))
    assert program("unload", "--all").returncode == 0, "and this process still runs"
    host.files.state.write_text(json.dumps(asdict(state)))
    assert program(*LOAD).returncode == 0 and host.pid != pid


@pytest.mark.cold
def test_a_full_disk_prevents_a_host_and_no_answer(program, host):
    """Not one byte can be written to a file."""
    import resource

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    done = program(*LOAD, preexec_fn=fill)
    assert (done.returncode, done.stdout) == (10, "")
    assert done.stderr.startswith(f"leap: error: the model host cannot start: {host.files.token}: File too large")
    assert done.stderr.count("\n") == 1 and host.has_left_nothing()
    assert program(*LOAD).returncode == 0


def test_an_unusable_run_directory_prevents_a_host_and_no_answer(program, leap_home):
    leap_home.mkdir()
    (leap_home / "run").write_text("a file")
    done = program(*LOAD)
    assert done.returncode == 10 and done.stderr.startswith("leap: error: the model host cannot start: ")
    assert program("generate", "-m", "builtin", QUESTION).returncode == 0


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_text("{")])
def test_a_lost_or_damaged_state_file_is_rewritten(program, host, harm):
    assert program(*LOAD).returncode == 0
    pid = host.pid
    harm(host.files.state)
    assert soon(lambda: host.files.read_state() is not None) and host.pid == pid
    assert program("unload").stdout == "builtin\n" and host.has_left_nothing()


def test_a_host_whose_directory_was_removed_ends(program, host, tmp_path):
    assert program(*LOAD, "--keep-alive", "0").returncode == 0
    pid = host.pid
    host.files.directory.rename(tmp_path / "removed")  # at once, as the host may be writing into it
    assert soon(lambda: start_time(pid) is None)
    assert program(*LOAD).returncode == 0 and host.pid != pid


def test_a_token_that_others_can_read_is_not_used(program, host):
    assert program(*LOAD).returncode == 0
    host.files.token.chmod(0o644)
    answer = program("generate", "-m", "builtin", QUESTION)
    assert answer.returncode == 0 and "Paris" in answer.stdout
    assert answer.stderr.startswith("leap: warning: the model host is not used: ") and "mode 644" in answer.stderr
    for arguments in (["generate", "--host", QUESTION], ["ps"], ["load", "builtin"], ["unload", "builtin"]):
        refused = program(*arguments)
        assert (refused.returncode, refused.stdout) == (10, "") and "mode 644" in refused.stderr
        assert "`leap unload --all` ends the host" in refused.stderr and refused.stderr.count("\n") == 1
    pid = host.pid
    assert program("unload", "--all").returncode == 0
    assert host.has_left_nothing() and start_time(pid) is None


def test_a_hanging_host_is_reported(program, host):
    assert program(*LOAD).returncode == 0
    pid = host.pid
    os.kill(pid, signal.SIGSTOP)
    shown = program("ps")
    assert shown.returncode == 10 and f"the model host (process {pid}) does not answer" in shown.stderr
    os.kill(pid, signal.SIGCONT)


def test_errors_keep_their_exit_codes(program, host):
    assert program(*LOAD).returncode == 0
    long = program("generate", "--host", "-m", "builtin", "word " * 20_000)
    assert (long.returncode, long.stdout) == (5, "") and long.stderr.startswith("leap: error: the prompt has ")
    assert program("generate", "--host", "-m", "builtin", "--temperature", "-1", "x").returncode == 2


def test_the_log_contains_no_prompt_answer_or_token(program, host):
    assert program(*LOAD).returncode == 0
    program("generate", "--host", "-m", "builtin", QUESTION)
    until(lambda: "answer " in host.log)
    assert not any(word in host.log for word in ("France", "Paris", host.files.read_token()))


def test_an_abort_in_llama_cpp_is_reported(program, start, host):
    """As it would by an assertion that fails."""
    assert program(*LOAD).returncode == 0
    asking = in_the_middle(start)
    os.kill(host.pid, signal.SIGABRT)
    _, errors = asking.communicate(timeout=SOON)
    assert asking.returncode == 1 and b"ended unexpectedly" in errors and host.has_left_nothing()


def test_without_a_host_nothing_is_written(program, leap_home: Path):
    assert program("ps").returncode == 0 and program("generate", "-m", "builtin", QUESTION).returncode == 0
    assert program("unload", "--all").returncode == 0
    assert not leap_home.exists()


def test_the_example_of_the_documentation_runs(variables, host):
    import re

    page = (Path(__file__).parent.parent.parent / "docs" / "model-server.md").read_text("utf-8")
    example = next(code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "keep_warm" in code)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example + "print(complete.full_message.text)"],
        env=variables,
        capture_output=True,
        text=True,
        timeout=SOON,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "") and "Paris" in done.stdout and host.has_left_nothing()


@pytest.mark.parametrize("end", ["unload", "kill"])
def test_a_runner_survives_the_end_of_its_host(variables, host, end):
    """Somebody thinks for longer than the model stays; the next turn loads it again."""
    from leap_core.protocols.host.lookup import keep_warm, runner_of

    warm, held = keep_warm("builtin", variables=variables, cpu_threads=1, context_size=512)
    with runner_of(warm, held) as runner:
        conversation = runner.create_conversation()
        list(conversation.generate_response("My name is Ada."))
        if end == "kill":
            os.kill(host.pid, signal.SIGKILL)
        else:
            warm.unload(None)
        *_, complete = conversation.generate_response("What is my name?")
        assert "Ada" in complete.full_message.text and runner.context_size == 512
        assert runner.get_prompt_tokens_size(conversation.history) > 20
    (record,) = ModelHost.running(variables).status()["models"]
    assert record["context_size"] == 512

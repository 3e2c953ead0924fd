"""``leap download`` and ``leap models`` as processes of their own, against a real server on loopback."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leap_core.models.builtin import model_path
from leap_core.system.files import hash_file
from tests.support.hub import API, FILES, FakeHub

from .conftest import Program

REPO, FILE, NAME = "LiquidAI/LFM2-350M-GGUF", "LFM2-350M-Q4_K_M.gguf", "LFM2-350M"

needs_builtin = pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet")


@pytest.fixture
def hub(variables: dict[str, str], tmp_path: Path) -> Iterator[FakeHub]:
    """A hub to which the program's environment leads; no token, no caches of other programs."""
    with FakeHub() as hub:
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "LLAMA_CACHE"):
            variables.pop(name, None)
        variables |= {"HF_HOME": str(tmp_path / "hf"), "XDG_CACHE_HOME": str(tmp_path / "cache"), **hub.environment}
        yield hub


@pytest.fixture
def content(hub: FakeHub) -> bytes:
    data = random.Random(3).randbytes(3_000_001)
    hub.add_file(REPO, FILE, data)
    return data


@pytest.fixture
def target(leap_home: Path) -> Path:
    return leap_home / "models" / "LFM2-350M-Q4_K_M" / FILE


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)


def test_several_models_each_with_its_own_result(program: Program, hub, content, target):
    other = random.Random(4).randbytes(1_000)
    hub.add_file("me/Other-GGUF", "Other-Q8_0.gguf", other)
    names = ("me/None-GGUF", NAME, "me/Other-GGUF")
    planned = program("download", *names, "--dry-run", "--format", "json")
    assert planned.returncode == 4 and not target.exists()
    plans = json.loads(planned.stdout)
    assert [each.get("file") for each in plans] == [None, FILE, "Other-Q8_0.gguf"]
    done = program("download", *names)
    paths = done.stdout.splitlines()
    assert done.returncode == 4 and paths[0] == str(target) and Path(paths[1]).read_bytes() == other
    assert len(paths) == 2 and "leap: error: me/None-GGUF: " in done.stderr
    again = program("download", NAME, "me/Other-GGUF", "--format", "json")
    assert again.returncode == 0
    assert [each["reference"] for each in json.loads(again.stdout)] == [NAME, "me/Other-GGUF"]
    jobs = program("download", *names, "--background").stdout.split()
    assert len(set(jobs)) == 3
    waited = program("jobs", "wait", *jobs)
    program("jobs", "worker", "--shutdown")
    assert waited.returncode == 4 and waited.stderr.count("leap: error: the job ") == 1


def test_stdout_is_the_path_and_a_pipe_sees_no_bar(program: Program, hub, content, target):
    done = program("download", NAME)
    assert (done.returncode, done.stdout) == (0, f"{target}\n")
    assert done.stderr.count("\n") == 1 and "is not a GGUF file" in done.stderr, "the trial says what these bytes are"
    assert target.read_bytes() == content
    again = program("download", f"{NAME}:q4_k_m")
    assert (again.returncode, again.stdout) == (0, f"{target}\n")
    assert hub.bytes_served() == len(content)


def test_jsonl_reports_every_step(program: Program, hub, content, target):
    hub.bytes_per_second = 6_000_000
    done = program("download", NAME, "--format", "jsonl")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event["type"] for event in events]
    assert kinds[0] == "planned" and kinds[-3:] == ["file_finished", "notice", "finished"] and "progress" in kinds
    assert events[0]["total"] == len(content) and events[-1]["path"] == str(target)
    progress = [event for event in events if event["type"] == "progress"]
    assert all(0 <= event["bytes"] <= event["total"] for event in progress)
    assert progress[-1]["speed"] > 0 and progress[-1]["eta"] is not None
    assert events[-3]["sha256"] == hashlib.sha256(content).hexdigest()


def test_a_dry_run_lists_and_fetches_nothing(program: Program, hub, content, leap_home):
    done = program("download", NAME, "--dry-run")
    assert done.returncode == 0 and FILE in done.stdout and "3.0 MB" in done.stdout and str(leap_home) in done.stdout
    assert hub.bytes_served(FILES) == 0 and not leap_home.exists()
    (record,) = json.loads(program("download", NAME, "--dry-run", "--format", "json").stdout)
    assert record["bytes"] == len(content) and record["sha256"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["LFM2-35M"], 2, "there is no model 'LFM2-35M' (hint: did you mean LFM2-350M"),
        (["LFM2-350M:Q2_K"], 2, "no quantization Q2_K (hint: it has Q4_K_M)"),
        (["x.bundle"], 3, "ExecuTorch bundle"),
        (["./nowhere.gguf"], 2, "there is no file"),
        (["nobody/nothing"], 4, "has no repository nobody/nothing (404)"),
        ([NAME, "--connections", "0"], 2, "--connections"),
        ([], 2, "Missing argument"),
    ],
)
def test_unknown_models_are_one_line_errors(program: Program, hub, content, arguments, code, message):
    done = program("download", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("kind", "details"),
    [
        ("status", {"status": 401}),
        ("status", {"status": 403}),
        ("status", {"status": 404}),
        ("status", {"status": 416}),
        ("status", {"status": 500}),
        ("drop", {"after": 100_000}),
        ("truncate", {"after": 0}),
        ("stall", {"after": 300_000}),
        ("corrupt", {"after": 2_000_000}),
    ],
)
def test_a_persistent_fault_is_one_line_and_exit_code_4(program: Program, hub, content, target, kind, details):
    hub.fault(kind, times=999, **details)
    done = program("download", NAME, "--option", "retries=0", "--option", "stall-timeout=0.5s")
    assert (done.returncode, done.stdout) == (4, "")
    errors = [line for line in done.stderr.splitlines() if line.startswith("leap: error: ")]
    assert len(errors) == 1 and "Traceback" not in done.stderr
    assert not target.exists()
    hub.faults.clear()
    assert program("download", NAME).stdout == f"{target}\n"
    assert target.read_bytes() == content


def test_ctrl_c_keeps_received_bytes(start, program: Program, hub, content, target):
    hub.bytes_per_second = 1_000_000
    process = start("download", NAME)
    wait_for(lambda: hub.bytes_served() > 1_000_000)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out) == (130, b"") and b"resumes from here" in err
    hub.bytes_per_second = None
    served = hub.bytes_served()
    done = program("download", NAME)
    assert "resumes at" in done.stderr and target.read_bytes() == content
    assert hub.bytes_served() - served < len(content) - 500_000


def test_two_processes_share_one_download(start, hub, content, target):
    hub.bytes_per_second = 1_200_000
    first, second = (start("download", NAME, "--connections", "1") for _ in range(2))
    outputs = [process.communicate(timeout=60) for process in (first, second)]
    assert [process.returncode for process in (first, second)] == [0, 0]
    assert [out.decode() for out, _ in outputs] == [f"{target}\n"] * 2
    assert hub.bytes_served() == len(content)
    assert b"another process is downloading" in outputs[0][1] + outputs[1][1]


@pytest.mark.long
def test_ten_kills_repeat_at_most_a_twentieth(start, program: Program, hub, tmp_path, target):
    """300 MB, killed ten times at random moments."""
    chance = random.Random(1)
    big = tmp_path / "big.gguf"
    block = chance.randbytes(1_000_000)
    with big.open("wb") as file:
        for number in range(300):
            file.write(number.to_bytes(8, "little") + block[8:])
    size = big.stat().st_size
    sha256 = hub.add_file(REPO, FILE, big)
    for number in range(10):
        hub.bytes_per_second = None if number % 2 else 100e6
        asked = len(hub.requests(FILES))
        process = start("download", NAME)
        wait_for(lambda asked=asked: any(request.sent for request in hub.requests(FILES)[asked:]))
        time.sleep(chance.uniform(0, 0.03 if number % 2 else 0.2))
        process.kill()
        process.wait()
        assert not target.exists(), "too quick to be killed ten times"
    hub.bytes_per_second = None
    done = program("download", NAME)
    assert done.stdout == f"{target}\n"
    assert hash_file(target) == sha256
    assert hub.bytes_served() <= 1.05 * size
    assert len(hub.requests(FILES)) >= 11


def test_too_little_disk_space_is_reported_before_the_download(program: Program, hub, content, variables, leap_home):
    small = leap_home.parent / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", small], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        variables["LEAP_HOME"] = str(small)
        done = program("download", NAME)
        assert done.returncode == 4 and "needs 3.0 MB more" in done.stderr and "MB free" in done.stderr
        assert hub.bytes_served() == 0
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_directory_is_a_one_line_error(program: Program, hub, content, variables, tmp_path):
    (tmp_path / "mine").mkdir(mode=0o500)
    variables["LEAP_HOME"] = str(tmp_path / "mine")
    done = program("download", NAME)
    assert done.returncode == 4 and "cannot write" in done.stderr


@needs_builtin
def test_from_a_clean_directory_to_an_answer_and_back(program: Program, hub, leap_home, tmp_path):
    """download, list, info, verify, path, generate, remove."""
    hub.add_file(REPO, "LFM2-350M-F16.gguf", model_path())
    path = program("download", NAME).stdout.strip()
    assert Path(path).read_bytes() == model_path().read_bytes()
    (listed,) = json.loads(program("models", "list", "--format", "json").stdout)
    assert (listed["name"], listed["state"], listed["architecture"]) == ("LFM2-350M-F16", "ready", "lfm2")
    assert "LFM2-350M-F16" in program("models", "list").stdout
    info = json.loads(program("models", "info", NAME, "--format", "json").stdout)
    assert info["path"] == path and info["parameters"] > 0 and info["sampling"]["temperature"] == 0.3
    verified = program("models", "verify")
    assert verified.returncode == 0 and "ok" in verified.stdout
    assert program("models", "path", NAME).stdout == f"{path}\n"
    answer = program("generate", "-m", NAME, "--temperature", "0", "What is the capital of France?")
    assert answer.returncode == 0 and "Paris" in answer.stdout
    removed = program("models", "remove", NAME)
    assert (removed.returncode, removed.stdout) == (0, "LFM2-350M-F16\n") and not Path(path).exists()
    gone = program("models", "path", NAME)
    assert gone.returncode == 3 and f"leap download {NAME}" in gone.stderr


def test_a_damaged_model_is_found_and_fetched_again(program: Program, hub, content, target):
    program("download", NAME)
    damaged = bytearray(content)
    damaged[77] ^= 1
    target.write_bytes(damaged)
    done = program("models", "verify", NAME)
    assert (
        done.returncode == 4 and "damaged" in done.stdout and "leap download --replace LFM2-350M-Q4_K_M" in done.stderr
    )
    assert program("download", "--replace", "LFM2-350M-Q4_K_M").returncode == 0
    assert target.read_bytes() == content and program("models", "verify").returncode == 0


def test_an_installed_model_that_the_hub_no_longer_has(program: Program, hub, content, target):
    program("download", NAME)
    hub.fault("status", API, status=404, times=9)
    done = program("download", NAME)
    assert (done.returncode, done.stdout) == (0, f"{target}\n") and "is used as it is" in done.stderr


def test_importing_checking_and_collecting(program: Program, leap_home, tmp_path, hub):
    if not model_path().is_file():
        pytest.skip("the built-in model has not been trained yet")
    mine = tmp_path / "Mine-F16.gguf"
    mine.write_bytes(model_path().read_bytes())
    done = program("models", "import", "Mine-F16.gguf")
    assert done.stdout == f"{leap_home}/models/Mine-F16/Mine-F16.gguf\n" and "(hard link)" in done.stderr
    made = program("models", "manifest", "create", "Mine-F16.gguf", "--temperature", "0.2", "-o", "mine.json")
    assert made.stdout.strip().endswith("mine.json")
    checked = program("models", "manifest", "check", "mine.json")
    assert checked.returncode == 0 and "sound" in checked.stderr
    (tmp_path / "mine.json").write_text('{"inferenceType": "llama.cpp/text-to-text"}')
    checked = program("models", "manifest", "check", "mine.json")
    assert checked.returncode == 2 and "did you mean 'inference_type'?" in checked.stdout
    missing = program("models", "manifest", "check", "nowhere.json")
    assert missing.returncode == 2 and "cannot read nowhere.json: No such file" in missing.stderr
    assert program("models", "gc").returncode == 0
    assert program("models", "verify", "nothing").returncode == 2


@needs_builtin
def test_a_model_in_use_is_not_removed(start, program: Program, hub, leap_home):
    hub.add_file(REPO, "LFM2-350M-F16.gguf", model_path())
    path = Path(program("download", NAME).stdout.strip())
    talk = start("chat", "-m", NAME, stdin=subprocess.PIPE)
    talk.stdin.write(b"What is the capital of France?\n")
    talk.stdin.flush()
    assert talk.stdout.readline()
    refused = program("models", "remove", NAME)
    assert refused.returncode != 0 and "has it loaded" in refused.stderr and path.is_file()
    assert json.loads(program("models", "list", "--format", "json").stdout)[0]["in_use"] is True
    talk.kill()
    talk.wait()
    assert program("models", "remove", NAME).returncode == 0 and not path.exists()


def test_companion_sets_of_random_bytes(program: Program, hub, leap_home):
    """Vision and audio: downloaded, listed, told about, verified and removed, whatever is in the files."""
    chance = random.Random(9)
    vision, audio = "LiquidAI/LFM2.5-VL-450M-GGUF", "LiquidAI/LFM2.5-Audio-1.5B-GGUF"
    for name in ("LFM2.5-VL-450M-Q4_0.gguf", "mmproj-LFM2.5-VL-450m-Q8_0.gguf"):
        hub.add_file(vision, name, chance.randbytes(50_000))
    for start in ("", "mmproj-", "vocoder-", "tokenizer-"):
        hub.add_file(audio, f"{start}LFM2.5-Audio-1.5B-Q4_0.gguf", chance.randbytes(50_000))
    assert program("download", "LFM2.5-VL-450M").returncode == 0
    assert program("download", "lfm2.5-audio-1.5b").returncode == 0
    listed = json.loads(program("models", "list", "--format", "json").stdout)
    assert [(model["name"], model["kind"]) for model in listed] == [
        ("LFM2.5-Audio-1.5B-Q4_0", "audio"),
        ("LFM2.5-VL-450M-Q4_0", "vision"),
    ]
    info = json.loads(program("models", "info", "LFM2.5-Audio-1.5B", "--format", "json").stdout)
    assert len(info["files"]) == 4 and info["bytes"] == 200_000
    assert program("models", "verify").returncode == 0
    assert program("models", "remove", "LFM2.5-VL-450M", "LFM2.5-Audio-1.5B").returncode == 0
    assert json.loads(program("models", "list", "--format", "json").stdout) == []

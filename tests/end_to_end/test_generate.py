"""``leap generate`` with the built-in model, as a shell sees it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from leap_core.conversation.responses import MessageResponse

from .conftest import LONG, QUESTION

NOTE = "leap: no model given, so the built-in demo model answers; "


def test_the_builtin_model_answers_with_a_note(program):
    done = program("generate", QUESTION)
    assert done.returncode == 0
    assert "Paris" in done.stdout and done.stdout.count("\n") == 1 and done.stdout.endswith("\n")
    assert done.stderr.startswith(NOTE) and done.stderr.count("\n") == 1


def test_a_named_model_leaves_stderr_empty(program):
    done = program("generate", "-m", "builtin", QUESTION)
    assert (done.returncode, done.stderr) == (0, "") and "Paris" in done.stdout


@pytest.mark.parametrize(
    "line",
    [
        f'echo "{QUESTION}" | leap generate -m builtin',
        f'printf "{QUESTION}" | leap generate -m builtin -',
        f"leap generate -m builtin {QUESTION.replace('?', chr(92) + '?')}",
        f'leap generate -m builtin --no-stream "{QUESTION}"',
        f'LEAP_MODEL=builtin leap generate "{QUESTION}"',
        f'leap generate -m builtin --format json "{QUESTION}" | jq -r .message.content',
        f'leap generate -m builtin --format jsonl "{QUESTION}" | jq -r \'select(.type == "complete").message.content\'',
        f'leap generate -m builtin --format jsonl "{QUESTION}" | jq -j \'select(.type == "chunk").text\'',
    ],
)
def test_prompts_from_arguments_and_standard_input(shell, line):
    if "jq" in line and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    done = shell(line)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Paris" in done.stdout and done.stdout.count("\n") <= 1


def test_the_same_seed_gives_the_same_answer(program):
    flags = ["--seed", "7", "--temperature", "1.5", "--top-k", "0", "--threads", "1"]
    one, other = (program("generate", "-m", "builtin", *flags, "Say hello.").stdout for _ in range(2))
    assert one == other != ""


def test_every_event_reads_back_and_joins_up(program):
    done = program("generate", "-m", "builtin", "--format", "jsonl", QUESTION)
    *pieces, end = (MessageResponse.from_json(json.loads(line)) for line in done.stdout.splitlines())
    assert "".join(piece.text for piece in pieces) == end.full_message.text
    assert end.stats.completion_tokens >= len(pieces)


def test_stop_texts_end_an_answer_before_them(program):
    done = program("generate", "-m", "builtin", "--stop", "Paris", QUESTION)
    assert done.returncode == 0 and "Paris" not in done.stdout and done.stdout.strip()


def test_an_answer_that_was_cut_says_so(program):
    done = program("generate", "-m", "builtin", "--max-tokens", "5", "--stats", LONG)
    assert done.returncode == 0 and done.stdout.strip()
    cut, stats = done.stderr.splitlines()
    assert cut == "leap: the answer was cut at --max-tokens"
    assert "answer 5 tokens" in stats


def test_a_full_context_says_so(program):
    done = program("generate", "-m", "builtin", "--context-size", "64", LONG)
    assert done.returncode == 0 and done.stdout.strip()
    assert "context is full" in done.stderr and done.stderr.count("\n") == 1


def test_messages_of_llama_cpp_are_shown_only_with_verbose(program):
    done = program("generate", "-m", "builtin", "--verbose", QUESTION)
    assert "llama_model_loader" in done.stderr and "llama" not in done.stdout.lower()


def test_nothing_is_written_to_the_users_directories(program, leap_home):
    program("generate", QUESTION)
    assert not leap_home.exists()


@pytest.mark.parametrize("format", ["text", "jsonl"])
def test_a_closed_pipe_ends_the_command_quietly(shell, format):
    done = shell(f'leap generate -m builtin --format {format} "{LONG}" | head -c 5')
    assert (done.returncode, len(done.stdout), done.stderr) == (0, 5, "")


@pytest.mark.parametrize("command", [f'generate -m builtin "{QUESTION}"', "--help", "--version"])
@pytest.mark.parametrize(
    ("target", "reason"), [("/dev/full", "No space left on device"), ("&-", "Bad file descriptor")]
)
def test_an_unwritable_stdout_is_a_one_line_error(shell, command, target, reason):
    done = shell(f"leap {command} >{target}")
    assert (done.returncode, done.stderr) == (1, f"leap: error: cannot write the output: {reason}\n")


@pytest.mark.parametrize("command", [f'generate "{QUESTION}"', f"chat <<< '{QUESTION}'"])
@pytest.mark.parametrize("ending", ["2>/dev/full", "2> >(exec <&-; sleep 0.1)"])
def test_a_closed_stderr_does_not_stop_an_answer(shell, command, ending):
    """With no -m there is a note about the model."""
    done = shell(f"leap {command} {ending}")
    assert (done.returncode, done.stdout) == (0, "The capital of France is Paris.\n")


@pytest.mark.cold
@pytest.mark.parametrize("command", ["generate hi", "chat"])
def test_input_beyond_any_context_is_not_read(shell, command):
    done = shell(f"ulimit -v 4000000; head -c 20000000 /dev/zero | tr '\\0' x | leap {command} -m builtin")
    assert done.returncode == 2 and "standard input is larger than 16 MiB" in done.stderr


def test_a_prompt_of_many_characters_is_counted(shell):
    done = shell("head -c 16500000 /dev/zero | tr '\\0' x | leap generate -m builtin")
    assert done.returncode == 5 and "tokens and the context holds 2048" in done.stderr


def test_ctrl_c_during_imports_prints_nothing(variables):
    look = "print(signal.getsignal(signal.SIGINT).name, 'click' in sys.modules)"
    code = (
        "import signal, sys, types; main = types.ModuleType('leap_cli.main'); "
        f"main.run = lambda: {look}; sys.modules['leap_cli.main'] = main; from leap_cli.__main__ import run; run()"
    )
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("SIG_DFL False\n", "")


def test_closed_standard_streams_cause_no_traceback(shell):
    done = shell(f'leap generate -m builtin "{QUESTION}" <&-')
    assert (done.returncode, done.stderr) == (0, "") and "Paris" in done.stdout
    assert shell("leap generate --frobnicate 2>&-").returncode == 2
    assert shell(f'leap generate -m builtin "{QUESTION}" <&- >&- 2>&-').returncode == 1


def test_text_stays_utf_8_in_every_locale(program, variables):
    variables |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = program("generate", "-m", "builtin", "--format", "json", "Grüße aus 東京", stdin="und Zürich")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["finish_reason"]


def test_a_working_directory_that_was_removed(shell):
    done = shell(f'mkdir gone; cd gone; rmdir ../gone; leap generate -m builtin "{QUESTION}"')
    assert (done.returncode, done.stderr) == (0, "") and "Paris" in done.stdout


def damaged_models(directory, good: bytes):
    return {
        "truncated.gguf": good[: len(good) // 2],
        "header-only.gguf": good[:24],
        "half-header.gguf": good[:10],
        "random.gguf": bytes(range(7, 256)) * 400,
        "magic.gguf": b"GGML" + good[4:],
        "version.gguf": good[:4] + b"\xff\xff\xff\x7f" + good[8:],
        "counts.gguf": good[:8] + b"\xff" * 16 + good[24:],
        "noise.gguf": good[:24] + bytes(range(256)) * 1000,
        "text.gguf": b"I am a text.\n" * 100,
        "empty.gguf": b"",
    }


def test_damaged_models_are_refused_each_in_one_line(program, tmp_path):
    from leap_core import Leap

    with Leap.load("builtin") as runner:
        good = runner.model.path.read_bytes()
    (tmp_path / "directory.gguf").mkdir()
    for name, data in damaged_models(tmp_path, good).items():
        (tmp_path / name).write_bytes(data)
    for name in [*damaged_models(tmp_path, good), "directory.gguf", "missing.gguf", "no-such-model", "/dev/null"]:
        done = program("generate", "-m", name, QUESTION)
        code = 2 if name in ("missing.gguf", "no-such-model") else 3
        assert (done.returncode, done.stdout) == (code, ""), (name, done)
        assert done.stderr.startswith("leap: error: ") and done.stderr.count("\n") == 1, (name, done)
        assert name.removesuffix(".gguf") in done.stderr


@pytest.mark.parametrize("source", ["argument", "stdin"])
def test_a_prompt_longer_than_the_context(program, source):
    text = "word " * 20_000
    arguments = [text] if source == "argument" else []
    done = program("generate", *arguments, stdin=text if source == "stdin" else "")
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith("leap: error: the prompt has ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [["--frobnicate"], ["--temperature", "-1", "x"], ["--max-tokens", "x", "y"], ["-m"], []],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_wrong_usage(program, arguments):
    done = program("generate", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("leap: error: ") and done.stderr.count("\n") == 1


PIPE_BYTES = 4096


def narrow_pipe():
    """A pipe that holds one page where the system allows it, so that whoever writes much has to wait for its reader."""
    reader, writer = os.pipe()
    if sys.platform == "linux":
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return os.fdopen(reader, "rb", buffering=0), writer


def unread_bytes(reader):
    return struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, b"\0" * 4))[0]


def begin_long_answer(start):
    """A long answer that has begun and waits, because nobody reads on."""
    reader, writer = narrow_pipe()
    process = start("generate", "-m", "builtin", "--format", "jsonl", LONG, stdout=writer)
    os.close(writer)
    first = reader.readline()
    assert json.loads(first)["type"] == "chunk"
    before = -1
    while (now := unread_bytes(reader)) < PIPE_BYTES - 500 or now != before:  # until nothing more goes into the pipe
        assert process.poll() is None, "the answer is too short for this test"
        before = now
        time.sleep(0.3)
    return process, reader, first


def test_ctrl_c_stops_the_answer_and_keeps_its_text(start):
    process, reader, first = begin_long_answer(start)
    with reader:
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)  # the signal must come before the reader does
        *_, last = [first, *reader]
    assert process.wait(60) == 130
    complete = json.loads(last)
    assert (complete["type"], complete["finish_reason"]) == ("complete", "interrupted")
    assert complete["message"]["content"]
    assert process.stderr.read() == b""


def test_a_second_ctrl_c_ends_the_process(start):
    process, reader, _ = begin_long_answer(start)
    with reader:
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
        assert process.stderr.read() == b""


def test_one_ctrl_c_delivered_twice_counts_once(start):
    """As ``timeout -s INT`` and other wrappers do."""
    process, reader, _ = begin_long_answer(start)
    with reader:
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        *_, last = reader
    assert process.wait(60) == 130
    assert json.loads(last)["finish_reason"] == "interrupted"


def test_ctrl_c_while_waiting_for_input(start):
    process = start("generate", "-m", "builtin", "-", stdin=subprocess.PIPE)
    assert process.stderr.readline() == b"leap: waiting for standard input (</dev/null gives none)\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.stdout.read() == b"" and process.stderr.read() == b""


def test_the_prompt_cache_saves_the_next_process_the_system_prompt(program):
    asked = ("generate", "-m", "builtin", "--no-host", "--prompt-cache", "--format", "json")
    system = ("-s", "You are a helpful assistant. " * 12)
    first = json.loads(program(*asked, *system, "What is the capital of France?").stdout)
    second = json.loads(program(*asked, *system, "What is the capital of Japan?").stdout)
    assert first["stats"]["cached_prompt_tokens"] == 0
    assert 2 * second["stats"]["cached_prompt_tokens"] > second["stats"]["prompt_tokens"]

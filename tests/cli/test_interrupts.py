"""Ctrl-C while an answer is made, with a real SIGINT to this process."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time

import pytest

from leap_cli.framework.interrupts import leaving_on_termination, raising_on_interrupt, stopping_on_interrupt
from leap_cli.main import main
from leap_core.errors import LeapGenerationError
from leap_core.testing import Script, Stall
from tests.support.hashed_words import HashedWordsRunner
from tests.wav_bytes import wav_of

pytestmark = pytest.mark.skipif(
    signal.getsignal(signal.SIGINT) is not signal.default_int_handler, reason="SIGINT is ignored here"
)


def interrupt_at(stall: Stall) -> None:
    """Press Ctrl-C once the model waits at this point of its script."""

    def press() -> None:
        assert stall.reached.wait(60)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()


def test_the_first_ctrl_c_stops_the_answer_and_keeps_its_text(leap):
    stall = Stall()
    runner = leap.script(["half of ", "it", stall, "never"])
    interrupt_at(stall)
    done = leap("generate", "-m", "some", "x")
    assert (done.code, done.stdout, done.stderr) == (130, "half of it\n", "")
    assert runner.is_unloaded
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupted_json_document_is_whole(leap):
    stall = Stall()
    leap.script(["half of ", "it", stall, "never"])
    interrupt_at(stall)
    done = leap("generate", "-m", "some", "--format", "json", "x")
    document = json.loads(done.stdout)
    assert done.code == 130
    assert (document["finish_reason"], document["message"]["content"]) == ("interrupted", "half of it")


@pytest.mark.parametrize(
    ("flags", "lines", "said"),
    [
        ([], "one\ntwo\n", "half\n"),
        (["--jsonl"], '{"role": "user", "content": "one"}\n{"role": "user", "content": "two"}\n', ""),
    ],
)
def test_ctrl_c_ends_a_chat_through_a_pipe(leap, flags, lines, said):
    stall = Stall()
    runner = leap.script(["half", stall, "never"], "second")
    interrupt_at(stall)
    done = leap("chat", "-m", "some", *flags, stdin=lines)
    assert (done.code, done.stdout, len(runner.requests)) == (130, said, 1)


def test_an_answer_that_completes_despite_ctrl_c_counts(leap):
    stall = Stall(seconds=0.1)
    leap.script(Script(["whole", stall, " answer"], ignore_stop=True))
    interrupt_at(stall)
    done = leap("generate", "-m", "some", "x")
    assert (done.code, done.stdout) == (0, "whole answer\n")


def test_ctrl_c_leaves_a_question_during_an_answer():
    stopped = threading.Event()
    with stopping_on_interrupt(stopped.set):
        with pytest.raises(KeyboardInterrupt), raising_on_interrupt():
            signal.raise_signal(signal.SIGINT)
        assert not stopped.is_set()
        signal.raise_signal(signal.SIGINT)
        assert stopped.wait(60), "the next press stops the answer"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("command", "streamed"),
    [
        (["extract", "--json-schema", "name"], ""),
        (["summarize"], "half\n"),
        (["translate", "--to", "de"], "half\n"),
        (["redact"], ""),
        (["classify", "--labels", "a,b"], ""),
        (["decide", "Is it?", "--score", "1..3"], ""),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_ctrl_c_ends_a_task(leap, command, streamed):
    stall = Stall()
    runner = leap.script(["half", stall, "never"])
    interrupt_at(stall)
    done = leap(*command, "-m", "some", stdin="Ann lives in Rome.")
    assert (done.code, done.stdout) == (130, streamed)
    warning = r"leap: warning: .* was not made to find personal data: .*\n" if command[0] == "redact" else ""
    assert re.fullmatch(warning, done.stderr)
    assert runner.is_unloaded


def test_failures_before_ctrl_c_are_kept(leap, tmp_path):
    stall = Stall()
    leap.script([LeapGenerationError("no")], ["{", stall, "never"])
    interrupt_at(stall)
    command = ["extract", "--json-schema", "name", "--lines", "--errors", "failed.jsonl", "-m", "some"]
    assert leap(*command, stdin="one\ntwo\n").code == 130
    assert json.loads((tmp_path / "failed.jsonl").read_text())["text"] == "one"


@pytest.mark.parametrize("format", ["text", "json", "jsonl"])
def test_ctrl_c_ends_an_answer_from_files_and_keeps_its_sources(leap, tmp_path, format):
    (tmp_path / "rome.txt").write_text("Rome is the capital of Italy.\n")
    assert leap("index", "make", "notes", "rome.txt", "--keywords-only").code == 0
    stall = Stall()
    leap.script(["half", stall, "never"])
    interrupt_at(stall)
    done = leap("ask", "notes", "capital of Italy?", "-m", "some", "--format", format)
    assert done.code == 130 and "half" in done.stdout
    assert "rome.txt" in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", [["embed", "a text"], ["index", "make", "notes", "a.txt"]], ids=lambda w: w[0])
def test_ctrl_c_ends_an_embedding(leap, tmp_path, command):
    (tmp_path / "a.txt").write_text("some words\n")
    stall = Stall()

    class Slow(HashedWordsRunner):
        def _embed_tokens(self, request):
            stall.reached.set()
            deadline = time.monotonic() + 60
            while not request.cancelled.wait(0.02):  # a signal just before a long wait would be seen after it
                assert time.monotonic() < deadline
            return super()._embed_tokens(request)

    env = leap.environment("", terminal=False, stdin_terminal=False)
    env.load_embedder = lambda reference, options: Slow()
    interrupt_at(stall)
    assert (main(command, env), env.stdout.getvalue(), env.stderr.getvalue()) == (130, "", "")


def test_ctrl_c_ends_a_transcription(leap, tmp_path):
    (tmp_path / "a.wav").write_bytes(wav_of([0.3, -0.3] * 8000, 16_000))
    stall = Stall()
    runner = leap.script(["half", stall, "never"])
    interrupt_at(stall)
    done = leap("transcribe", "-m", "some", "a.wav")
    assert done.code == 130 and "never" not in done.stdout
    assert runner.is_unloaded


@pytest.mark.skipif(sys.platform == "win32", reason="no process can be asked to end")
def test_sigterm_ends_a_command_cleanly() -> None:
    before = signal.getsignal(signal.SIGTERM)
    done: list[str] = []
    with pytest.raises(SystemExit) as ended, leaving_on_termination():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        finally:
            done.append("files are closed")
    assert ended.value.code == 128 + signal.SIGTERM and done
    assert signal.getsignal(signal.SIGTERM) == before

"""Ctrl-C while an answer is made, with a real SIGINT to this process."""

from __future__ import annotations

import json
import signal
import threading

import pytest

from leap_cli.framework.interrupts import raising_on_interrupt, stopping_on_interrupt
from leap_core.testing import Script, Stall

pytestmark = pytest.mark.skipif(
    signal.getsignal(signal.SIGINT) is not signal.default_int_handler, reason="SIGINT is ignored here"
)


def interrupt_at(stall: Stall) -> None:
    """Press Ctrl-C once the model waits at this point of its script."""

    def press() -> None:
        assert stall.reached.wait(20)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()


def test_the_first_ctrl_c_stops_the_answer_and_keeps_what_came(leap):
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


def test_an_answer_that_ends_all_the_same_is_an_answer(leap):
    stall = Stall(seconds=0.1)
    leap.script(Script(["whole", stall, " answer"], ignore_stop=True))
    interrupt_at(stall)
    done = leap("generate", "-m", "some", "x")
    assert (done.code, done.stdout) == (0, "whole answer\n")


def test_a_question_during_an_answer_is_left_with_ctrl_c():
    stopped = threading.Event()
    with stopping_on_interrupt(stopped.set):
        with pytest.raises(KeyboardInterrupt), raising_on_interrupt():
            signal.raise_signal(signal.SIGINT)
        assert not stopped.is_set()
        signal.raise_signal(signal.SIGINT)
        assert stopped.wait(20), "the next press stops the answer"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

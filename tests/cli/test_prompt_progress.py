"""While a long prompt is read, a terminal shows how far; nothing of it is left behind, and a pipe sees nothing."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from jobs.table.job import ClaimLostError, State
from jobs.table.requests import AnswerRequest
from jobs.worker.attempt import Attempt
from jobs.worker.tasks import generate
from leap_cli.display.jobs import doing
from leap_cli.framework.prompt_line import prompt_line
from leap_core.conversation import prompt_progress
from leap_core.conversation.generator import PromptProgress
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.prompt_progress import PromptReading, seconds_left
from leap_core.conversation.request import Request
from leap_core.conversation.responses import Chunk
from leap_core.conversation.wrapping import wrapped
from leap_core.errors import LeapGenerationError
from leap_core.testing import Script, ScriptedModelRunner, Stall
from leap_core.testing.scripted import ScriptedGeneration

from .test_interrupts import interrupt_at
from .test_interrupts import pytestmark as takes_interrupts

CLEAR = "\r\x1b[K"
SHOWN = f"{CLEAR}reading the prompt: 2000 of 6500 tokens, 31 tokens/s, 2:25 to go"
OF_A_PROMPT = PromptProgress(total=6500, cached=450, processed=2000, seconds=50.0)
BRIEFLY = [Stall(seconds=0.2)] * 3
LINES = {
    "generate": ["hi"],
    "chat": ["--jsonl"],
    "extract": ["--json-schema", "name", "hi"],
    "summarize": ["hi"],
    "translate": ["--to", "fr", "hi"],
    "classify": ["--labels", "a,b", "hi"],
    "ask": ["notes", "hi?"],
    "batch": ["b.jsonl", "-o", "out.jsonl"],
}


@pytest.fixture
def slow(leap, tmp_path, monkeypatch):
    """Prompts report the same progress all the time; the stalls in ``leap.until_reported`` end once one is reported."""
    leap.until_reported, reading = [Stall() for _ in range(3)], PromptReading.of

    def reported(*steps: PromptProgress) -> PromptReading:
        for stall in leap.until_reported:
            stall.release()
        return reading(*steps)

    monkeypatch.setattr(PromptReading, "of", staticmethod(reported))
    monkeypatch.setattr(prompt_progress, "FIRST_SECONDS", 0.05)
    monkeypatch.setattr(prompt_progress, "SECONDS", 0.02)
    monkeypatch.setattr(ScriptedGeneration, "progress", OF_A_PROMPT)
    (tmp_path / "b.jsonl").write_text('{"prompt": "hi"}\n')
    (tmp_path / "notes.txt").write_text("hi there")
    return leap


def run(slow, command: str, *more: str, stalls: Sequence[Stall] | None = None, **how: bool):
    if command == "ask":
        assert slow("index", "make", "notes", "notes.txt").code == 0
    answer = '{"name": "a"}' if command == "extract" else "a"
    slow.script(*([stall, answer] for stall in stalls or slow.until_reported))
    stdin = '{"role": "user", "content": "hi"}\n' if command == "chat" else ""
    return slow(command, *LINES[command], "-m", "builtin" if command == "batch" else "x", *more, stdin=stdin, **how)


@pytest.mark.slow
@pytest.mark.parametrize("command", LINES)
def test_a_terminal_shows_prompt_progress_until_the_answer_begins(slow, command):
    done = run(slow, command, terminal=True)
    assert SHOWN in done.stderr and (done.code == 0 or command == "classify")  # the fake gives no probabilities
    after = done.stderr.rpartition(SHOWN)[2]
    assert after.startswith(CLEAR) and "reading" not in after


@pytest.mark.slow
@pytest.mark.parametrize("command", LINES)
def test_a_pipe_and_a_dumb_terminal_see_nothing(slow, command):
    assert "reading" not in run(slow, command, stalls=BRIEFLY).stderr
    slow.variables["TERM"] = "dumb"
    assert "reading" not in run(slow, command, stalls=BRIEFLY, terminal=True).stderr


def test_quiet_shows_nothing(slow):
    done = run(slow, "batch", "-q", stalls=BRIEFLY, terminal=True)
    assert (done.code, done.stderr) == (0, "")


def test_a_short_prompt_shows_nothing(leap, monkeypatch):
    monkeypatch.setattr(ScriptedGeneration, "progress", OF_A_PROMPT)
    leap.script([Stall(seconds=0.2), "a"])
    done = leap("generate", "-m", "x", "hi", terminal=True)
    assert (done.stdout, done.stderr) == ("a\n", "")


def test_a_finished_or_unknown_prompt_shows_nothing(slow, monkeypatch):
    for progress in (None, PromptProgress(6500, 0, 6500, 50.0)):
        monkeypatch.setattr(ScriptedGeneration, "progress", progress)
        assert run(slow, "generate", stalls=BRIEFLY, terminal=True).stderr == ""


def test_an_error_erases_the_line(slow):
    slow.script([slow.until_reported[0], LeapGenerationError("broken")])
    done = slow("generate", "-m", "x", "hi", terminal=True)
    assert done.stderr.endswith(f"{SHOWN}{CLEAR}leap: error: broken\n")


@takes_interrupts
def test_ctrl_c_during_a_prompt_erases_the_line(slow):
    stall = Stall()
    slow.script(Script([slow.until_reported[0], stall, "never"]))
    interrupt_at(stall)
    done = slow("generate", "-m", "x", "hi", terminal=True)
    assert done.code == 130 and done.stderr.endswith(f"{SHOWN}{CLEAR}")


def test_an_unfinished_line_of_the_answer_is_not_overwritten(slow):
    """As where a model says a word before it calls a function, and then reads what that gave."""
    output = slow.environment("", terminal=True, stdin_terminal=False)
    from leap_cli.framework.output import Output

    first, second = Output(output), Output(output)
    first.text("The weather")
    second.progress("reading")
    assert output.stderr.getvalue() == ""
    first.text(" is fine.\n")
    second.progress("reading")
    first.note("done")
    assert output.stderr.getvalue() == f"{CLEAR}reading{CLEAR}leap: done\n"


def test_several_prompts_share_one_line():
    prompts = [PromptReading(2000, 6500, 31.0, 1.0), PromptReading(500, 1000, 10.0, 3.0)]
    assert prompt_line(prompts) == "reading 2 prompts: 2500 of 7500 tokens, 41 tokens/s, 2:00 to go"
    assert prompt_line([PromptReading(0, 1000, 0.0, 5.0)]) == "reading the prompt: 0 of 1000 tokens"


def test_between_two_steps_the_speed_stays_and_the_remaining_time_decreases(monkeypatch):
    monkeypatch.setattr(prompt_progress, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(prompt_progress, "SECONDS", 0.001)
    steps = [PromptProgress(1000, 0, 0, 1.0), PromptProgress(1000, 100, 500, 4.0), PromptProgress(1000, 100, 500, 5.0)]
    told, stall = [], Stall()

    def report(_generation, reading):
        told.append(reading)
        if reading is None:
            stall.release()

    monkeypatch.setattr(ScriptedGeneration, "progress", property(lambda _self: steps.pop(0) if steps else None))
    runner = prompt_progress.ReportingRunner(ScriptedModelRunner([stall, "a"]), report)
    assert next(runner.start_text("x")) == Chunk("a")
    assert [each and (each.done, each.speed, seconds_left([each])) for each in told[:4]] == [
        (0, 0.0, None),
        (500, 100.0, 5.0),
        (500, 100.0, 4.0),
        None,
    ]


def test_a_line_fits_the_terminal(slow, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    done = run(slow, "generate", terminal=True)
    lines = [line for line in done.stderr.split(CLEAR) if line]
    assert lines and all(line.startswith("reading the prompt") and len(line) <= 29 for line in lines)


def test_progress_comes_only_before_the_first_response():
    told = []
    runner = prompt_progress.ReportingRunner(
        ScriptedModelRunner(["a", Stall(seconds=0.1), "b"]), lambda _generation, progress: told.append(progress)
    )
    assert [response for response in runner.start_text("x")] and told == []


def test_a_job_reports_prompt_progress(slow):
    said: list[dict[str, object]] = []

    class Told(Attempt):
        def __init__(self) -> None:
            self.stop = threading.Event()

        def when_stopped(self, action: object) -> None:
            pass

        def progress(self, progress):
            said.append(progress)
            raise ClaimLostError  # as where the job was taken away: the thread that reports goes on

        def emit(self, event, progress=None):
            pass

    runner = ScriptedModelRunner([slow.until_reported[0], "a"])
    asked = AnswerRequest(request=Request([ChatMessage("user", "hi")]))
    ending = generate(Told(), asked, lambda *_, report: nullcontext(wrapped(runner, report=report)))
    assert ending.state is State.SUCCEEDED
    assert said and said[-1] == {"done": 2000, "total": 6500, "unit": "tokens of the prompt", "eta": 4500 / 31}
    row = SimpleNamespace(id="j1", kind="generate", state=State.RUNNING, progress=said[-1], percent=None)
    assert doing(row) == "j1 generate running 2000 of 6500 tokens of the prompt (2m 25s left)"

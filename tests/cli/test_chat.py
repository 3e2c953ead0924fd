"""``leap chat`` on the scripted runner."""

from __future__ import annotations

from leap_core.conversation.messages import ChatMessage
from leap_core.errors import LeapGenerationError


def said(request):
    return [message.text for message in request.messages]


def test_each_line_of_a_pipe_is_a_turn_and_answers_alone_go_to_stdout(leap):
    runner = leap.script(["Hel", "lo."], "Ada.")
    done = leap("chat", "-m", "some", stdin="hi, I am Ada\n\nwho am I?")
    assert (done.code, done.stdout, done.stderr) == (0, "Hello.\nAda.\n", "")
    assert [said(request) for request in runner.requests] == [
        ["hi, I am Ada"],
        ["hi, I am Ada", "Hello.", "who am I?"],
    ]


def test_the_system_prompt_opens_the_conversation(leap):
    runner = leap.script("ok")
    leap("chat", "-m", "some", "-s", "Be brief.", stdin="hi\n")
    assert runner.requests[0].messages[0] == ChatMessage("system", "Be brief.")


def test_no_input_is_no_turn(leap):
    runner = leap.script("never")
    assert leap("chat", "-m", "some", stdin="").code == 0
    assert runner.requests == [] and runner.is_unloaded


def test_a_terminal_gets_a_prompt_on_stderr_and_ctrl_d_quits(leap):
    leap.script("Hello.")
    done = leap("chat", "-m", "some", stdin="hi\n", stdin_terminal=True)
    assert (done.code, done.stdout) == (0, "Hello.\n")
    assert done.stderr.startswith("leap: scripted; Ctrl-C stops an answer, Ctrl-D leaves, /help lists commands\n> > \n")


def test_a_failed_turn_ends_a_pipe_with_its_code(leap):
    leap.script([LeapGenerationError("broken")], "never")
    done = leap("chat", "-m", "some", stdin="one\ntwo\n")
    assert (done.code, done.stdout, done.stderr) == (1, "", "leap: error: line 1: broken\n")


def test_a_failed_turn_does_not_end_a_chat_at_a_terminal(leap):
    runner = leap.script([LeapGenerationError("broken")], "fine")
    done = leap("chat", "-m", "some", stdin="one\ntwo\n", stdin_terminal=True)
    assert (done.code, done.stdout) == (0, "fine\n")
    assert "leap: error: broken\n" in done.stderr
    assert said(runner.requests[1]) == ["two"], "the failed turn is not in the history"


def test_a_line_that_is_not_utf8_is_named(leap):
    leap.script("ok")
    done = leap("chat", "-m", "some", stdin=b"fine\n\xff\n")
    assert (done.code, done.stdout) == (2, "ok\n")
    assert done.stderr.startswith("leap: error: line 2 of standard input is not UTF-8 text")


def test_stats_follow_each_answer(leap):
    leap.script(["a", "b"], ["c", "d"])
    done = leap("chat", "-m", "some", "--stats", stdin="x\ny\n")
    assert done.stderr.count("answer 2 tokens") == 2


def test_a_first_message_with_a_file_and_a_template(leap, tmp_path):
    (tmp_path / "notes.txt").write_text("a note")
    assert leap("saved", "templates", "add", "brief", "In one word: {input}", "-s", "Be brief.").code == 0
    runner = leap.script("one", "two")
    done = leap("chat", "--template", "brief", "-f", str(tmp_path / "notes.txt"), "What is it?", stdin="and now?\n")
    assert (done.code, done.stdout) == (0, "one\ntwo\n")
    system, first = runner.requests[0].messages
    assert system.text == "Be brief." and first.text.startswith("In one word: ") and "a note" in first.text
    assert first.text.endswith("What is it?") and runner.requests[1].messages[-1].text == "and now?"
    assert leap("chat", "--jsonl", "x").code == 2

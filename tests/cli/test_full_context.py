"""``leap chat`` when its conversation no longer fits the context."""

from __future__ import annotations

import pytest

from leap_core.testing import ScriptedModelRunner


@pytest.fixture
def small(leap, monkeypatch):
    """A model that holds 40 words, and answers these."""

    def script(*answers):
        runner = leap.script(*answers)
        runner._context_size = 40
        return runner

    return script


def said(request):
    return [message.text for message in request.messages]


TURN = "one two three four five six seven"


def test_ninety_turns_through_a_pipe_continue_without_the_oldest(leap, small, kept):
    small(*["a b c d"] * 90)
    done = leap("chat", "-m", "some", stdin=f"{TURN}\n" * 90)
    assert (done.code, done.stdout.count("a b c d")) == (0, 90)
    assert "leap: the model no longer gets the first " in done.stderr and "the session keeps all" in done.stderr
    assert len(kept()) == 180


def test_an_error_ends_a_pipe_when_that_is_configured(leap, small):
    small(*["a b c d"] * 9)
    done = leap("chat", "-m", "some", "--on-overflow", "error", stdin=f"{TURN}\n" * 9)
    assert done.code == 5 and "line 4: the prompt has" in done.stderr


def test_a_summary_goes_into_the_next_message_and_a_continued_chat(leap, small, kept):
    small("a b c d", "a b c d", "Ada likes cats.", "fine")
    done = leap("chat", "-m", "some", "--on-overflow", "summarize", stdin=f"{TURN}\n" * 3)
    assert (done.code, done.stdout.splitlines()[-1]) == (0, "fine"), done
    assert "but a summary" in done.stderr
    runner = small("yes")
    leap("chat", "-c", "-m", "some", stdin="and?\n")
    sent = said(runner.requests[0])
    assert sent[0].startswith("[What was said before, in short: Ada likes cats.]\n\none two") and sent[-1] == "and?"
    assert len(sent) < 7 == len(kept()) - 1


def test_a_terminal_asks_once(leap, small):
    runner = small("a b c d", "a b c d", "a b c d", "a b c d", "a b c d")
    lines = [TURN, TURN, TURN, "o", TURN, TURN]
    done = leap("chat", "-m", "some", stdin="".join(f"{line}\n" for line in lines), stdin_terminal=True)
    assert done.code == 0 and done.stderr.count("o leaves the oldest out") == 1
    assert len(runner.requests) == 5 and all("in short" not in said(each)[0] for each in runner.requests)


def test_a_message_that_is_too_long_alone_is_refused(leap, small):
    small("a b c d")
    done = leap("chat", "-m", "some", stdin=f"{TURN}\n" + "word " * 50 + "\n")
    assert done.code == 5 and "line 2: the prompt has 53 tokens" in done.stderr


def test_compact_shortens_the_conversation_and_undo_restores_it(leap, small, talk):
    runner = small("one", "two", "In short: hi.", "three", "four")
    done = talk("hello", "again", "/compact", "third", "/undo", "fourth", "/stats")
    assert "the model no longer gets the first 2 messages, but a summary" in done.stderr
    assert "In short: hi." in done.stdout
    assert said(runner.requests[3])[0].endswith("In short: hi.]\n\nagain")
    assert said(runner.requests[4])[-1] == "fourth" and "in short" in said(runner.requests[4])[0]


def test_python_can_choose_what_happens():
    runner = ScriptedModelRunner(*["a b c d"] * 5, context_size=40)
    conversation = runner.create_conversation("Be brief.")
    conversation.on_overflow = "oldest"
    for _ in range(5):
        for _ in conversation.generate_response(TURN):
            pass
    assert len(conversation.history) == 11 and conversation.omission.messages > 0
    assert said(runner.requests[-1])[0] == "Be brief."

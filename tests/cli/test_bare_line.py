"""``leap`` without a command's name: a prompt that is piped, a saved prompt with what fills it in."""

from __future__ import annotations

import io

from leap_cli.framework.click_classes import _something_is_piped
from leap_cli.framework.environment import Environment


def test_piped_text_is_a_prompt(leap):
    runner = leap.script("Paris.")
    done = leap(stdin="What is the capital of France?\n")
    assert done.stdout == "Paris.\n"
    assert runner.requests[-1].messages[-1].text.strip() == "What is the capital of France?"


def test_checking_for_piped_text_consumes_none():
    pipe = io.BufferedReader(io.BytesIO(b"hello"))
    assert _something_is_piped(Environment(stdin=pipe)) and pipe.read() == b"hello"
    assert not _something_is_piped(Environment(stdin=io.BufferedReader(io.BytesIO())))
    assert not _something_is_piped(Environment(stdin=pipe, stdin_is_terminal=True))


def test_an_empty_pipe_and_a_terminal_show_help(leap):
    assert leap().stdout.startswith("Usage: leap")


def test_a_word_fills_in_a_saved_prompt(leap):
    assert leap("saved", "templates", "add", "capital", "What is the capital of {input}?").code == 0
    runner = leap.script("Rome.", "Paris.")
    assert leap("-t", "capital", "Italy").stdout == "Rome.\n"
    assert runner.requests[-1].messages[-1].text == "What is the capital of Italy?"
    mistyped = leap("--stats", "modles")
    assert mistyped.code == 2 and "models" in mistyped.stderr

"""Sessions and exports of the real program, with the built-in model."""

from __future__ import annotations

import json
import os
import signal

import pytest

from leap_core.conversation.messages import messages_from_json
from leap_core.conversation.sessions import SessionStore
from leap_core.opening import Leap

from .conftest import LONG, QUESTION


def test_an_export_is_continued_by_chat_batch_and_library(program, tmp_path, leap_home):
    assert program("chat", "--session", "talk", stdin=f"Hello.\n{QUESTION}\n").returncode == 0
    for format in ("openai", "jsonl"):
        assert program("export", "talk", "--format", format, "-o", f"{format}.json").returncode == 0
    with SessionStore(leap_home / "leap.db") as store:
        history = store.history(store.find("talk").id)
    assert len(history) == 4 and "Paris" in history[3].text
    done = program("chat", "--load", "jsonl.json", "--session", "again", stdin="And what is 2 plus 3?\n")
    assert done.returncode == 0, done.stderr
    with SessionStore(leap_home / "leap.db") as store:
        assert store.history(store.find("again").id)[:4] == history
    messages = messages_from_json(json.loads((tmp_path / "openai.json").read_text("utf-8")))
    with Leap.load("builtin") as runner:
        conversation = runner.create_conversation_from_history(messages[:3])
        assert conversation.history == history[:3]
        *_, complete = conversation.generate_response(None)
        assert "Paris" in complete.full_message.text
    asked = "".join(
        json.dumps({**json.loads(line), "max_tokens": 5}) + "\n"
        for line in (tmp_path / "jsonl.json").read_text("utf-8").splitlines()
    )
    done = program("batch", "-", "-m", "builtin", "--format", "plain", stdin=asked)
    assert done.returncode == 0 and json.loads(done.stdout)["custom_id"] == "line-1", done.stderr


def test_an_answered_job_is_exported(program):
    id = program("generate", "--background", "-m", "builtin", QUESTION).stdout.strip()
    assert program("jobs", "wait", id).returncode == 0
    done = program("export", id)
    program("jobs", "worker", "--shutdown")
    question, answer = json.loads(done.stdout)
    assert question == {"role": "user", "content": QUESTION} and "Paris" in answer["content"]


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_answer_keeps_its_question_and_the_session_continues(program, start, leap_home):
    process = start("generate", "-m", "builtin", "--session", "long", "--format", "jsonl", LONG)
    assert b"chunk" in process.stdout.readline()
    process.kill()
    process.wait()
    with SessionStore(leap_home / "leap.db") as store:
        assert [message.text for message in store.history(store.find("long").id)] == [LONG]
    done = program("generate", "-c", QUESTION)
    assert done.returncode == 0 and "Paris" in done.stdout, done.stderr
    with SessionStore(leap_home / "leap.db") as store:
        assert [message.text for message in store.history(store.find("long").id)][:2] == [LONG, QUESTION]


@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT")
def test_an_interrupted_answer_is_saved_as_far_as_it_was_generated(start, leap_home):
    process = start("generate", "-m", "builtin", "--save", "--format", "jsonl", LONG)
    assert b"chunk" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest = process.stdout.readlines()
    process.wait()
    said = json.loads(rest[-1])["message"]["content"]
    with SessionStore(leap_home / "leap.db") as store:
        latest = store.latest()
        assert latest is not None
        assert [message.text for message in store.history(latest.id)] == [LONG, said]


@pytest.mark.cold
@pytest.mark.skipif(os.name != "posix", reason="needs a limit on files")
def test_a_full_disk_loses_the_session_and_not_the_answer(program, shell):
    """A limit on the size of files is what a full disk is to SQLite: here as large as the memory it shares, 32 KiB, and
    a little more."""
    assert program("chat", "-m", "builtin", "--session", "x", stdin="Hello.\n").returncode == 0
    done = shell(f"trap '' XFSZ; ulimit -f 40; printf '{QUESTION}\\n' | leap chat -m builtin --session x")
    assert "Paris" in done.stdout
    assert done.returncode == 1 and "leap: warning: this conversation is not saved: " in done.stderr
    assert "free disk space" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.cold
@pytest.mark.skipif(os.name != "posix", reason="needs a limit on files")
@pytest.mark.parametrize("command", [f"printf '{QUESTION}\\n' | leap chat -m builtin", f"leap generate '{QUESTION}'"])
def test_a_disk_without_space_for_any_session_still_gives_the_answer(shell, command):
    done = shell(f"trap '' XFSZ; ulimit -f 4; {command} --session x")
    assert "Paris" in done.stdout
    assert done.returncode == 1 and "leap: warning: this conversation is not saved: " in done.stderr
    assert "Traceback" not in done.stderr

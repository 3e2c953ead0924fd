"""Conversations that are continued and kept by ``leap generate`` and ``leap chat``, on the scripted runner."""

from __future__ import annotations

import os
import stat

import pytest

from leap_core.conversation.messages import ChatMessage, LeapFunctionCall
from leap_core.conversation.responses import FunctionCalls
from leap_core.conversation.sessions import SessionStore
from leap_core.errors import LeapGenerationError


@pytest.fixture
def stored(leap):
    """The texts of each session, the one that was written to last first."""

    def read():
        with SessionStore(leap.home / "leap.db") as store:
            return [[message.text for message in store.history(session.id)] for session in store.list()]

    return read


def said(request):
    return [message.text for message in request.messages]


def test_generate_saves_nothing_by_default(leap, stored):
    leap.script("one")
    assert leap("generate", "-m", "some", "hello").code == 0
    assert not (leap.home / "leap.db").exists()
    leap.script("two")
    assert leap("generate", "-m", "some", "--save", "hello").stdout == "two\n"
    assert stored() == [["hello", "two"]]


def test_continue_uses_the_last_session_and_its_model(leap, stored):
    leap.script("Hello, Ada.")
    assert leap("chat", "-m", "some", "-s", "Be brief.", stdin="I am Ada.\n").code == 0
    runner = leap.script("Ada.")
    done = leap("generate", "-c", "Who am I?")
    assert (done.code, done.stdout, done.stderr) == (0, "Ada.\n", "")
    assert [reference for reference, _ in leap.loaded] == ["some", "some"]
    assert said(runner.requests[0]) == ["Be brief.", "I am Ada.", "Hello, Ada.", "Who am I?"]
    leap.script("Ada, still.")
    done = leap("chat", "-c", "--no-save", "-m", "other", stdin="And now?\n")
    assert (done.code, done.stdout, leap.loaded[-1][0]) == (0, "Ada, still.\n", "other")
    assert stored() == [["Be brief.", "I am Ada.", "Hello, Ada.", "Who am I?", "Ada."]]


def test_a_named_session_is_created_then_continued(leap, stored):
    leap.script("a")
    assert leap("generate", "-m", "some", "--session", "my work", "one").code == 0
    runner = leap.script("b")
    assert leap("generate", "-m", "some", "--session", "my work", "two").code == 0
    assert said(runner.requests[0]) == ["one", "a", "two"]
    leap.script("c")
    assert leap("chat", "-m", "some", "--session", "other", stdin="three\n").code == 0
    assert stored() == [["three", "c"], ["one", "a", "two", "b"]]


def test_another_system_prompt_replaces_the_first(leap, stored):
    leap.script("a")
    leap("chat", "-m", "some", "-s", "Be brief.", stdin="one\n")
    leap.script("b")
    leap("chat", "-c", "-s", "Be long.", stdin="two\n")
    assert stored() == [["Be long.", "one", "a", "two", "b"]]


def test_each_message_of_a_tool_call_is_saved(leap, stored):
    calls = FunctionCalls([LeapFunctionCall("calculate", {"expression": "6*7"}, "call_0")])
    leap.script([calls], "It is 42.")
    done = leap("generate", "-m", "some", "--save", "--tool", "calculate", "6 times 7?")
    assert (done.code, stored()) == (0, [["6 times 7?", "", "42", "It is 42."]])


def test_a_failed_question_is_saved_but_not_sent_again(leap, stored):
    leap.script([LeapGenerationError("broken")], "fine")
    assert leap("chat", "-m", "some", "--session", "x", stdin="one\n").code == 1
    assert stored() == [["one"]]
    runner = leap.script("fine")
    assert leap("chat", "--session", "x", stdin="two\n").code == 0
    assert said(runner.requests[0]) == ["two"]
    assert stored() == [["one", "two", "fine"]]


def test_a_repeated_question_is_saved_once(leap, stored):
    leap.script([LeapGenerationError("broken")], "fine")
    assert leap("chat", "-m", "some", stdin="one\none\n", stdin_terminal=True).code == 0
    assert stored() == [["one", "fine"]]


def test_no_save_and_the_configuration_disable_saving(leap):
    leap.script("a")
    assert leap("chat", "-m", "some", "--no-save", stdin="hi\n").code == 0
    leap.script("b")
    leap.home.mkdir(exist_ok=True)
    (leap.home / "config.toml").write_text("[options.chat]\nsave = false\n")
    assert leap("chat", "-m", "some", stdin="hi\n").code == 0
    (leap.home / "config.toml").unlink()
    leap.script("c")
    leap.variables["LEAP_CHAT_SAVE"] = "false"
    assert leap("chat", "-m", "some", stdin="hi\n").code == 0
    assert not (leap.home / "leap.db").exists()


def test_a_typed_flag_overrides_a_configured_one(leap, stored):
    leap.script("a")
    leap.variables["LEAP_GENERATE_CONTINUE"] = "true"
    assert leap("generate", "-m", "some", "--session", "x", "one").code == 0
    leap.variables = {"LEAP_GENERATE_SESSION": "y"}
    leap.script("b")
    assert leap("generate", "-m", "some", "-c", "two").code == 0
    assert stored() == [["one", "a", "two", "b"]]


def test_a_model_s_file_is_found_again_from_elsewhere(leap):
    (leap.home.parent / "mine.gguf").touch()
    leap.script("a")
    leap("chat", "-m", "mine.gguf", stdin="one\n")
    leap.script("b")
    leap("chat", "-c", stdin="two\n")
    assert [reference for reference, _ in leap.loaded] == ["mine.gguf", str(leap.home.parent / "mine.gguf")]


def test_a_prefix_of_an_id_does_not_create_a_new_session(leap):
    leap.script("a")
    leap("chat", "-m", "some", stdin="one\n")
    with SessionStore(leap.home / "leap.db") as store:
        (session,) = store.list()
    done = leap("generate", "-m", "some", "--session", session.id[:5], "two")
    assert (done.code, done.stdout) == (2, "") and f"the id of {session.id} begins so" in done.stderr
    leap.script("b")
    assert leap("generate", "-m", "some", "--session", session.id, "two").stdout == "b\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-c"], "there is no session to continue"),
        (["-c", "--session", "x"], "give one of them"),
        (["--session", ""], "'' cannot name a session"),
        (["--session", "two\nlines"], "cannot name a session"),
        (["--session", "x", "--background"], "--background cannot be combined with --session"),
    ],
)
def test_a_missing_session_is_a_usage_error(leap, args, message):
    leap.script("never")
    done = leap("generate", "-m", "some", *args, "hello")
    assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


def test_an_unusable_database_fails_commands_that_need_it_and_warns_others(leap):
    leap.home.mkdir()
    (leap.home / "leap.db").write_bytes(b"not a database, " * 100)
    leap.script("fine")
    done = leap("generate", "-m", "some", "--save", "hello")
    assert (done.code, done.stdout) == (1, "")
    assert "file is not a database (hint: move the file away" in done.stderr
    done = leap("chat", "-m", "some", stdin="hello\n")
    assert (done.code, done.stdout) == (0, "fine\n")
    assert done.stderr.startswith("leap: warning: this conversation is not saved: the file of sessions")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs a directory that refuses")
def test_an_unwritable_home_only_warns(leap):
    leap.home.mkdir()
    leap.home.chmod(stat.S_IRUSR | stat.S_IXUSR)
    leap.script("fine")
    done = leap("chat", "-m", "some", stdin="hello\n")
    leap.home.chmod(0o700)
    assert (done.code, done.stdout) == (0, "fine\n")
    assert "this conversation is not saved" in done.stderr


def test_an_answer_is_printed_when_its_session_was_removed_meanwhile(leap, stored):
    leap.script("a")
    leap("chat", "-m", "some", "--session", "x", stdin="one\n")
    runner = leap.script("b")
    start = runner.start

    def removing(*args):
        with SessionStore(leap.home / "leap.db") as store:
            store.remove(store.find("x").id)
        return start(*args)

    runner.start = removing
    done = leap("generate", "--session", "x", "two")
    assert (done.code, done.stdout) == (2, "b\n")
    assert done.stderr.count("there is no session") == 2 and stored() == []


def test_messages_of_another_process_survive_a_rewrite(leap, stored):
    runner = leap.script("a", "b")
    start = runner.start

    def adding(messages, *args):
        if len(messages) == 1 and messages[0].text == "one":
            with SessionStore(leap.home / "leap.db") as store:
                store.append(store.list()[0].id, ChatMessage("user", "from elsewhere"))
        return start(messages, *args)

    runner.start = adding
    done = leap("chat", "-m", "some", stdin="one\n/undo\ntwo\n", stdin_terminal=True)
    assert done.code == 0 and "this conversation is now kept as" in done.stderr
    assert stored() == [["two", "b"], ["one", "from elsewhere", "a"]]


def test_saved_messages_equal_the_sent_ones(leap):
    leap.script("a")
    leap("chat", "-m", "some", "-s", "s", stdin="one\n")
    with SessionStore(leap.home / "leap.db") as store:
        session = store.latest()
        assert session is not None and session.title == "one"
        assert store.history(session.id) == [
            ChatMessage("system", "s"),
            ChatMessage("user", "one"),
            ChatMessage("assistant", "a"),
        ]

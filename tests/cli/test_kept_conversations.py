"""Conversations of ``leap chat`` that are saved, loaded and exported at its prompt, on the scripted runner."""

from __future__ import annotations

import pytest

from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.sessions import SessionStore

from .test_slash_commands import JPEG, asked, errors


def test_save_names_the_session_and_load_returns_to_it(leap, talk, kept):
    leap.script("a")
    done = talk("one", "/save trip", "/save", "/load nothing-like-it")
    assert done.stdout == "a\nsaved as trip\nsaved as trip\n"
    assert errors(done)[0].startswith("there is no session 'nothing-like-it'")
    runner = leap.script("b", "c")
    talk("two", "/load trip", "three")
    assert asked(runner) == [["two"], ["one", "a", "three"]]
    assert kept() == [("user", "one"), ("assistant", "a"), ("user", "three"), ("assistant", "c")]
    with SessionStore(leap.home / "leap.db") as store:
        assert [session.messages for session in store.list()] == [4, 2], "the other session is as it was"


def test_save_starts_saving_an_unsaved_conversation(leap, talk, kept):
    leap.script("a", "b")
    done = talk("one", "/save", "/save late", "two", arguments=("--no-save",))
    assert errors(done) == ["this conversation is not being saved; /save NAME begins that"]
    assert [text for _, text in kept()] == ["one", "a", "two", "b"]


def test_without_saving_load_only_reads(leap, talk, kept):
    leap.script("a")
    talk("one", "/save trip")
    leap.script("b")
    done = talk("/load trip", "two", arguments=("--no-save",))
    assert done.stdout == "2 messages are loaded\nb\n"
    assert kept() == [("user", "one"), ("assistant", "a")]


def test_images_of_an_exported_page_are_files_beside_it(leap, talk):
    leap.script("a")
    (leap.home.parent / "cat.jpg").write_bytes(JPEG)
    talk("/attach cat.jpg", "one", "/export talk.md")
    page = (leap.home.parent / "talk.md").read_text("utf-8")
    (file,) = (leap.home.parent / "talk-media").iterdir()
    assert f"(<talk-media/{file.name}>)" in page and "data:" not in page and file.read_bytes() == JPEG


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_what_export_writes_load_reads(leap, talk, kept, suffix):
    first_runner = leap.script("a")
    (leap.home.parent / "cat.jpg").write_bytes(JPEG)
    first = talk(
        "/attach cat.jpg", "one", f"/export talk.{suffix}", f"/export talk.{suffix}", "/export talk", "/export"
    )
    assert errors(first) == [
        f"talk.{suffix} exists already; choose another name",
        "'talk' must end in .json, .jsonl or .md",
        "give a file that ends in .json, .jsonl or .md: /export FILE",
    ]
    runner = leap.script("b")
    talk(f"/load talk.{suffix}", "two")
    assert runner.requests[0].messages[0] == first_runner.requests[0].messages[0]
    assert kept() == [("user", "one"), ("assistant", "a"), ("user", "two"), ("assistant", "b")]
    runner = leap.script("c")
    talk("three", arguments=("--load", f"talk.{suffix}"))
    assert asked(runner)[0] == ["one", "a", "three"]
    with SessionStore(leap.home / "leap.db") as store:
        assert [session.messages for session in store.list()] == [4, 4, 2], "each begins a session of its own"


def test_export_writes_markdown(leap, talk):
    leap.script("**a**")
    talk("one", "/export talk.md")
    page = (leap.home.parent / "talk.md").read_text()
    assert page.startswith("# one\n") and "**a**" in page


def test_a_file_other_than_a_conversation_is_refused(leap, talk):
    (leap.home.parent / "bad.json").write_text('[{"role": "robot", "content": "x"}]')
    (leap.home.parent / "two.jsonl").write_text('{"messages": []}\n{"messages": []}\n')
    leap.script()
    bad, two = errors(talk("/load bad.json", "/load two.jsonl"))
    assert bad.startswith("bad.json: ") and "unknown role 'robot'" in bad
    assert two == "two.jsonl holds 2 conversations; give a file of one"


def test_clear_starts_a_new_session_with_the_same_system_prompt(leap, talk, kept):
    runner = leap.script("a", "b")
    talk("one", "/clear", "two", arguments=("-s", "Be brief."))
    with SessionStore(leap.home / "leap.db") as store:
        assert sorted(session.title for session in store.list()) == ["one", "two"]
    assert asked(runner) == [["Be brief.", "one"], ["Be brief.", "two"]]
    assert kept() == [("system", "Be brief."), ("user", "two"), ("assistant", "b")]


def test_a_chat_without_messages_creates_no_session(leap, talk, kept):
    leap.script()
    done = talk("/system Be brief.", "/stats", "/clear", "")
    assert kept() == [] and "saved as" not in done.stderr


def test_a_resumed_session_reports_its_unanswered_message(leap, talk):
    leap.script("a")
    talk("one")
    with SessionStore(leap.home / "leap.db") as store:
        store.append(store.latest().id, ChatMessage("user", "killed while this was answered"))
    runner = leap.script("b")
    done = talk("three", arguments=("-c",))
    assert "your last message got no answer: killed while this was answered\n" in done.stderr
    assert asked(runner)[-1] == ["one", "a", "three"]

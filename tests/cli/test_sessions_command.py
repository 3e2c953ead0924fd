"""``leap sessions``: kept conversations, found again and looked after."""

from __future__ import annotations

import json

import pytest

from leap_core.conversation.messages import ChatMessage, Image
from leap_core.conversation.sessions import SessionStore

FRANCE = [
    ChatMessage("system", "Be brief."),
    ChatMessage("user", "What is the capital of France?"),
    ChatMessage("assistant", "Paris."),
]


@pytest.fixture
def store(leap):
    with SessionStore(leap.home / "leap.db") as store:
        yield store


@pytest.fixture
def kept(store):
    """The ids of two sessions: one of France, and one called ``picture``."""
    ids = [store.create(model="builtin").id, store.create(name="picture").id]
    store.replace(ids[0], FRANCE)
    store.replace(ids[1], [ChatMessage("user", [Image(b"\xff\xd8\xff..."), *ChatMessage("user", "Who?").content])])
    return ids


def test_list_shows_the_last_one_first(leap, kept):
    done = leap("sessions", "list")
    heading, *rows = done.stdout.splitlines()
    assert (done.code, heading.split()) == (0, ["ID", "NAME", "MESSAGES", "AGE", "TITLE"])
    assert [row.split()[:3] for row in rows] == [[kept[1], "picture", "1"], [kept[0], "-", "3"]]
    assert rows[1].endswith("What is the capital of France?")
    (first, _) = json.loads(leap("sessions", "list", "--format", "json").stdout)
    assert list(first) == ["id", "name", "title", "model", "created", "updated", "messages"]
    assert leap("sessions", "list", "--format", "quiet", "--limit", "1").stdout == f"{kept[1]}\n"
    assert leap("sessions", "list", "--format", "human").stdout == done.stdout
    assert [json.loads(line)["id"] for line in leap("sessions", "list", "--format", "jsonl").stdout.splitlines()] == (
        kept[::-1]
    )


def test_an_empty_list_prints_a_note(leap):
    done = leap("sessions", "list")
    assert (done.code, done.stdout) == (0, "")
    assert done.stderr == "leap: there are no sessions; leap chat keeps what is said\n"
    assert leap("sessions", "list", "--format", "json").stdout == "[]\n"


def test_show_prints_the_messages(leap, kept):
    done = leap("sessions", "show", kept[0])
    assert done.stdout == (
        "# What is the capital of France?\n\n## System\n\nBe brief.\n\n"
        "## User\n\nWhat is the capital of France?\n\n## Assistant\n\nParis.\n"
    )
    assert "![picture](<6 B of jpg>)\n\nWho?" in leap("sessions", "show", "picture").stdout
    document = json.loads(leap("sessions", "show", kept[0], "--format", "json").stdout)
    assert document["model"] == "builtin" and document["messages"] == [each.to_json() for each in FRANCE]
    lines = leap("sessions", "show", kept[0], "--format", "jsonl").stdout.splitlines()
    assert [ChatMessage.from_json(json.loads(line)) for line in lines] == FRANCE
    assert leap("sessions", "show", "picture", "--format", "quiet").stdout == f"{kept[1]}\n"


def test_search_finds_the_message(leap, kept):
    done = leap("sessions", "search", "capital", "fran")
    assert done.stdout.splitlines()[1].split()[:3] == [kept[0], "-", "user"]
    assert leap("sessions", "search", "capital", "--format", "quiet").stdout == f"{kept[0]}\n"
    (found,) = json.loads(leap("sessions", "search", "paris", "--format", "json").stdout)
    assert (found["id"], found["role"], found["snippet"]) == (kept[0], "assistant", "Paris.")
    done = leap("sessions", "search", "Rome")
    assert (done.code, done.stdout, done.stderr) == (0, "", "leap: no message has these words\n")


def test_rename_sets_and_clears_a_name(leap, kept):
    assert leap("sessions", "rename", kept[0], "france", "--format", "quiet").stdout == f"{kept[0]}\n"
    assert json.loads(leap("sessions", "show", "france", "--format", "json").stdout)["id"] == kept[0]
    done = leap("sessions", "rename", "france", "picture")
    assert (done.code, done.stdout) == (2, "") and f"the session {kept[1]} is called 'picture' already" in done.stderr
    assert leap("sessions", "rename", "france", "").code == 0
    assert leap("sessions", "show", "france").code == 2


def test_remove_deletes_all_or_none(leap, kept, store):
    done = leap("sessions", "remove", kept[0], "nothing")
    assert (done.code, done.stdout) == (2, "") and "there is no session 'nothing'" in done.stderr
    assert len(store.list()) == 2
    assert (
        leap("sessions", "remove", "picture", kept[0], kept[0], "--format", "quiet").stdout == f"{kept[1]}\n{kept[0]}\n"
    )
    assert store.list() == []


def test_prune_deletes_old_unnamed_sessions(leap, kept, store):
    assert leap("sessions", "prune", "--older-than", "1h").stdout == ""
    assert leap("sessions", "prune", "--older-than", "0s", "--yes", "--format", "quiet").stdout == f"{kept[0]}\n"
    done = leap("sessions", "prune", "--older-than", "0s", "--named", "--yes", "--format", "quiet")
    assert done.stdout == f"{kept[1]}\n"
    done = leap("sessions", "prune")
    assert (done.code, done.stdout) == (2, "") and "--older-than" in done.stderr


@pytest.mark.parametrize("verb", ["show", "remove", "rename"])
@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("pictur", "there is no session 'pictur' (hint: did you mean picture? leap sessions list shows them)"),
        ("", "''"),
    ],
)
def test_an_unknown_reference_is_a_one_line_error(leap, kept, verb, reference, message):
    done = leap("sessions", verb, reference, *(["x"] if verb == "rename" else []))
    assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


def test_an_ambiguous_reference_lists_the_candidates(leap, kept, store):
    store.connection.execute("PRAGMA foreign_keys=OFF")
    store.connection.execute("UPDATE sessions SET id=? WHERE id=?", (kept[0][:4] + "zzzz", kept[1]))
    done = leap("sessions", "show", kept[0][:4])
    assert done.code == 2 and f"several sessions begin with '{kept[0][:4]}': " in done.stderr


def test_prune_asks_at_a_terminal_and_needs_yes_in_a_script(leap, kept, store):
    prune = ("sessions", "prune", "--older-than", "0s")
    done = leap(*prune)
    assert done.code == 2 and "1 session would be removed: give --yes" in done.stderr
    done = leap(*prune, "--dry-run", "--format", "quiet")
    assert (done.code, done.stdout) == (0, f"{kept[0]}\n") and "1 session would be removed" in done.stderr
    done = leap(*prune, stdin="n\n", terminal=True, stdin_terminal=True)
    assert done.code == 0 and "remove 1 session? [y/N]" in done.stderr and "nothing was removed" in done.stderr
    done = leap(*prune, "--format", "quiet", stdin="y\n", terminal=True, stdin_terminal=True)
    assert (done.code, done.stdout) == (0, f"{kept[0]}\n")


def test_prune_refuses_a_time_without_a_unit(leap, kept):
    done = leap("sessions", "prune", "--older-than", "30", "--yes")
    assert done.code == 2 and "30 has no unit: write 30s" in done.stderr


def test_a_damaged_session_is_reported_and_skipped(leap, kept, store):
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(store.path)) as database:
        database.execute("UPDATE sessions SET updated='soon', title=x'ff00' WHERE id=?", (kept[0],))
        database.execute("UPDATE messages SET value='{half' WHERE session=?", (kept[1],))
        database.commit()
    done = leap("sessions", "list", "--format", "quiet")
    assert (done.code, done.stdout) == (0, f"{kept[1]}\n") and f"{kept[0]} is damaged" in done.stderr
    done = leap("sessions", "show", kept[1])
    assert done.code == 2 and "is damaged: its message 1 cannot be read" in done.stderr and done.stderr.count("\n") == 1
    assert leap("sessions", "remove", kept[0]).code == 0
    assert leap("sessions", "list").stderr == ""

"""Kept conversations: nothing that was written is lost, and a reference leads to one session or to a clear error."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from leap_core.conversation.media.wav import wav_from_samples
from leap_core.conversation.messages import AudioPcmF32, ChatMessage, ChatMessageContent, Image, LeapFunctionCall
from leap_core.conversation.sessions import SCHEMA, UNMARKED, Mark, SessionStore
from leap_core.errors import LeapError, LeapSessionError

USER = ChatMessage("user", "What is the capital of France?")
ASSISTANT = ChatMessage("assistant", "Paris is.")


@pytest.fixture
def store(tmp_path):
    with SessionStore(tmp_path / "data" / "leap.db") as store:
        yield store


def begun(store: SessionStore, *messages: ChatMessage, name: str | None = None) -> str:
    id = store.create(name=name).id
    for message in messages:
        store.append(id, message)
    return id


def test_saved_messages_are_read_back_equal(store):
    history = [
        ChatMessage("system", ""),
        ChatMessage("user", [ChatMessageContent.Text("Wer ist das?\0\n"), Image(b"\xff\xd8\xff picture")]),
        ChatMessage("user", [ChatMessageContent.Audio(wav_from_samples([0.5, -0.5], 16000))]),
        ChatMessage("user", [AudioPcmF32((0.25, -1.0), 24000)]),
        ChatMessage("assistant", (), "Hm…", [LeapFunctionCall("look_up", {"name": "日本"}, "call_7")]),
        ChatMessage("tool", "", tool_call_id="call_7"),
        ChatMessage("assistant", "a lone \ud800 surrogate"),
    ]
    session = store.create(model="builtin", name="people")
    for message in history:
        store.append(session.id, message)
    assert store.history(session.id) == history
    found = store.find("people")
    assert (found.id, found.model, found.title, found.messages) == (session.id, "builtin", "Wer ist das?", 7)
    assert store.search("surrogate")[0].session == found
    store.replace(session.id, history[4:])
    assert store.history(session.id) == history[4:]
    assert store.find("people").title == ""
    assert store.search("Wer ist") == []


def test_marks_of_unchanged_messages_are_kept(store):
    yes, no = ChatMessage("assistant", "Yes."), ChatMessage("assistant", "No.")
    id = begun(store, USER)
    with pytest.raises(LeapSessionError, match="no answer yet"):
        store.rate(id, "good")
    for message, mark in ((yes, Mark("stop", "bad")), (USER, UNMARKED), (yes, Mark("stop"))):
        store.append(id, message, mark)
    store.rate(id, "good")
    assert store.marks(id) == [UNMARKED, Mark("stop", "bad"), UNMARKED, Mark("stop", "good")]
    store.replace(id, [ChatMessage("system", "Be brief."), USER, yes, USER, yes, USER, no], answered=Mark("max_tokens"))
    marks = [UNMARKED, UNMARKED, Mark("stop", "bad"), UNMARKED, Mark("stop", "good"), UNMARKED, Mark("max_tokens")]
    assert store.marks(id) == marks
    store.rate(id, None)
    assert store.marks(id) == marks


def test_an_answer_without_a_mark_gets_none_when_others_change(store):
    id = begun(store, USER)
    old, new = ChatMessage("assistant", "Of an older leap."), ChatMessage("assistant", "New.")
    store.append(id, old)
    store.replace(id, [USER, old, USER, new], answered=Mark("stop"))
    assert store.marks(id) == [UNMARKED, UNMARKED, UNMARKED, Mark("stop")]


def test_the_name_of_a_model_need_not_be_valid_unicode(store):
    id = store.create(model=os.fsdecode(b"/caf\xe9/m.gguf")).id
    assert store.get(id).model == r"/caf\udce9/m.gguf"


def test_a_reference_is_a_name_or_the_beginning_of_an_id(store):
    first, second = begun(store, USER), begun(store, name="second")
    assert store.find(first).id == first
    assert store.find("second").id == second == store.named("second").id
    assert store.named(first).id == first
    length = next(n for n in range(1, 9) if first[:n] != second[:n])
    assert store.find(first[:length]).id == first
    if length > 1:
        with pytest.raises(LeapSessionError, match="several sessions begin"):
            store.find(first[: length - 1])
    for unknown in ("", "sec*", "0", "nothing"):
        with pytest.raises(LeapSessionError, match="there is no session"):
            store.find(unknown)
    with pytest.raises(LeapSessionError) as told:
        store.find("secnd")
    assert "did you mean second?" in (told.value.hint or "")


def test_an_ambiguous_beginning_names_the_candidates(store):
    first = begun(store)
    twin = first[:5] + "abc" if first[5:] != "abc" else first[:5] + "abd"
    store.connection.execute("UPDATE sessions SET id=? WHERE id=?", (twin, begun(store)))
    with pytest.raises(LeapSessionError, match="several sessions begin with") as told:
        store.find(first[:5])
    assert first in told.value.message and twin in told.value.message


def test_names_are_unique_and_fit_a_line(store):
    id = begun(store, name="work")
    for wrong in ("", "  ", "-x", "two\nlines", "x" * 101, "work", id):
        with pytest.raises(LeapSessionError):
            store.create(name=wrong)
    store.rename(id, "work")
    store.rename(id, "my work")
    assert store.find("my work").id == id and store.get("work") is None
    store.rename(id, None)
    assert store.find(id).name is None and len(store.list()) == 1


def test_a_removed_session_cannot_be_written_to(store):
    id = begun(store, USER, ASSISTANT)
    store.remove(id)
    assert store.list() == [] and store.search("Paris") == [] and store.latest() is None
    for attempt in (
        lambda: store.append(id, USER),
        lambda: store.replace(id, [USER]),
        lambda: store.history(id),
        lambda: store.rename(id, "x"),
        lambda: store.remove(id),
    ):
        with pytest.raises(LeapSessionError, match=f"there is no session '{id}'"):
            attempt()


def test_the_latest_session_is_the_last_written_whatever_the_clock(store):
    first, second = begun(store, USER), begun(store, USER)
    assert [each.id for each in store.list()] == [second, first]
    store.connection.execute("UPDATE sessions SET updated=updated + 1000 WHERE id=?", (second,))
    store.append(first, ASSISTANT)
    latest = store.latest()
    assert latest is not None and latest.id == first
    assert [each.id for each in store.list(limit=1)] == [first]


def test_search_finds_words_their_beginnings_and_text_without_spaces(store):
    id = begun(store, USER, ASSISTANT, ChatMessage("user", "フランスの首都はパリです。 100% sure? «Été»"))
    begun(store, ChatMessage("user", "Nothing of that."))

    def found(text: str) -> list[tuple[str, str]]:
        return [(each.session.id, each.role) for each in store.search(text)]

    assert found("PARIS") == [(id, "assistant")]
    assert found("capital of fra") == [(id, "user")]
    assert found("首都") == found("0% s") == found("ete") == [(id, "user")]
    assert found('par" OR') == found("") == found("?!") == found("par\0xyz") == []
    assert "Paris is." in store.search("paris")[0].snippet


def test_pruning_removes_old_sessions_and_keeps_named_ones(store):
    old, named, new = begun(store, USER), begun(store, USER, name="kept"), begun(store, USER)
    store.connection.execute("UPDATE sessions SET updated=updated - 100 WHERE id IN (?, ?)", (old, named))
    assert [each.id for each in store.prune(50)] == [old]
    assert [each.id for each in store.prune(50, named=True)] == [named]
    assert [each.id for each in store.list()] == [new]
    assert [each.session.id for each in store.search("capital")] == [new]


def test_the_file_is_private(store):
    if os.name == "posix":
        assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


def test_an_existing_directory_keeps_its_permissions(tmp_path):
    tmp_path.chmod(0o755)
    with SessionStore(tmp_path / "leap.db"):
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.parametrize("version", [SCHEMA.version - 1, SCHEMA.version + 1])
def test_a_file_of_another_version_is_refused_and_unchanged(tmp_path, version):
    path = tmp_path / "data" / "leap.db"
    with SessionStore(path) as store:
        begun(store, USER)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version={version}")
    with pytest.raises(LeapError, match=f"is of version {version}, and this leap keeps version {SCHEMA.version}"):
        SessionStore(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM messages").fetchone() == (1,)


def test_a_damaged_file_and_a_full_disk_are_one_line_errors(tmp_path, store):
    path = tmp_path / "damaged" / "leap.db"
    path.parent.mkdir()
    path.write_bytes(b"not a database, " * 100)
    with pytest.raises(LeapError, match=r"the file of sessions .*leap\.db cannot be used: file is not a database"):
        SessionStore(path)
    id = begun(store, USER)
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
    store.connection.execute(f"PRAGMA max_page_count={pages}").close()
    for write in (
        lambda: store.append(id, ChatMessage("assistant", "x" * 200_000)),
        lambda: store.replace(id, [ChatMessage("assistant", "x" * 200_000)]),
    ):
        with pytest.raises(LeapError, match="full") as told:
            write()
        assert "free disk space" in (told.value.hint or "")
        assert store.history(id) == [USER]
    store.connection.execute("PRAGMA max_page_count=100000").close()
    store.append(id, ASSISTANT)
    assert store.history(id) == [USER, ASSISTANT]


WRITER = """
import sys
from pathlib import Path
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.sessions import SessionStore

with SessionStore(Path(sys.argv[1])) as store:
    id = store.named("together").id
    for n in range(int(sys.argv[3])):
        store.append(id, ChatMessage("user", f"{sys.argv[2]} {n}"))
        print(n, flush=True)
"""


def writer(path: os.PathLike[str], name: str, messages: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(messages)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_two_processes_can_write_to_one_new_session_concurrently(tmp_path):
    path = tmp_path / "data" / "leap.db"
    writers = [writer(path, name, 40) for name in ("one", "two")]
    for each in writers:
        assert each.communicate(timeout=120) and each.returncode == 0
    with SessionStore(path) as store:
        texts = [message.text for message in store.history(store.find("together").id)]
    for name in ("one", "two"):
        assert [text for text in texts if text.startswith(name)] == [f"{name} {n}" for n in range(40)]
    assert len(texts) == 80


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_process_killed_while_writing_loses_no_earlier_message(tmp_path):
    path = tmp_path / "data" / "leap.db"
    with writer(path, "killed", 100_000) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(30)]
        process.send_signal(signal.SIGKILL)
        told += process.stdout.readlines()
    written = sum(line.endswith("\n") for line in told)
    with SessionStore(path) as store:
        texts = [message.text for message in store.history(store.find("together").id)]
        assert texts == [f"killed {n}" for n in range(len(texts))]
        assert written <= len(texts) <= written + 1
        store.append(store.find("together").id, ASSISTANT)
        assert len(store.search("killed")) > 0


def test_threads_share_a_store(store):
    id = begun(store)

    def say(n: int) -> None:
        for m in range(20):
            store.append(id, ChatMessage("user", f"{n}.{m}"))

    threads = [threading.Thread(target=say, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.history(id)) == 80


def test_a_session_is_json(store):
    session = store.find(begun(store, USER, name="x"))
    value = json.loads(json.dumps(session.to_json()))
    assert list(value) == ["id", "name", "title", "model", "created", "updated", "messages"]
    assert (value["title"], session.label) == (USER.text, "x")

"""``leap export``: what it writes is what ``leap chat --load``, ``leap batch`` and the library read back."""

from __future__ import annotations

import json

import pytest

from jobs.table.job import Claim, Ending, NewJob, State
from jobs.table.table import Table
from leap_core.conversation.media.wav import wav_from_samples
from leap_core.conversation.messages import (
    AudioPcmF32,
    ChatMessage,
    ChatMessageContent,
    Image,
    LeapFunctionCall,
    messages_from_json,
)
from leap_core.conversation.sessions import SessionStore
from leap_core.conversation.transcripts import to_json, to_jsonl
from leap_core.testing import ScriptedModelRunner

HISTORY = [
    ChatMessage("system", "Be brief."),
    ChatMessage(
        "user",
        [
            ChatMessageContent.Text("Wo ist das?"),
            Image(b"\xff\xd8\xff picture"),
            ChatMessageContent.Audio(wav_from_samples([0.5, -0.5], 16000)),
            AudioPcmF32((0.25, -1.0), 24000),
        ],
    ),
    ChatMessage("assistant", (), "Hm…", [LeapFunctionCall("look_up", {"name": "日本"}, "call_7")]),
    ChatMessage("tool", "Japan", tool_call_id="call_7"),
    ChatMessage("assistant", "It is Japan."),
]


@pytest.fixture
def kept(leap):
    """The id of a session called ``japan``."""
    with SessionStore(leap.home / "leap.db") as store:
        id = store.create(name="japan").id
        store.replace(id, HISTORY)
        return id


def job_of(leap, kind: str = "generate", state: State | None = State.SUCCEEDED) -> str:
    messages = [message.to_json() for message in HISTORY[:2]]
    with Table(leap.home / "jobs.db") as table:
        (id,) = table.add([NewJob(kind, {"label": "Wo ist das?", "messages": messages})])
        if state is not None:
            table.claim(id, 1, "me")
            answer = {"message": HISTORY[4].to_json()} if state is State.SUCCEEDED else None
            table.finish(Claim(id, 1, "me"), Ending(state, answer))
    return id


@pytest.mark.parametrize("format", ["openai", "jsonl"])
@pytest.mark.parametrize("media", [False, True])
def test_an_export_is_read_back_equal_everywhere(leap, kept, tmp_path, format, media):
    file = tmp_path / "out" / "japan.json"
    file.parent.mkdir()
    flags = ["--option", "media-dir=out/media"] if media else []
    done = leap("export", "japan", "--format", format, "-o", str(file), *flags)
    assert (done.code, done.stdout, done.stderr) == (0, "", "")
    assert ("base64" in file.read_text("utf-8")) is not media
    runner = leap.script("Yes.")
    done = leap("chat", "-m", "some", "--session", "again", "--load", str(file), stdin="Really?\n")
    assert (done.code, done.stdout) == (0, "Yes.\n"), done.stderr
    assert list(runner.requests[0].messages) == [*HISTORY, ChatMessage("user", "Really?")]
    with SessionStore(leap.home / "leap.db") as store:
        assert store.history(store.find("again").id)[:-2] == HISTORY
    if media:
        return
    if format == "openai":
        with ScriptedModelRunner() as again:
            history = messages_from_json(json.loads(file.read_text("utf-8")))
            assert again.create_conversation_from_history(history).history == HISTORY
    else:
        runner = leap.script("Yes.")
        done = leap("batch", str(file), "-m", "builtin", "-o", str(tmp_path / "answers.jsonl"))
        assert done.code == 0, done.stderr
        assert list(runner.requests[0].messages) == HISTORY[:2]  # the question is asked again


def test_several_sessions_are_several_lines(leap, kept):
    done = leap("export", kept[:7], "japan", "--format", "jsonl")
    assert done.stdout == to_jsonl(HISTORY) * 2
    done = leap("export", "japan", "japan")
    assert (done.code, done.stdout) == (2, "") and "these are 2 conversations" in done.stderr


def test_json_from_standard_input_is_rewritten(leap):
    assert leap("export", "-", stdin=to_jsonl(HISTORY)).stdout == to_json(HISTORY)
    assert leap("export", "-", "--format", "jsonl", stdin=to_json(HISTORY)).stdout == to_jsonl(HISTORY)
    page = leap("export", "-", "--format", "markdown", stdin=to_json(HISTORY)).stdout
    assert page.startswith("# Wo ist das?\n\n## System\n") and page.endswith("## Assistant\n\nIt is Japan.\n")
    done = leap("export", "-", stdin="hello")
    assert (done.code, done.stdout) == (2, "") and "standard input: not JSON" in done.stderr


def test_markdown_names_the_files_beside_it(leap, kept, tmp_path):
    done = leap("export", "japan", "--format", "markdown", "--option", "media-dir=media", "-o", "japan.md")
    page = (tmp_path / "japan.md").read_text("utf-8")
    assert done.code == 0 and page.startswith("# japan\n") and page.count("](<media/") == 3
    names = {file.name for file in (tmp_path / "media").iterdir()}
    assert len(names) == 3 and all(name in page for name in names)


def test_a_job_is_a_conversation_when_it_has_answered(leap):
    id = job_of(leap)
    done = leap("export", id[:7])
    assert messages_from_json(json.loads(done.stdout)) == [*HISTORY[:2], HISTORY[4]]
    done = leap("export", job_of(leap, state=None))
    assert (done.code, done.stdout) == (8, "") and "is queued and has no answer" in done.stderr
    done = leap("export", job_of(leap, kind="batch"))
    assert done.code == 2 and "is a batch, and only leap generate's are conversations" in done.stderr


def test_an_ambiguous_id_of_job_and_session_is_an_error(leap, kept):
    job = job_of(leap)
    with SessionStore(leap.home / "leap.db") as store:
        store.rename(kept, job)
    done = leap("export", job)
    assert (done.code, done.stdout) == (2, "")
    assert f"may be several: session {kept}, job {job}" in done.stderr


@pytest.mark.parametrize("reference", ["nothing", "", "a" * 200])
def test_an_unknown_id_is_a_one_line_error_and_creates_nothing(leap, reference):
    done = leap("export", reference)
    assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"there is no session or job '{reference}'" in done.stderr
    assert not (leap.home / "leap.db").exists() and not (leap.home / "jobs.db").exists()


def test_a_file_that_cannot_be_written_leaves_the_text_on_standard_output(leap, kept, tmp_path):
    done = leap("export", "japan", "-o", "nowhere/japan.json")
    assert (done.code, done.stdout) == (2, "") and "there is no directory" in done.stderr
    (tmp_path / "old.json").write_text("old")
    done = leap("export", "nothing", "-o", "old.json")
    assert done.code == 2 and (tmp_path / "old.json").read_text() == "old"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "expected an array of messages"),
        (to_jsonl(HISTORY) * 2, "holds 2 conversations"),
        ("[{]", "not JSON"),
    ],
)
def test_a_file_other_than_a_conversation_is_not_loaded(leap, tmp_path, text, message):
    (tmp_path / "it.json").write_text(text, "utf-8")
    leap.script("never")
    done = leap("chat", "-m", "some", "--load", "it.json", stdin="hello\n")
    assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "it.json" in done.stderr and message in done.stderr

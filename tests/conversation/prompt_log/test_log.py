"""The database of the log, and the runner that writes to it."""

from __future__ import annotations

import inspect
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from leap_core import __version__
from leap_core.conversation.logged_runner import LoggedRunner, LogWriter
from leap_core.conversation.messages import ChatMessage, Image, LeapFunctionCall, Text
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.prompt_log import Entry, PromptLog, canonical, documents, entry_of, forms_of
from leap_core.conversation.request import Request
from leap_core.conversation.responses import Chunk, FunctionCalls, ReasoningChunk
from leap_core.conversation.runner import ModelRunner, PassingRunner
from leap_core.errors import LeapGenerationError
from leap_core.testing import ScriptedModelRunner, Stall

PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
BUILT_ON_OTHERS = {
    *("create_conversation", "create_conversation_from_history", "generate_from_conversation"),
    *("hidden_states_async", "unload_async"),
}
"""Methods of the contract that call those that every runner has."""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "data" / "log.db"


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def logged(file, warnings):
    """A scripted runner whose prompts are logged."""

    def make(*scripts: object, is_on=lambda: True) -> LoggedRunner:
        return LoggedRunner(ScriptedModelRunner(*scripts), LogWriter(file, is_on, warnings.append), "generate")

    return make


def entries(file) -> list[Entry]:
    with PromptLog(file) as log:
        return list(reversed(log.entries()))


def test_prompts_and_answers_are_logged_when_the_model_is_unloaded(logged, file):
    call = LeapFunctionCall("look", {"at": "it"})
    runner = logged([ReasoningChunk("hm"), "Well", FunctionCalls((call,))], "4")
    picture = Image(b"\xff\xd8\xff\xe0" + bytes(64))
    history = [ChatMessage("system", "Be brief."), ChatMessage("user", "1"), ChatMessage("assistant", "one")]
    question = ChatMessage("user", [picture, Text("And this?")])
    with runner:
        list(runner.start([*history, question], (), GenerationOptions(temperature=0.5, stop=["END"])))
        list(runner.start_text("2+2="))
    first, second = entries(file)
    assert (first.id, first.command, first.prompt, first.system) == (1, "generate", "[image]\nAnd this?", "Be brief.")
    assert first.made_by == {"leap": __version__}, "a scripted model has no weights"
    assert (first.turns, first.answer, first.reasoning, first.finish) == (2, "Well", "hm", "stop")
    assert [each["name"] for each in first.calls] == ["look"] and first.options == {"temperature": 0.5, "stop": ["END"]}
    assert (second.prompt, second.answer, second.answer_tokens) == ("2+2=", "4", 1)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_failures_and_cancelled_answers_are_logged(logged, file):
    with logged(["half", LeapGenerationError("broken")], ["one", "two", Stall()]) as runner:
        with pytest.raises(LeapGenerationError, match="broken"):
            list(runner.start([ChatMessage("user", "a")]))
        generation = runner.start([ChatMessage("user", "b")])
        assert next(generation) == Chunk("one")
        generation.close()
        generation.close()
        with pytest.raises(LeapGenerationError):
            runner.unload()
            runner.start([ChatMessage("user", "c")])
    assert [(each.prompt, each.answer, each.error) for each in entries(file)][:2] == [
        ("a", "", "broken"),
        ("b", "one", "given up before its end"),
    ]


def test_nothing_is_written_while_the_log_is_off(logged, file):
    on = []
    with logged("a", "b", is_on=lambda: bool(on)) as runner:
        list(runner.start([ChatMessage("user", "one")]))
        assert not file.exists()
        on.append(True)
        list(runner.start([ChatMessage("user", "two")]))
    assert [each.prompt for each in entries(file)] == ["two"]


def test_an_unwritable_log_prevents_no_answer_and_is_reported_once(logged, file, warnings):
    file.mkdir(parents=True)
    with logged("a", "b") as runner:
        answers = [list(runner.start([ChatMessage("user", "x")]))[0] for _ in range(2)]
    assert answers == [Chunk("a"), Chunk("b")]
    assert len(warnings) == 1 and warnings[0].startswith("2 prompts are not in the log: the log of prompts ")


def test_an_entry_that_cannot_be_stored_does_not_prevent_others(logged, file, warnings, monkeypatch):
    add = PromptLog.add
    monkeypatch.setattr(PromptLog, "add", lambda log, entry: add(log, entry) if entry.prompt == "y" else 1 / 0)
    with logged("a", "b") as runner:
        for prompt in ("x", "y"):
            list(runner.start([ChatMessage("user", prompt)]))
    assert [each.prompt for each in entries(file)] == ["y"]
    assert warnings == ["this prompt is not in the log: division by zero"]


def test_all_else_is_passed_to_the_wrapped_runner(logged):
    contract = {name for name, _ in inspect.getmembers(ModelRunner) if not name.startswith("_")}
    assert contract - BUILT_ON_OTHERS - set(vars(LoggedRunner)) - set(vars(PassingRunner)) == set()
    runner = logged("Paris.")
    assert (runner.model_id, runner.context_size, runner.speaks) == ("scripted", 4096, False)
    conversation = runner.create_conversation("S")
    assert [type(each).__name__ for each in conversation.generate_response("x")] == ["Chunk", "Complete"]
    assert runner.get_prompt_tokens_size([ChatMessage("user", "a b")]) > 0 and runner.render("a b").tokens > 0
    runner.unload()


def test_stop_is_passed_to_the_wrapped_generation(logged, file):
    stall = Stall()
    with logged(["one", stall, "two"]) as runner:
        generation = runner.start([ChatMessage("user", "x")])
        next(generation)
        threading.Thread(target=lambda: (stall.reached.wait(60), generation.stop())).start()
        assert list(generation)[-1].finish_reason.value == "interrupted"
    assert [each.finish for each in entries(file)] == ["interrupted"]


def test_many_threads_and_logs_at_once_lose_nothing(logged, file):
    runners = [logged(*["ok"] * 25) for _ in range(3)]

    def ask(runner, n):
        for index in range(25):
            list(runner.start([ChatMessage("user", f"{n}-{index}")]))
        runner.unload()

    threads = [threading.Thread(target=ask, args=(runner, n)) for n, runner in enumerate(runners)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    prompts = [each.prompt for each in entries(file)]
    assert sorted(prompts) == sorted(f"{n}-{index}" for n in range(3) for index in range(25))
    for n in range(3):
        own = [prompt for prompt in prompts if prompt.startswith(f"{n}-")]
        assert own == [f"{n}-{index}" for index in range(25)]


def fill(file, *rows: dict[str, object]) -> None:
    with PromptLog(file) as log:
        for row in rows:
            log.add(Entry(**{"command": "generate", "model": "builtin", "prompt": "", "finish": "stop", **row}))


def test_entries_are_found_by_model_time_and_words(file):
    now = time.time()
    fill(
        file,
        {"prompt": "The café is open", "asked": now - 1000},
        {"prompt": "b", "answer": "closed 50%", "model": "LFM2-350M-Q4_0"},
        {"prompt": "\udcff odd", "answer": '"quoted" AND (x'},
    )
    with PromptLog(file) as log:
        assert [each.id for each in log.entries(limit=2)] == [3, 2]
        assert [each.id for each in log.entries(model="lfm2-350m")] == [2]
        assert [each.id for each in log.entries(since=now - 10)] == [3, 2]
        assert [each.entry.id for each in log.search("CAFE op")] == [1]
        assert [each.entry.id for each in log.search("0%")] == [2] and log.search("0%")[0].snippet == "b\nclosed 50%"
        assert [each.entry.id for each in log.search('"quoted" AND (')] == [3]
        assert log.search("café", model="LFM") == [] and log.search("nowhere") == log.search(" ") == []
        assert log.get().id == 3 and log.get(1).prompt == "The café is open" and log.get(9) is None


def test_json_answers_of_a_schema_come_oldest_first(file):
    other = canonical({"type": "string"})
    listed = canonical({"type": "array", "items": PERSON})
    fill(
        file,
        {"answer": '{"name": "Ann"}', "schema": canonical(PERSON)},
        {"answer": '[{"name": "Bob"}, {"name": "Cy"}]', "schema": listed},
        {"answer": '"x"', "schema": other},
        {"answer": '{"name": "Du', "schema": canonical(PERSON), "finish": "max_tokens"},
        {"answer": "no document"},
    )
    with PromptLog(file) as log:
        names = [each["name"] for each in documents(log, forms_of(PERSON))]
        assert names == ["Ann", "Bob", "Cy"]
        assert [each["name"] for each in documents(log, forms_of(PERSON), limit=2)] == ["Bob", "Cy"]
        assert len(list(documents(log, None))) == 3
        assert list(documents(log, forms_of({"type": "integer"}))) == []


def test_cleared_entries_are_erased_from_the_file(file):
    fill(file, {"prompt": "a secret word", "asked": time.time() - 1000}, {"prompt": "another"})
    with PromptLog(file) as log:
        assert log.clear(time.time() - 500) == 1
        assert [each.prompt for each in log.entries()] == ["another"] and log.search("secret") == []
        assert log.clear() == 1 and log.count() == 0
    whole = b"".join(path.read_bytes() for path in file.parent.iterdir())
    assert b"secret" not in whole and b"another" not in whole
    fill(file, {"prompt": "new"})
    with PromptLog(file) as log:
        assert log.get().id == 3  # a number is never another entry's


def test_the_entry_after_a_tool_result_has_it_as_the_prompt(file):
    messages = [
        ChatMessage("user", "6*7?"),
        ChatMessage("assistant", "", None, [LeapFunctionCall("calculate", {"expression": "6*7"})]),
        ChatMessage("tool", "42"),
    ]
    entry = entry_of("chat", "m", Request(messages))
    assert (entry.prompt, entry.turns, entry.system) == ("42", 2, None)


def test_a_killed_writer_leaves_an_intact_file(file):
    fill(file, {"prompt": "whole"})
    code = (
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('BEGIN IMMEDIATE')\n"
        "connection.execute('DELETE FROM entries')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(file)], check=False).returncode == -9
    fill(file, {"prompt": "after"})
    assert [each.prompt for each in entries(file)] == ["whole", "after"]
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)

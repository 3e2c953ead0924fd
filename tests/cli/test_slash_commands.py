"""The commands that are typed at the prompt of ``leap chat``, on the scripted runner; and what TAB offers there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image as pillow

from leap_cli.chat.slash_commands import COMMANDS, suggest
from leap_core.conversation.messages import Audio, ChatMessage, Image, Text
from leap_core.conversation.sessions import Mark, SessionStore
from leap_core.errors import LeapGenerationError, LeapModelNotFoundError
from leap_core.testing import ScriptedModelRunner

ROOT = Path(__file__).parent.parent.parent
JPEG = Image.from_pil_image(pillow.new("RGB", (32, 32), "red")).data


def errors(done) -> list[str]:
    return [line.split("leap: error: ")[1] for line in done.stderr.splitlines() if "leap: error: " in line]


def asked(runner: ScriptedModelRunner) -> list[list[str]]:
    return [[message.text for message in request.messages] for request in runner.requests]


def test_help_lists_every_command_with_its_meaning(leap, talk):
    leap.script()
    done = talk("/help", "/help undo", "/help nonsense")
    for command in COMMANDS:
        assert f"/{command.name}" in done.stdout and command.meaning in done.stdout
    assert {"help", "system", "model", "attach", "tools", "retry", "edit", "undo"} <= {c.name for c in COMMANDS}
    assert {"save", "load", "export", "stats", "clear", "quit"} <= {c.name for c in COMMANDS}
    assert "Alt-Enter" in done.stdout and all(len(line) <= 80 for line in done.stdout.splitlines())
    assert done.stdout.count("Forget the last message") == 2
    assert errors(done) == ["there is no command /nonsense; /help lists them"]


def test_the_documentation_has_the_same_commands(leap, talk):
    leap.script()
    listing, blank, _ = talk("/help").stdout.partition("\n\n")
    listed = [re.split(r"\s{2,}", line)[0] for line in listing.splitlines() if line.startswith("/")]
    page = (ROOT / "docs" / "chat.md").read_text("utf-8").replace("\\|", "|")
    rows = [cell for row in re.findall(r"(?m)^\| (`/.*?`) \|", page) for cell in re.findall(r"`([^`]*)`", row)]
    assert blank and listed == rows


def test_an_unknown_command_is_reported_and_not_sent(leap, talk):
    runner = leap.script()
    done = talk("/hlep", "/frobnicate it", "/retry that")
    assert errors(done) == [
        "there is no command /hlep; did you mean /help? (a message may begin with //)",
        "there is no command /frobnicate; /help lists them (a message may begin with //)",
        "/retry takes no text after it; start a message that begins with / with //",
    ]
    assert runner.requests == []


def test_text_that_only_looks_like_a_command_is_a_message(leap, talk):
    runner = leap.script("a", "b", "c")
    talk("//help me", "/etc/hosts is a file", "/ is the root")
    assert [texts[-1] for texts in asked(runner)] == ["/help me", "/etc/hosts is a file", "/ is the root"]


def test_slash_commands_are_for_terminals_only(leap):
    runner = leap.script("ok")
    assert leap("chat", "-m", "some", stdin="/quit\n").stdout == "ok\n"
    assert asked(runner) == [["/quit"]]


def test_system_shows_changes_and_removes_the_system_prompt(leap, talk, kept):
    (leap.home.parent / "long.txt").write_text("From a file.\n")
    runner = leap.script("1", "2", "3")
    done = talk(
        "/system", "one", "/system Be brief.", "two", "/system", "/system @long.txt", "three", "/system none",
        "/system @missing",
    )  # fmt: skip
    assert [request.messages[0] for request in runner.requests] == [
        ChatMessage("user", "one"),
        ChatMessage("system", "Be brief."),
        ChatMessage("system", "From a file."),
    ]
    assert asked(runner)[1] == ["Be brief.", "one", "1", "two"]
    changed = "the system prompt is now: "
    assert done.stdout == (
        f"there is no system prompt\n1\n{changed}Be brief.\n2\nBe brief.\n{changed}From a file.\n3\n"
        "there is no system prompt any more\n"
    )
    assert errors(done) == ["cannot read missing: No such file or directory"]
    assert [role for role, _ in kept()] == ["user", "assistant"] * 3


def test_model_shows_and_changes_the_model_and_keeps_the_conversation(leap, talk):
    first = leap.script("from the first")
    second = ScriptedModelRunner("from the second", model_id="second", context_size=100)

    def load(reference, options):
        if reference == "missing":
            raise LeapModelNotFoundError("there is no model missing")
        return first if reference == "some" else second

    leap.load = load
    done = talk("hi", "/model", "/model missing", "/model other", "who are you?")
    assert done.stdout == (
        "from the first\nscripted, a context of 4096 tokens\nsecond, a context of 100 tokens\nfrom the second\n"
    )
    assert asked(second) == [["hi", "from the first", "who are you?"]]
    assert errors(done) == ["there is no model missing"]
    assert first.is_unloaded and second.is_unloaded


def test_attach_sends_files_with_the_next_message_only(leap, talk):
    directory = leap.home.parent
    (directory / "notes.txt").write_text("a note")
    (directory / "cat.jpg").write_bytes(JPEG)
    (directory / "hum.wav").write_bytes(Audio.from_float_samples([0.0] * 8000, 16000).data)
    (directory / "cat.png").write_bytes(b"\x89PNG\r\n")
    pillow.new("RGB", (64, 64), "blue").save(directory / "sea.png")
    (directory / "program").write_bytes(b"\0\1\2")
    runner = leap.script("1", "2")
    done = talk(
        "/attach notes.txt", "/attach cat.jpg", "/attach hum.wav", "look", "and now?",
        "/attach missing.txt", "/attach cat.png", "/attach program", "/attach sea.png", "/attach none", "/attach",
    )  # fmt: skip
    text, picture, sound, said = runner.requests[0].messages[0].content
    assert "notes.txt" in text.text and "a note" in text.text and said.text == "look"
    assert picture == Image(JPEG) and isinstance(sound, Audio)
    assert runner.requests[1].messages[-1] == ChatMessage("user", "and now?")
    assert "sound, 0.5 s" in done.stdout and done.stdout.endswith("nothing is attached\nnothing is attached\n")
    missing, png, binary = errors(done)
    assert missing == "cannot read missing.txt: No such file or directory"
    assert png.startswith("cat.png: not a picture, or its header is damaged")
    assert "program is not text" in binary
    assert "sea.png: converted to JPEG" in done.stderr


def test_the_path_of_a_picture_that_is_pasted_attaches_it(leap, talk):
    place = leap.home.parent / "my pictures"
    place.mkdir()
    picture = place / "a cat.jpg"
    picture.write_bytes(JPEG)
    (place / "notes.txt").write_text("a note")
    escaped = str(picture).replace(" ", "\\ ")
    runner = leap.script("1", "2")
    done = talk(f"'{picture}'", escaped, picture.as_uri(), str(picture), "What is it?", "my pictures/notes.txt")
    assert [type(part) for part in runner.requests[0].messages[-1].content] == [Image] * 4 + [Text]
    assert "it goes with your next message" in done.stdout
    assert runner.requests[1].messages[-1] == ChatMessage("user", "my pictures/notes.txt")


def test_tools_shows_and_chooses_tools(leap, talk):
    runner = leap.script("1", "2", "3")
    done = talk("/tools", "one", "/tools calculate, current_time", "two", "/tools none", "three", "/tools nonsense")
    assert [[function.name for function in request.functions] for request in runner.requests] == [
        [],
        ["calculate", "current_time"],
        [],
    ]
    assert "calculate  allow  " in done.stdout and "the model has no tools" in done.stdout
    assert errors(done)[0].startswith("there is no tool nonsense (hint: known are ")


def test_retry_answers_the_last_message_again(leap, talk, kept):
    runner = leap.script("first", "second")
    done = talk("/retry", "hi", "/retry")
    assert asked(runner) == [["hi"], ["hi"]]
    assert done.stdout == "first\nsecond\n"
    assert errors(done) == ["you have not said anything yet"]
    assert kept() == [("user", "hi"), ("assistant", "second")]


def test_an_answer_is_kept_until_another_replaces_it(leap, talk, kept):
    """A chat that is killed meanwhile has lost nothing."""
    runner = leap.script("first", "second")
    start, seen = runner.start, []

    def looking(*args):
        seen.append(kept())
        return start(*args)

    runner.start = looking
    talk("hi", "/edit ho")
    assert seen[1] == [("user", "hi"), ("assistant", "first")]
    assert kept() == [("user", "ho"), ("assistant", "second")]


def test_a_failed_retry_keeps_the_former_answer(leap, talk, kept):
    runner = leap.script("first", [LeapGenerationError("broken")], "later")
    done = talk("hi", "/retry", "go on")
    assert errors(done) == ["broken"]
    assert asked(runner)[-1] == ["hi", "first", "go on"]
    assert kept()[:2] == [("user", "hi"), ("assistant", "first")]


def test_edit_replaces_the_last_message_and_answers_it(leap, talk, kept):
    (leap.home.parent / "cat.jpg").write_bytes(JPEG)
    runner = leap.script("a", "b", "c")
    (leap.home.parent / "notes.txt").write_text("a note")
    done = talk("one", "/attach cat.jpg", "/attach notes.txt", "tow", "/edit two", "/edit")
    before, after = (request.messages[-1].content for request in runner.requests[1:])
    assert before[:2] == after[:2] and before[0] == Image(JPEG), "what was attached stays"
    assert (before[2:], after[2:]) == ((Text("tow"),), (Text("two"),))
    assert [text.splitlines()[-1] for _, text in kept()] == ["one", "a", "two", "c"]
    assert errors(done) == ["give the new text: /edit TEXT"], "plain lines cannot begin with a text"


def test_undo_removes_the_last_message_and_its_answer(leap, talk, kept):
    runner = leap.script("a", "b", "c")
    done = talk("/undo", "one", "two", "/undo", "three")
    assert asked(runner)[-1] == ["one", "a", "three"]
    assert "forgotten: two\n" in done.stdout and errors(done) == ["you have not said anything yet"]
    assert kept() == [("user", "one"), ("assistant", "a"), ("user", "three"), ("assistant", "c")]


@pytest.mark.parametrize("command", ["/load", "/attach", "/export", "/save", "/system", "/tools", "/export a/"])
def test_a_too_long_session_name_does_not_end_the_chat(leap, talk, command):
    runner = leap.script("fine")
    talk(f"{command} {'x' * 300}.md", "still here?")
    assert len(runner.requests) == 1


def test_a_full_context_says_how_to_continue(leap, talk):
    leap.script("a", context_size=10)
    done = talk("one", "word " * 20, arguments=("--on-overflow", "error"))
    hint = "/compact, /undo or /clear frees the context"
    assert errors(done) == [f"the prompt has 27 tokens and the context holds 10 (hint: {hint})"]


def test_attachments_are_sent_with_the_next_answered_message(leap, talk):
    (leap.home.parent / "note.txt").write_text("the note")
    runner = leap.script([LeapGenerationError("broken")], "fine")
    talk(f"/attach {leap.home.parent / 'note.txt'}", "one", "two")
    assert "the note" in asked(runner)[-1][0] and asked(runner)[-1][0].endswith("two")


def test_stats_show_context_use(leap, talk):
    leap.script(["a", "b"])
    done = talk("/stats", "one", "/stats")
    assert done.stdout.startswith("0 messages, 0 of 4096 tokens of scripted\nab\n2 messages, ")
    assert "the last answer: prompt 4 tokens, answer 2 tokens" in done.stdout


@pytest.mark.parametrize("word", ["/quit", "/exit", "/bye", "/QUIT"])
def test_quit_ends_the_chat(leap, talk, word):
    runner = leap.script("never")
    talk(word, "too late")
    assert runner.requests == []


def test_tab_completes_commands_and_their_arguments(leap, talk):
    directory = leap.home.parent
    (directory / "notes.txt").write_text("")
    (directory / "night photos").mkdir()
    (directory / ".hidden").write_text("")
    leap.script("a")
    talk("one", "/save trip")
    env = leap.environment("", terminal=True, stdin_terminal=True)

    def offered(line: str) -> tuple[str, list[str]]:
        word, found = suggest(line, COMMANDS, env)
        return word, [each.value for each in found]

    assert offered("/e") == ("/e", ["/edit", "/export"])
    assert len(offered("/")[1]) == len(COMMANDS)
    assert offered("/attach n") == ("n", ["night photos/", "notes.txt"])
    assert offered("/attach night ph") == ("night ph", ["night photos/"]), "a path may have spaces"
    assert offered("/attach .h") == (".h", [".hidden"])
    assert offered("/system @no") == ("@no", ["@notes.txt"])
    assert offered("/load tr") == ("tr", ["trip"])
    assert offered("/model built") == ("built", ["builtin", "builtin-vl", "builtin-audio", "builtin-embed"])
    assert offered("/tools calculate curr") == ("curr", ["current_time"])
    assert offered("/attach missing/x") == ("missing/x", [])
    assert offered("/retry x")[1] == offered("a message")[1] == offered("//e")[1] == []


def test_settings_are_shown_and_changed(leap, talk):
    runner = leap.script("1", "2", "3")
    lines = ("one", "/set temperature 0.3", "/set", "two", "/set temperature none", "three")
    done = talk(*lines, "/set nothing 1", "/set top-p x")
    assert [request.options.temperature for request in runner.requests] == [None, 0.3, None]
    assert "temperature 0.3" in done.stderr and "there is no setting 'nothing'" in " ".join(done.stderr.split())
    assert "top-p takes a number" in done.stderr


def test_the_last_message_can_prefill_the_next_prompt(leap):
    """What the editor does with /edit, and with a message that a killed process left without an answer."""
    from leap_cli.chat.dialogue import Dialogue, FullContext
    from leap_cli.chat.slash_commands import run_command
    from leap_cli.chat.typed_conversation import TypedConversation
    from leap_cli.framework.output import Output
    from leap_cli.options.tools import Tools
    from leap_core.conversation.options import GenerationOptions
    from leap_core.conversation.session_recorder import SessionRecorder

    class Typed:
        can_begin_with = True

        def __init__(self, *texts: str | type[BaseException]) -> None:
            self.texts = list(texts)
            self.drafts: list[str] = []

        def read(self, draft: str = "") -> str:
            self.drafts.append(draft)
            text = self.texts.pop(0)
            if not isinstance(text, str):
                raise text
            return text

    env = leap.environment("", terminal=True, stdin_terminal=True)
    runner = leap.script("a", "b", "c")
    typed = Typed("tow", "/edit", "two", "/edit", KeyboardInterrupt, "three", EOFError)
    log = SessionRecorder(env.directories.sessions_file, Output(env).warning)
    dialogue = Dialogue(
        runner.create_conversation(), GenerationOptions(), Tools(), log, read_all, FullContext(env, None)
    )
    TypedConversation(dialogue, env, Output(env), typed, lambda name: runner, run_command).hold()
    assert asked(runner) == [["tow"], ["two"], ["two", "b", "three"]], "Ctrl-C leaves the message as it is"
    assert typed.drafts == ["", "", "tow", "", "two", "", ""]


def read_all(_dialogue, stream):
    while True:
        try:
            complete = stream.__next__()
        except StopIteration:
            return complete


def test_the_json_is_openai_s(leap, talk):
    leap.script("a")
    talk("one", "/export talk.json")
    assert json.loads((leap.home.parent / "talk.json").read_text()) == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "a"},
    ]


def test_the_list_of_commands_fits_a_narrow_terminal(leap, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    leap.script("a")
    done = leap("chat", "-m", "some", stdin="/help\n/quit\n", terminal=True, stdin_terminal=True)
    assert "/attach [FILE|none]\n    Send a text" in done.stdout and max(map(len, done.stdout.splitlines())) <= 40


def test_ratings_and_reasons_are_kept_with_the_answers(leap, talk):
    leap.script("one", "two", "three three", "four", "five")
    done = talk(
        "/good", "a", "/good", "b", "/bad", "/set max_tokens 1", "c", "/set max_tokens none", "/undo", "/system Brief.",
        "d", "/retry", "/good",
    )  # fmt: skip
    assert errors(done) == ["there is no answer yet that could be rated"]
    assert "the last answer is rated bad\n" in done.stdout
    with SessionStore(leap.home / "leap.db") as store:
        session = store.latest()
        assert session is not None
        texts = [message.text for message in store.history(session.id)]
        assert texts == ["Brief.", "a", "one", "b", "two", "d", "five"]
        marks = store.marks(session.id)
        assert marks[2::2] == [Mark("stop", "good"), Mark("stop", "bad"), Mark("stop", "good")]
        assert marks[0] == marks[1] == Mark()
    assert "is not being saved" in errors(talk("/good", arguments=("--no-save",)))[0]


def test_answers_from_a_loaded_file_have_no_finish_reason(leap, talk):
    path = leap.home.parent / "brought.json"
    path.write_text(json.dumps([{"role": "user", "content": "a"}, {"role": "assistant", "content": "brought"}]))
    leap.script("two words")
    talk("/load brought.json", "/set max_tokens 1", "b")
    with SessionStore(leap.home / "leap.db") as store:
        session = store.latest()
        assert session is not None
        assert [mark.finish for mark in store.marks(session.id)] == [None, None, None, "max_tokens"]


@pytest.mark.parametrize("word", ["exit", "quit", "Bye", ":q"])
def test_a_chat_ends_at_the_quit_words_of_other_programs(leap, talk, word):
    runner = leap.script("a")
    talk("one", word, "two")
    assert asked(runner) == [["one"]]


def test_a_chat_answers_a_question_mark_with_its_commands(leap, talk):
    runner = leap.script()
    assert "/attach" in talk("?").stdout and "/attach" in talk("/?").stdout
    assert not asked(runner)


def test_an_attached_text_is_measured_without_its_fence(leap, talk, leap_home):
    leap.script()
    (leap_home.parent / "one.txt").write_text("x")
    assert "text one.txt, 1 character\n" in talk("/attach one.txt").stdout

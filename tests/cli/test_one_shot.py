"""What only ``leap generate`` has: files, the system prompt's file, the output's, reasoning, raw prompts, a dry run."""

from __future__ import annotations

import json
import os
import stat
import threading

import pytest

from leap_core.conversation.messages import LeapFunctionCall
from leap_core.conversation.responses import FunctionCalls, ReasoningChunk
from leap_core.errors import LeapGenerationError
from leap_core.testing import Stall

from .test_interrupts import interrupt_at
from .test_interrupts import pytestmark as takes_interrupts


@pytest.fixture
def generate(leap):
    return lambda *args, **how: leap("generate", "-m", "some", *args, **how)


# -- files


def test_files_come_before_the_prompt_under_their_names(leap, generate, tmp_path):
    runner = leap.script("ok")
    (tmp_path / "sub").mkdir()
    (tmp_path / "one.txt").write_bytes("\N{BYTE ORDER MARK}first\r\nline\r\n".encode())
    (tmp_path / "sub" / "two.md").write_text("second\n\n")
    generate("-f", "one.txt", "--file", "sub/two.md", "Compare", "them.", stdin="and this\n")
    assert runner.requests[0].messages[-1].text == (
        "one.txt:\n```\nfirst\r\nline\n```\n\nsub/two.md:\n```\nsecond\n```\n\nCompare them.\n\nand this"
    )


def test_a_file_without_a_prompt_is_a_prompt(leap, generate, tmp_path):
    runner = leap.script("ok")
    (tmp_path / "question.txt").write_text("What is it?")
    generate("-f", "question.txt")
    assert runner.requests[0].messages[-1].text == "question.txt:\n```\nWhat is it?\n```"


def test_the_fence_of_a_file_is_longer_than_those_in_it(leap, generate, tmp_path):
    runner = leap.script("ok")
    (tmp_path / "readme.md").write_text("```sh\nls\n```\nand ````four````")
    generate("-f", "readme.md", "Explain.")
    lines = runner.requests[0].messages[-1].text.splitlines()
    assert lines[1] == lines[-3] == "`````"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_named_pipe_is_read(leap, generate, tmp_path):
    """As shells give one for ``-f <(command)``."""
    runner = leap.script("ok")
    reader, writer = os.pipe()
    os.write(writer, b"from a command\n")
    os.close(writer)
    try:
        generate("-f", f"/dev/fd/{reader}", "Explain.")
    finally:
        os.close(reader)
    assert "from a command" in runner.requests[0].messages[-1].text


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.txt", None, "cannot read missing.txt: No such file or directory"),
        (".", None, "cannot read .: Is a directory"),  # and -f says what to do with one
        ("program.bin", b"\x7fELF\0\0\0", "program.bin is not text"),
        ("huge.txt", b"x" * (16 * 1024 * 1024 + 1), "huge.txt is larger than 16 MiB"),
        ("nul\0.txt", None, "cannot read nul"),
        ("", None, "'' is no file: its name is empty"),
        ("-", None, "'-' is no file: a '-' among the words"),
    ],
)
@pytest.mark.parametrize("option", ["-f", "-s@"])
def test_a_binary_file_is_a_one_line_error(leap, generate, tmp_path, option, name, content, says):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = generate(*([f"-s@{name}"] if option == "-s@" else [option, name]), "x")
    assert (done.code, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.count("\n") == 1
    assert leap.loaded == []


# -- the system prompt


@pytest.mark.parametrize(
    ("given", "system"),
    [("@brief.txt", "Be brief.\nAlways."), ("@@brief.txt", "@brief.txt"), ("at @home", "at @home"), ("@@", "@")],
)
def test_the_system_prompt_can_be_read_from_a_file(leap, generate, tmp_path, given, system):
    runner = leap.script("ok")
    (tmp_path / "brief.txt").write_text("Be brief.\nAlways.\n")
    generate("-s", given, "x")
    assert runner.requests[0].messages[0].text == system


def test_a_document_where_plain_text_is_read_is_refused(leap, generate, tmp_path):
    (tmp_path / "offer.pdf").write_bytes(b"%PDF-1.7\n")
    for done in (generate("-s", "@offer.pdf", "x"), leap("redact", "-m", "builtin", "offer.pdf")):
        assert (done.code, done.stdout) == (2, "")
        assert "offer.pdf is a document, and only plain text is read here; leap -f FILE reads documents" in done.stderr
    assert leap.loaded == []


def test_the_system_prompt_of_a_batch_can_be_read_from_a_file(leap, tmp_path):
    (tmp_path / "brief.txt").write_text("Be brief.\n")
    (tmp_path / "in.jsonl").write_text('{"prompt": "hello"}\n')
    runner = leap.script("ok")
    assert leap("batch", "in.jsonl", "-m", "builtin", "-s", "@brief.txt", "-o", "out.jsonl").code == 0
    assert [message.text for message in runner.requests[0].messages] == ["Be brief.", "hello"]


# -- the output's file


def test_the_answer_goes_to_a_file(leap, generate, tmp_path):
    leap.script(["Par", "is."])
    mask = os.umask(0o022)
    try:
        done = generate("-o", "answer.txt", "x", terminal=True)
    finally:
        os.umask(mask)
    assert (done.code, done.stdout, done.stderr) == (0, "", "")
    answer = tmp_path / "answer.txt"
    assert answer.read_text() == "Paris.\n"
    assert stat.S_IMODE(answer.stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["answer.txt"]


def test_a_file_is_replaced_whole_and_keeps_its_rights(leap, generate, tmp_path):
    answer = tmp_path / "answer.json"
    answer.write_text("old and much longer than the new one" * 100)
    answer.chmod(0o600)
    (tmp_path / "link.json").symlink_to(answer)
    leap.script("Paris.")
    assert generate("-o", "link.json", "--format", "json", "x").code == 0
    assert json.loads(answer.read_text())["message"]["content"] == "Paris."
    assert stat.S_IMODE(answer.stat().st_mode) == 0o600 and (tmp_path / "link.json").is_symlink()


def test_lone_surrogates_are_written_as_to_stdout(generate, tmp_path, leap):
    leap.script("x")
    assert leap("chat", "-m", "some", "--jsonl", stdin=r'{"role": "user", "content": "\ud800"}' + "\n").code == 0
    leap.script("?")
    assert generate("-c", "-o", "answer.txt", "x").code == 0
    assert "?" in (tmp_path / "answer.txt").read_text("utf-8")


def test_a_dash_is_standard_output(leap, generate, tmp_path):
    leap.script("Paris.")
    assert generate("-o", "-", "x").stdout == "Paris.\n"
    assert not (tmp_path / "-").exists()


@takes_interrupts
def test_an_interrupted_answer_is_written(leap, generate, tmp_path):
    stall = Stall()
    leap.script(["half of ", "it", stall, "never"])
    (tmp_path / "answer.txt").write_text("old")
    interrupt_at(stall)
    done = generate("-o", "answer.txt", "x")
    assert (done.code, done.stdout, (tmp_path / "answer.txt").read_text()) == (130, "", "half of it\n")


@takes_interrupts
def test_an_answer_that_is_interrupted_before_it_begins_replaces_nothing(leap, generate, tmp_path):
    stall = Stall()
    leap.script([stall, "never"])
    (tmp_path / "answer.txt").write_text("old")
    interrupt_at(stall)
    done = generate("-o", "answer.txt", "x")
    assert (done.code, done.stdout, (tmp_path / "answer.txt").read_text()) == (130, "", "old")


def test_text_before_an_error_is_written_and_an_empty_answer_replaces_nothing(leap, generate, tmp_path):
    (tmp_path / "answer.txt").write_text("old")
    leap.script([LeapGenerationError("broken")])
    assert generate("-o", "answer.txt", "x").code == 1
    assert (tmp_path / "answer.txt").read_text() == "old"
    leap.script(["half", LeapGenerationError("broken")])
    assert generate("-o", "answer.txt", "x").code == 1
    assert (tmp_path / "answer.txt").read_text() == "half\n"


def test_an_answer_that_cannot_be_written_goes_to_stdout(leap, generate, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    stall = Stall()

    def remove_place() -> None:
        assert stall.reached.wait(100)
        place.rmdir()
        place.write_text("no directory any more")
        stall.release()

    threading.Thread(target=remove_place, daemon=True).start()
    leap.script(["Par", stall, "is."])
    done = generate("-o", "place/answer.txt", "x")
    assert (done.code, done.stdout) == (1, "Paris.\n")
    assert "cannot write" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (".", "--output . is a directory"),
        ("gone/answer.txt", "there is no directory"),
        ("", "--output needs a file's name"),
    ],
)
def test_an_unwritable_output_is_refused_before_anything_is_loaded(leap, generate, target, says):
    done = generate("-o", target, "x")
    assert (done.code, done.stdout) == (2, "") and says in done.stderr and done.stderr.count("\n") == 1
    assert leap.loaded == []


def test_a_device_as_output_is_written_to_and_not_replaced(leap, generate, tmp_path):
    leap.script("Paris.")
    (tmp_path / "null").symlink_to(os.devnull)
    assert generate("-o", "null", "x").code == 0
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


# -- reasoning


@pytest.mark.parametrize(
    ("flags", "stdout", "stderr"),
    [
        (["--think", "show"], "4\n", "2 and 2\n"),
        (["--think", "hide"], "4\n", ""),
        (["--think", "only"], "2 and 2\n", ""),
        (["--think", "only", "--no-stream"], "2 and 2\n", ""),
    ],
)
def test_reasoning_is_asked_for_and_shown_as_wanted(leap, generate, flags, stdout, stderr):
    runner = leap.script([ReasoningChunk("2 and 2"), "4"])
    done = generate(*flags, "2+2?")
    assert (done.code, done.stdout, done.stderr) == (0, stdout, stderr)
    assert runner.requests[0].options.enable_thinking


def test_only_reasoning_of_a_model_without_reasoning_is_an_error(leap, generate):
    leap.script(["4", FunctionCalls((LeapFunctionCall("f"),))])
    done = generate("--think", "only", "2+2?")
    assert (done.code, done.stdout, done.stderr) == (0, "", "leap: warning: the model gave no reasoning\n")


# -- raw prompts


def test_a_raw_prompt_goes_to_the_model_unchanged(leap, generate):
    runner = leap.script("upon a time <think>x</think>")
    done = generate("--raw", "--temperature", "0", "--stop", "END", "Once")
    assert (done.code, done.stdout) == (0, "upon a time <think>x</think>\n")
    (request,) = runner.requests
    assert (request.text, request.messages) == ("Once", ())
    assert request.options.function_call_parser is None and request.options.inline_thinking_tags
    assert request.options.temperature == 0 and list(request.options.stop) == ["END"]


# -- a dry run


def test_a_dry_run_prints_the_prompt_and_generates_nothing(leap, generate):
    runner = leap.script()
    done = generate("--dry-run", "-s", "Be brief.", "How", "are you?")
    assert (done.code, done.stdout) == (0, "system: Be brief.\nuser: How are you?\nassistant: ")
    assert done.stderr == "leap: 9 tokens for scripted, whose context holds 4096\n"
    assert runner.requests == []


def test_a_dry_run_of_a_raw_prompt(leap, generate):
    leap.script()
    assert generate("--dry-run", "--raw", "Once upon").stdout == "Once upon"
    leap.script()
    assert generate("--dry-run", "--raw", "Once upon", terminal=True).stdout == "Once upon\n"


def test_a_dry_run_as_json(leap, generate):
    leap.script()
    done = generate("--dry-run", "--format", "json", "hello")
    expected = {"model": "scripted", "prompt": "user: hello\nassistant: ", "tokens": 4, "context_size": 4096}
    assert json.loads(done.stdout) == expected and done.stderr == ""
    leap.script()
    assert json.loads(generate("--dry-run", "--format", "jsonl", "hello").stdout) == expected


def test_a_dry_run_of_a_prompt_that_does_not_fit(leap, generate):
    leap.script(context_size=8)
    done = generate("--dry-run", "word " * 20)
    assert done.code == 5 and done.stdout.startswith("user: word")
    assert "the prompt has 23 tokens and the context holds 8" in done.stderr


def test_a_dry_run_continues_a_session_without_changing_it(leap, generate):
    leap.script("Hello Ada.")
    generate("--session", "greeting", "I am Ada.")
    leap.script()
    assert generate("--session", "greeting", "--dry-run", "Who am I?").stdout == (
        "user: I am Ada.\nassistant: Hello Ada.\nuser: Who am I?\nassistant: "
    )
    runner = leap.script("Ada.")
    generate("--session", "greeting", "And now?")
    assert [message.text for message in runner.requests[0].messages] == ["I am Ada.", "Hello Ada.", "And now?"]


# -- what makes no sense


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--raw -s x", "--raw cannot be combined with --system"),
        ("--raw --tool calculate", "--raw cannot be combined with --tool"),
        ("--raw --think show", "--raw cannot be combined with --think"),
        ("--raw --background", "--raw cannot be combined with --background"),
        ("--raw -c", "--raw cannot be combined with --continue"),
        ("--raw --save", "--raw cannot be combined with --save"),
        ("-n 2 --session x", "--count cannot be combined with --session"),
        ("-n 2 --save", "--count cannot be combined with --save"),
        ("-n 2 --tool calculate", "--count cannot be combined with tools that run"),
        ("-n 0", "0 is not in the range"),
        ("--think only --format json", "--think only is for text"),
        ("--think loud", "'loud' is not one of"),
    ],
)
def test_contradictory_options_are_one_line_errors(leap, leap_home, generate, flags, says):
    done = generate(*flags.split(), "x")
    assert (done.code, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.count("\n") == 1
    assert leap.loaded == [] and {path.name for path in leap_home.glob("*")} <= {"cache"}  # of plugins


@pytest.mark.parametrize(
    ("variable", "value", "flags", "says"),
    [
        ("SYSTEM", "Be brief.", ["--raw"], "--raw cannot be combined with --system"),
        ("THINK", "only", ["--format", "json"], "--think only is for text; json and jsonl have the reasoning beside"),
    ],
)
def test_an_error_about_an_untyped_option_names_its_source(leap, generate, variable, value, flags, says):
    leap.variables[f"LEAP_GENERATE_{variable}"] = value
    done = generate(*flags, "x")
    assert done.code == 2
    assert says in done.stderr and f"(it is set in LEAP_GENERATE_{variable})" in done.stderr


@pytest.mark.parametrize("flags", [["--raw"], ["-n", "2"], ["--dry-run"]])
def test_a_general_setting_to_save_does_not_conflict(leap, leap_home, generate, flags):
    leap.script("one", "two")
    leap.variables["LEAP_GENERATE_SAVE"] = "true"
    assert generate(*flags, "x").code == 0
    assert not (leap_home / "leap.db").exists()


def test_choices_may_be_repeated(leap):
    leap.script("no")
    assert leap("generate", "--choices", "yes", "--choices", "no,maybe", "x").code == 0
    assert leap.runner.requests[0].options.choices_constraint == ["yes", "no", "maybe"]


@pytest.mark.parametrize(
    ("flag", "printed"), [("-x", "print(1)\n"), ("--option=extract-last", "ls\n"), ("--no-stream", None)]
)
def test_a_fenced_block_alone(leap, flag, printed):
    answer = "Here:\n```python\nprint(1)\n```\nand\n~~~sh\nls\n~~~\nDone."
    leap.script(answer)
    done = leap("generate", flag, "x")
    assert (done.code, done.stdout) == (0, printed or f"{answer}\n")


@pytest.mark.parametrize(
    ("flag", "answer", "printed"),
    [
        ("-x", "Here:\n```python\nprint(1)\n", "print(1)\n"),
        ("-x", "Here:\n```python\nprint(1)", "print(1)\n"),
        ("-x", "Here:\n~~~\na\n```\nb", "a\n```\nb\n"),
        ("-x", "Here:\n```\na\n```\nand\n```\nb", "a\n"),
        ("--option=extract-last", "Here:\n```\na\n```\nand\n```\nb", "b\n"),
        ("-x", "```x``` is inline\n```\na\n```", "a\n"),
    ],
)
def test_a_block_that_is_not_closed_goes_to_the_end(leap, flag, answer, printed):
    leap.script(answer)
    done = leap("generate", "-m", "x", flag, "x")
    assert (done.code, done.stdout, done.stderr) == (0, printed, "")


def test_an_answer_of_many_fences_is_read_in_time(leap):
    leap.script("```a`\n~~~~~\n" + "```\nx\n~~~~\n" * 20_000)
    assert leap("generate", "-m", "x", "--option", "extract-last", "x").code == 0


def test_an_answer_without_a_block_stays_whole(leap):
    leap.script("no code")
    done = leap("generate", "-m", "builtin", "-x", "x")
    assert (done.code, done.stdout) == (0, "no code\n") and "no fenced block" in done.stderr


def test_a_directory_names_the_command_that_takes_one(leap, tmp_path):
    (tmp_path / "notes").mkdir()
    assert "`leap index make NAME notes`" in leap("generate", "-m", "x", "-f", "notes", "what?").stderr


def test_a_model_without_reasoning_is_reported_once(leap):
    leap.script("a", "b")
    done = leap("chat", "-m", "x", "--think", "show", stdin="hi\nand?\n")
    assert done.stderr.count("scripted gave no reasoning: --think is for models that reason") == 1
    leap.script([ReasoningChunk("hm"), "a"])
    assert "gave no reasoning" not in leap("generate", "-m", "x", "--think", "show", "hi").stderr
    leap.script("a", "b", "c")
    done = leap("generate", "-m", "x", "-n", "3", "--think", "show", "hi")
    assert (done.code, done.stdout, done.stderr.count("gave no reasoning")) == (0, "a\n---\nb\n---\nc\n", 1)
    leap.script("a")
    assert "gave no reasoning" not in leap("generate", "-m", "x", "--think", "hide", "hi").stderr

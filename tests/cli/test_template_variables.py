"""Variables of saved prompts (``-t NAME -p variable=value``) in generate, chat and batch; editing and saving them."""

from __future__ import annotations

import json
import sys

import pytest

from leap_cli.input.prompt import Pattern, names_in
from leap_core.batch.input.line_parts import LineTemplate
from leap_core.errors import LeapGenerationError


@pytest.fixture
def directory(leap_home):
    path = leap_home / "templates"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def editor(leap, tmp_path):
    """Let $EDITOR write this text."""

    def writes(text: str) -> None:
        (tmp_path / "written").write_text(text)
        script = tmp_path / "editor.py"
        script.write_text(f"import shutil, sys\nshutil.copy({str(tmp_path / 'written')!r}, sys.argv[-1])\n")
        leap.variables["EDITOR"] = f"{sys.executable} {script}"

    return writes


def prompts(leap, *args, answers=1, stdin="", **options):
    """What a model is asked by a command."""
    runner = leap.script(*["ok"] * answers)
    done = leap(*args, stdin=stdin, **options)
    assert done.code == 0, done.stderr
    return [[message.text for message in request.messages] for request in runner.requests]


def test_variables_are_filled_the_same_in_generate_chat_and_batch(leap, tmp_path):
    added = leap(
        "saved",
        "templates",
        "add",
        "tr",
        "To {language}, {tone}: {input}",
        "-s",
        "You speak {language}.",
        "-p",
        "tone=kind",
    )
    assert added.stderr.endswith("tr.toml; it needs -p language=...\n")
    wanted = ["You speak French.", "To French, kind: Hello."]
    assert prompts(leap, "generate", "Hello.", "-p", "language=French", "-t", "tr") == [wanted]
    assert prompts(leap, "chat", "-t", "tr", "-p", "language=French", "Hello.") == [wanted]
    assert prompts(leap, "batch", "-", "-t", "tr", "-p", "language=French", stdin='{"prompt": "Hello."}\n') == [wanted]
    (request,) = prompts(leap, "generate", "-t", "tr", "-p", "tone={input} {language}", "-p", "language=a=b", "x")
    assert request[1] == "To a=b, {input} {language}: x"


def test_the_first_message_of_a_chat_from_any_source_fills_the_pattern(leap):
    leap("saved", "templates", "add", "tr", "To {language}: {input}")
    begin = ["chat", "--no-save", "-t", "tr", "-p", "language=French"]
    piped = prompts(leap, *begin, stdin="one\ntwo\n", answers=2)
    assert piped[1] == ["To French: one", "ok", "two"]
    words = prompts(leap, *begin, "one", stdin="two\n", answers=2)
    assert words[1] == ["To French: one", "ok", "two"]
    typed = prompts(leap, *begin, stdin="/show\none\ntwo\n", stdin_terminal=True, answers=2)
    assert typed[1] == ["To French: one", "ok", "two"]
    runner = leap.script([LeapGenerationError("broken")], "ok")
    assert leap(*begin, stdin="one\ntwo\n", stdin_terminal=True).code == 0
    assert [each.messages[-1].text for each in runner.requests] == ["To French: one", "To French: two"]
    refused = leap(*begin, "--jsonl", stdin="{}\n")
    assert refused.code == 2 and "--template out" in refused.stderr


def test_values_in_a_line_of_a_batch_override_all_others(leap, tmp_path):
    leap("saved", "templates", "add", "tr", 'To {language} as {"json": {input}}', "-p", "language=French")
    (tmp_path / "in.csv").write_text("input,language\nHello.,German\nBye.,Dutch\n")
    lines = prompts(leap, "batch", "in.csv", "-t", "tr", "-p", "language=Latin", answers=2)
    assert sorted(lines) == [['To Dutch as {"json": Bye.}'], ['To German as {"json": Hello.}']]
    lines = '{"prompt": "a"}\n"b"\n{"input": "c", "prompt": "d"}\n'
    asked = prompts(leap, "batch", "-", "-t", "tr", stdin=lines, answers=3)
    assert sorted(each[0][-2] for each in asked) == ["a", "b", "c"]
    leap("saved", "templates", "add", "brief", "-s", "Be brief.", "--temperature", "0")
    assert prompts(leap, "batch", "-", "-t", "brief", stdin='{"prompt": "a"}\n') == [["Be brief.", "a"]]
    leap("saved", "templates", "add", "sum", "Sum up:")
    assert prompts(leap, "batch", "-", "-t", "sum", stdin='{"prompt": "a"}\n') == [["Sum up:\n\na"]]


def test_missing_variables_are_named_and_unknown_ones_too(leap):
    leap("saved", "templates", "add", "tr", "To {language}, {tone}: {input}")
    for command in ("generate", "chat"):
        done = leap(command, "-t", "tr", "x")
        assert (done.code, done.stdout) == (2, "")
        assert "the template tr needs language and tone: give -p language=... -p tone=..." in done.stderr
    done = leap("batch", "-", "-t", "tr", "-p", "tone=kind", stdin='{"prompt": "a"}\n')
    assert done.code == 2 and "line 1: the template needs language" in done.stderr
    done = leap("generate", "-t", "tr", "-p", "langauge=x", "x")
    assert done.code == 2 and "no variable 'langauge'; did you mean language?" in done.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["generate", "-p", "a=b", "x"], "-p gives values to a template: name one with -t"),
        (["generate", "-t", "tr", "-p", "a", "x"], "-p takes NAME=VALUE"),
        (["generate", "-t", "tr", "-p", "a=1", "-p", "a=2", "x"], "-p gives a twice"),
        (["generate", "-t", "tr", "-p", "input=1", "x"], "'input' cannot name a variable"),
        (
            ["generate", "-t", "tr", "-p", "a=1", "--save-template", "b", "x"],
            "--save-template cannot be combined with --template",
        ),
        (["saved", "templates", "add", "b", "To {a}", "-p", "c=1"], "{c} is neither in the prompt nor"),
        (["batch", "-", "-t", "tr", "--pattern", "{x}"], "--pattern cannot be combined with --template"),
        (["saved", "templates", "edit", "trr"], "did you mean tr?"),
    ],
)
def test_variable_errors_are_one_line(leap, args, says):
    leap("saved", "templates", "add", "tr", "To {a}: {input}")
    done = leap(*args)
    assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1) and says in done.stderr


def test_an_undeclared_name_is_left_unchanged_and_reported(leap, directory):
    (directory / "old.toml").write_text('prompt = "Fill {slot} of {input}"\n[options]\njson_schema = "a int"\n')
    runner = leap.script('{"a": 1}')
    done = leap("generate", "-t", "old", "this")
    assert done.code == 0 and runner.requests[0].messages[0].text == "Fill {slot} of this"
    assert '{slot} stands as it is: variables = ["slot"]' in done.stderr
    assert prompts(leap, "generate", "--template", "old", "-p", "slot=one", "--regex", "ok", "this") == [
        ["Fill one of this"]
    ]
    (directory / "old.toml").write_text('prompt = "Fill {slot}"\nvariables = []\n')
    assert leap("generate", "-t", "old", "--dry-run", "x").stderr.count("stands as it is") == 0


def test_a_template_of_a_batch_may_be_the_pattern(leap, leap_home):
    assert prompts(leap, "batch", "-", "--template", "Say {a}!", stdin='{"a": "hi"}\n') == [["Say hi!"]]
    leap_home.mkdir(exist_ok=True)
    (leap_home / "config.toml").write_text('[options.batch]\ntemplate = "Tell {a}!"\n')
    assert prompts(leap, "batch", "-", stdin='{"a": "hi"}\n') == [["Tell hi!"]]


def test_options_that_a_command_lacks_are_skipped_and_reported(leap, directory):
    (directory / "mine.toml").write_text('system = "S"\n[options]\ncount = 2\ntemperature = 0.5\nformat = "json"\n')
    runner = leap.script("ok", "ok")
    done = leap("batch", "-", "-t", "mine", stdin='{"prompt": "a"}\n')
    assert done.code == 0 and runner.requests[0].options.temperature == 0.5
    assert "the template mine: leap batch has no --count; left out" in done.stderr
    (directory / "mine.toml").write_text("[options]\ncuont = 2\n")
    assert "there is no option options.chat.cuont" in leap("chat", "-t", "mine", "x").stderr


def test_a_question_is_saved_instead_of_asked(leap, leap_home, tmp_path):
    (tmp_path / "facts.txt").write_text("facts")
    flags = [
        "-s",
        "Be {tone}.",
        "--temperature",
        "0.2",
        "-f",
        "facts.txt",
        "--logit-bias",
        "42=-5",
        "--threads",
        "1",
        "-x",
    ]
    done = leap("generate", *flags, "--json-schema", "a int", "--no-stream", "--save-template", "mine", "Do {input}")
    assert (done.code, done.stdout) == (0, "") and "it needs -p tone=..." in done.stderr
    shown = json.loads(leap("saved", "templates", "show", "mine", "--format", "json").stdout)
    assert (shown["system"], shown["prompt"], shown["variables"]) == ("Be {tone}.", "Do {input}", {"tone": None})
    schema = json.loads(shown["options"].pop("json_schema"))
    assert set(schema["properties"]) == {"a"}
    assert shown["options"] == {
        "file": [str(tmp_path / "facts.txt")],
        "temperature": 0.2,
        "logit_bias": ["42=-5"],
        "threads": 1,
        "extract": True,
        "stream": False,
    }
    runner = leap.script('{"a": 1}')
    assert leap("generate", "-t", "mine", "-p", "tone=kind", "it").code == 0
    assert runner.requests[0].messages[0].text == "Be kind." and "facts" in runner.requests[0].messages[1].text
    assert runner.requests[0].options.logit_bias == {42: -5.0}
    again = leap("generate", "--save-template", "mine", "other")
    assert again.code == 2 and "there is a template mine already" in again.stderr


@pytest.mark.slow
def test_editing_accepts_only_a_valid_template(leap, leap_home, editor):
    leap("saved", "templates", "add", "tr", "To {a}: {input}")
    file = leap_home / "templates" / "tr.toml"
    editor('prompt = "In {b}: {input}"\nvariables = ["b"]\n[options]\ntemperature = 1\n')
    assert leap("saved", "templates", "edit", "tr").code == 0 and "In {b}" in file.read_text()
    before = file.read_text()
    for text, says in (
        ("prompt = ", "nothing was changed; what you wrote is kept there"),
        ("promt = 'x'", "there is no 'promt' in a template"),
        ("[options]\ntemprature = 1", "did you mean"),
        ("[options]\ntemperature = 'hot'", "temperature"),
        ("variables = ['a b']", "'a b' cannot name a variable"),
        ("[defaults]\na = []", "the default of a must be a text or a number"),
    ):
        editor(text)
        done = leap("saved", "templates", "edit", "tr")
        assert done.code == 2 and says in done.stderr and file.read_text() == before
    assert leap("saved", "templates", "list", "--format", "quiet").stdout == "tr\n"
    leap.variables["EDITOR"] = "false"
    assert "ended with code 1" in leap("saved", "templates", "edit", "tr").stderr


@pytest.mark.parametrize("text", ["{country}: {input}", "{{country}}: {{input}}", "{{ country }}: {{ input }}"])
def test_double_braces_are_variables_too(text):
    pattern = Pattern(text, {"country": "Italy"})
    assert names_in(text) == ("country",) and pattern.fill("What?") == "Italy: What?"
    assert LineTemplate(pattern.escaped([]), pattern.values).fill({"prompt": "x", "input": "What?"}) == "Italy: What?"


def test_filled_values_are_not_expanded_again():
    pattern = Pattern("{a}{b} {input} {{a}} {c} {", {"a": "{b}", "b": "2"})
    assert pattern.fill("{a}") == "{b}2 {a} {b} {c} {"
    assert names_in("{a} {input} {a} {b c} {1}", None, "{d_1}") == ("a", "d_1")
    assert LineTemplate(pattern.escaped(["d"]), pattern.values).fill({"prompt": "{a}"}) == pattern.fill("{a}")

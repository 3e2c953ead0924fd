"""``leap saved templates``, and ``leap generate --template``."""

from __future__ import annotations

import json

import pytest

from leap_core.conversation.messages import ChatMessage


@pytest.fixture
def directory(leap_home):
    path = leap_home / "templates"
    path.mkdir(parents=True)
    return path


def request(leap, *args, stdin="", answer="ok"):
    """What a model is asked by a command."""
    runner = leap.script(answer)
    done = leap("generate", *args, stdin=stdin)
    assert done.code == 0, done.stderr
    return runner.requests[0]


def test_a_template_is_saved_shown_used_and_removed(leap, leap_home):
    added = leap("saved", "templates", "add", "french", "Translate: {input}", "-s", "Be exact.", "--temperature", "0.5")
    file = leap_home / "templates" / "french.toml"
    assert (added.code, added.stdout, added.stderr) == (0, "", f"leap: saved {file}\n")
    assert leap("saved", "templates", "show", "french").stdout == file.read_text()
    asked = request(leap, "--template", "french", "good", "morning", stdin="and night\n")
    assert asked.messages == (
        ChatMessage("system", "Be exact."),
        ChatMessage("user", "Translate: good morning\n\nand night"),
    )
    assert asked.options.temperature == 0.5
    assert leap("saved", "templates", "remove", "french").code == 0
    assert not file.exists()


def test_templates_are_listed(leap):
    assert leap("saved", "templates", "list").stdout == ""
    leap("saved", "templates", "add", "b", "Sum up: {input}", "--option", "about=Short summaries")
    leap("saved", "templates", "add", "a", "-m", "tiny")
    assert leap("saved", "templates", "list", "--format", "quiet").stdout == "a\nb\n"
    assert json.loads(leap("saved", "templates", "list", "--format", "json").stdout)[1] == {
        "name": "b",
        "about": "Short summaries",
        "system": None,
        "prompt": "Sum up: {input}",
        "variables": {},
        "options": {},
    }
    assert json.loads(leap("saved", "templates", "show", "a", "--format", "json").stdout)["options"] == {
        "model": "tiny"
    }


def test_the_command_line_overrides_the_template_which_overrides_all_else(leap, leap_home):
    leap(
        "saved",
        "templates",
        "add",
        "t",
        "-s",
        "Of the template.",
        "--temperature",
        "0.5",
        "--top-k",
        "5",
        "--stop",
        "END",
    )
    leap.variables |= {"LEAP_GENERATE_TOP_K": "9", "LEAP_GENERATE_TOP_P": "0.9"}
    asked = request(leap, "x", "--temperature", "0.1", "--template", "t", "-s", "Mine.")
    assert asked.messages[0].text == "Mine."
    options = asked.options
    assert (options.temperature, options.top_k, options.top_p, list(options.stop)) == (0.1, 5, 0.9, ["END"])


def test_the_template_can_be_configured(leap):
    leap("saved", "templates", "add", "t", "Sum up: {input}", "-s", "Be brief.", "--top-k", "5")
    leap.variables["LEAP_GENERATE_TEMPLATE"] = "t"
    asked = request(leap, "--temperature", "0", "x")
    assert [message.text for message in asked.messages] == ["Be brief.", "Sum up: x"]
    assert asked.options.top_k == 5


def test_a_typed_constraint_replaces_that_of_the_template(leap):
    leap("saved", "templates", "add", "t", "--json-schema", "name, age int")
    asked = request(leap, "--template", "t", "x", answer='{"name": "Ada", "age": 36}')
    assert set(json.loads(asked.options.json_schema_constraint)["properties"]) == {"name", "age"}
    asked = request(leap, "--template", "t", "--choices", "yes,no", "x")
    assert asked.options.json_schema_constraint is None and asked.options.choices_constraint == ["yes", "no"]


@pytest.mark.slow
def test_the_content_of_files_is_saved_and_not_their_paths(leap, tmp_path):
    (tmp_path / "system.txt").write_text("@ first.\nThen:\n")
    (tmp_path / "schema.json").write_text('{"type": "object", "properties": {"a": {"type": "integer"}}}')
    (tmp_path / "tools.py").write_text('def shout(text: str) -> str:\n    "Shout."\n    return text\n')
    flags = ["-s", "@system.txt", "--json-schema", "schema.json", "--tools-file", "tools.py"]
    assert leap("saved", "templates", "add", "t", *flags).code == 0
    (tmp_path / "system.txt").unlink()
    (tmp_path / "schema.json").unlink()
    asked = request(leap, "--template", "t", "x", answer='{"a": 1}')
    assert asked.messages[0].text == "@ first.\nThen:"
    assert "integer" in asked.options.json_schema_constraint
    assert [function.name for function in asked.functions] == ["shout"]
    shown = json.loads(leap("saved", "templates", "show", "t", "--format", "json").stdout)
    assert shown["options"]["tools_file"] == [str(tmp_path / "tools.py")]


def test_a_grammar_is_saved_as_its_text(leap, tmp_path):
    (tmp_path / "yes.lark").write_text('start: "yes"\n')
    assert leap("saved", "templates", "add", "t", "--grammar", "yes.lark").code == 0
    (tmp_path / "yes.lark").unlink()
    assert request(leap, "--template", "t", "x", answer="yes").options.grammar_constraint == 'start: "yes"\n'


@pytest.mark.parametrize(
    ("pattern", "given", "prompt"),
    [
        ("{input}", ["x"], "x"),
        ("A {input} and {input} {oth er}", ["{input}"], "A {input} and {input} {oth er}"),
        ("Say hello.", [], "Say hello."),
        ("Sum up:", ["this"], "Sum up:\n\nthis"),
        ("Mind the\n\n  lines: {input}\n\"quoted\" \\n '''", ["x"], "Mind the\n\n  lines: x\n\"quoted\" \\n '''"),
    ],
)
def test_patterns_are_filled_with_the_input(leap, pattern, given, prompt):
    assert leap("saved", "templates", "add", "t", pattern, "--seed", "1").code == 0
    asked = request(leap, "--template", "t", *given)
    assert asked.messages[-1].text == prompt and asked.options.rng_seed == 1


def test_files_are_a_part_of_the_input(leap, tmp_path):
    (tmp_path / "report.txt").write_text("all is well")
    leap("saved", "templates", "add", "t", "<<{input}>>")
    asked = request(leap, "--template", "t", "-f", "report.txt", "Sum up.")
    assert asked.messages[-1].text == "<<report.txt:\n```\nall is well\n```\n\nSum up.>>"


def test_a_file_written_by_hand(leap, directory):
    (directory / "mine.toml").write_text(
        'system = "Be brief."\n[options]\nstats = true\nstop = ["END"]\nthink = "hide"\ncount = 2\n'
    )
    runner = leap.script("a", "a")
    done = leap("generate", "--template", "mine", "x")
    assert done.code == 0 and done.stdout == "a\n---\na\n" and "tokens/s" in done.stderr
    assert runner.requests[0].options.enable_thinking


def test_a_template_is_replaced_only_on_request(leap):
    leap("saved", "templates", "add", "t", "one {input}")
    refused = leap("saved", "templates", "add", "t", "two {input}")
    assert refused.code == 2 and "--replace replaces it" in refused.stderr
    assert leap("saved", "templates", "add", "t", "two {input}", "--replace").code == 0
    assert "two" in leap("saved", "templates", "show", "t").stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["generate", "--template", "frensh", "x"], "there is no template 'frensh'; did you mean french?"),
        (["generate", "--template", "zzz", "x"], "leap saved templates list shows"),
        (["generate", "--template", "../french", "x"], "cannot name a template"),
        (["generate", "--template", "french"], "the prompt is empty"),
        (["generate", "--template", "french", "--raw", "x"], "--raw cannot be combined with --system (it is set in "),
        (["saved", "templates", "show", "frensh"], "did you mean french?"),
        (["saved", "templates", "remove", "frensh"], "did you mean french?"),
        (["saved", "templates", "add", "a/b", "x"], "cannot name a template"),
        (["saved", "templates", "add", ".hidden", "x"], "cannot name a template"),
        (["saved", "templates", "add", "x", " "], "the prompt is empty"),
        (["saved", "templates", "add", "x"], "there is nothing to save"),
        (["saved", "templates", "add", "x", "--option", "about=nothing"], "there is nothing to save"),
        (["saved", "templates", "add", "x", "--temperature", "-1"], "temperature"),
        (["saved", "templates", "add", "x", "--regex", "a", "--choices", "b"], "cannot be combined"),
        (["saved", "templates", "add", "x", "-s", "@missing"], "cannot read missing"),
    ],
)
def test_template_errors_are_one_line(leap, leap_home, args, says):
    leap("saved", "templates", "add", "french", "Translate: {input}", "-s", "Be exact.")
    done = leap(*args)
    assert (done.code, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.count("\n") == 1
    assert [path.name for path in (leap_home / "templates").iterdir()] == ["french.toml"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prompt = ", "mine.toml: "),
        ("\xff", "mine.toml: "),
        ("prompt = 3", "mine.toml: prompt must be a text"),
        ('system = ""', "mine.toml: system must be a text, and not empty"),
        ('promt = "x"', "there is no 'promt' in a template"),
        ('options = "x"', "mine.toml: options must be a table"),
        ("[options]\ntemprature = 1", "there is no option options.generate.temprature; did you mean temperature?"),
        ("[options]\ntemperature = 'hot'", "mine.toml: temperature: 'hot' is not a valid float"),
        ("[options]\nstats = 1", "mine.toml: stats must be true or false"),
        ("[options]\nsession = 'x'", "mine.toml: the option session cannot be part of a template"),
    ],
)
def test_an_invalid_file_is_named(leap, directory, text, says):
    (directory / "mine.toml").write_bytes(text.encode("latin-1"))
    done = leap("generate", "--template", "mine", "x")
    assert (done.code, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.count("\n") == 1


def test_an_invalid_template_hides_no_other(leap, directory):
    (directory / "wrong.toml").write_text("prompt = 3")
    (directory / "right.toml").write_text('prompt = "x"')
    done = leap("saved", "templates", "list", "--format", "quiet")
    assert (done.code, done.stdout) == (0, "right\n") and "wrong.toml" in done.stderr


def test_a_binary_file_hides_no_other_and_can_be_edited(leap, directory):
    (directory / "wrong.toml").write_bytes(b'about = "caf\xe9"')
    (directory / "folder.toml").mkdir()
    (directory / "right.toml").write_text('prompt = "x"')
    done = leap("saved", "templates", "list", "--format", "quiet")
    assert (done.code, done.stdout) == (0, "right\n") and "wrong.toml" in done.stderr and "folder" not in done.stderr
    leap.variables["VISUAL"] = "true"
    assert leap("saved", "templates", "edit", "wrong").code == 0


def test_saved_lists_every_kind(leap):
    leap("saved", "templates", "add", "french", "Translate: {input}")
    leap("saved", "schemas", "add", "person", "name")
    rows = json.loads(leap("saved", "--format", "json").stdout)
    assert [(row["name"], row["kind"]) for row in rows] == [("french", "template"), ("person", "schema")]

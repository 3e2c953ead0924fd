"""One rule for ``-o`` in all commands: never an input, by whatever name; a form by its ending; text as text."""

from __future__ import annotations

import io
import os

import pytest

COMMANDS = [
    ("generate", "-f", "{}", "Sum up", "-o"),
    ("generate", "Hi", "--system", "@{}", "-o"),
    ("translate", "{}", "--to", "de", "-o"),
    ("summarize", "{}", "-o"),
    ("redact", "{}", "-o"),
    ("redact", "{}", "--map"),
    ("extract", "{}", "--json-schema", "name", "-o"),
    ("extract", "{}", "--json-schema", "name", "--errors"),
    ("classify", "{}", "--labels", "a,b", "-o"),
    ("transcribe", "{}", "-o"),
    ("embed", "--lines", "-f", "{}", "-o"),
    ("summarize", "{}", "--errors"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("name", ["in.txt", "./in.txt", "../{}/in.txt", "link.txt", "hard.txt", "{}/in.txt"])
def test_an_input_is_never_overwritten(leap, tmp_path, command, name):
    (tmp_path / "in.txt").write_text("precious")
    (tmp_path / "link.txt").symlink_to("in.txt")
    os.link(tmp_path / "in.txt", tmp_path / "hard.txt")
    place = str(tmp_path) if name.startswith("{}") else tmp_path.name
    leap.script(*["answer"] * 3)
    done = leap(*(word.format("in.txt") for word in command), name.format(place))
    assert done.code == 2 and "would overwrite" in done.stderr and done.stdout == ""
    assert (tmp_path / "in.txt").read_text() == "precious"


def test_standard_input_from_a_file_is_never_overwritten(leap, tmp_path):
    (tmp_path / "in.txt").write_text("precious")
    runner = leap.script("answer")
    from leap_cli.main import main

    env = leap.environment("", terminal=False, stdin_terminal=False)
    with (tmp_path / "in.txt").open("rb") as stdin:
        object.__setattr__(env, "stdin", stdin)
        assert main(("generate", "Sum up", "-o", "in.txt"), env) == 2
    assert isinstance(env.stderr, io.StringIO)
    assert "standard input and --output name the same file" in env.stderr.getvalue()
    assert (tmp_path / "in.txt").read_text() == "precious" and runner.requests == []


def test_a_prompt_that_is_also_the_name_of_its_output_is_a_prompt(leap, tmp_path):
    (tmp_path / "notes").write_text("old")
    leap.script("new")
    assert leap("generate", "notes", "-o", "notes").code == 0
    assert (tmp_path / "notes").read_text() == "new\n"


@pytest.mark.parametrize("name", ["orders.xlsx", "orders.ODS", "orders.parquet", "orders.pdf"])
def test_a_binary_suffix_of_a_text_output_is_refused(leap, tmp_path, name):
    for command in (("generate", "Hi"), ("extract", "--json-schema", "name", "text")):
        leap.script('{"name": "Ann"}')
        done = leap(*command, "-o", name)
        assert done.code == 2 and "would be no" in done.stderr and not (tmp_path / name).exists()


def test_an_extraction_has_the_format_of_its_suffix(leap, tmp_path):
    expected = {"a.csv": "name\nAnn\n", "a.jsonl": '{"name": "Ann"}\n', "a.txt": '{"name": "Ann"}\n'}
    for name, text in expected.items():
        leap.script('{"name": "Ann"}')
        assert leap("extract", "--json-schema", "name", "-o", name, stdin="Ann is here").code == 0
        assert (tmp_path / name).read_text() == text
    leap.script('{"name": "Ann"}')
    assert leap("extract", "--json-schema", "name", "--format", "jsonl", "-o", "b.csv", stdin="Ann is here").code == 0
    assert (tmp_path / "b.csv").read_text() == expected["a.jsonl"]

"""Answers with a shape, by the built-in model, as a shell sees them."""

from __future__ import annotations

import json

import pytest

ANN = "Ann is 31 years old."
GREEDY = ("-m", "builtin", "--temperature", "0")


def test_extraction_with_a_schema(program):
    done = program("generate", *GREEDY, "--json-schema", "name, age int", ANN)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"name": "Ann", "age": 31}


def test_a_schema_from_a_file_and_a_list(program, tmp_path):
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    (tmp_path / "person.json").write_text(json.dumps(schema))
    done = program("generate", *GREEDY, "--json-schema", "person.json", ANN)
    assert done.returncode == 0 and isinstance(json.loads(done.stdout)["name"], str)
    many = program("generate", *GREEDY, "--json-schema-multi", "n int", "--max-tokens", "200", "The numbers 1 and 2.")
    if many.returncode == 0:
        assert all(isinstance(item["n"], int) for item in json.loads(many.stdout))
    else:
        assert many.returncode == 6 and "--max-tokens" in many.stderr or "max_tokens" in many.stderr


def test_a_schema_that_takes_the_lenient_path(program):
    schema = (
        '{"type": "object", "properties": {"name": {"type": "string", "not": {"const": ""}}}, "required": ["name"]}'
    )
    done = program("generate", *GREEDY, "--json-schema", schema, ANN)
    assert done.returncode == 0 and json.loads(done.stdout)["name"]
    assert "not is not enforced while generating, but checked afterwards (/properties/name/not)" in done.stderr


def test_a_lenient_schema_that_is_never_satisfied_exits_with_6(program):
    schema = '{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "not": {}}'
    done = program("generate", *GREEDY, "--json-schema", schema, "--format", "json", ANN)
    assert (done.returncode, done.stdout) == (6, "")
    assert "after 3 tries" in done.stderr


def test_an_incomplete_document_is_never_a_success(program):
    done = program("generate", *GREEDY, "--json-schema", "name, age int", "--max-tokens", "3", "--format", "json", ANN)
    assert (done.returncode, done.stdout) == (6, "") and "cut at max_tokens" in done.stderr
    assert done.stderr.count("\n") == 1


def test_complete_json_ends_a_document_within_max_tokens(program):
    shape = ("--json-schema", "name, age int", "--max-tokens", "16")
    done = program("generate", *GREEDY, *shape, "--complete-json", "--format", "json", "Ada Lovelace was 36 years old.")
    answer = json.loads(done.stdout)
    assert done.returncode == 0 and answer["finish_reason"] == "max_tokens"
    assert json.loads(answer["message"]["content"]).keys() == {"name", "age"}
    assert "completed early" in done.stderr and "cut at --max-tokens" in done.stderr
    without = program("generate", *GREEDY, *shape, "Ada Lovelace was 36 years old.")
    assert without.returncode in (0, 6) and (without.returncode == 0 or "--complete-json" in without.stderr)


@pytest.mark.parametrize(("option", "whole"), [("--complete-json", True), ("--no-complete-json", False), ("", True)])
def test_complete_json_ends_lines_of_a_batch_within_max_tokens(program, tmp_path, option: str, whole: bool):
    (tmp_path / "in.jsonl").write_text('{"prompt": "Ada Lovelace was a lady who was 36 years old."}\n')
    shape = ("--json-schema", "name, more, age int", "--max-tokens", "22", *([option] if option else []))
    done = program("batch", "in.jsonl", "-m", "builtin", "--temperature", "0", *shape, "-q")
    line = json.loads(done.stdout)
    assert (line["error"] is None) is whole and done.returncode == (0 if whole else 8), done.stdout
    if whole:
        (choice,) = line["response"]["body"]["choices"]
        assert json.loads(choice["message"]["content"]).keys() == {"name", "more", "age"}
        assert choice["finish_reason"] == "length"


def test_additional_keys_are_allowed_only_on_request(program):
    schema = '{"type": "object", "properties": {"name": {"type": "string"}}}'
    done = program("generate", *GREEDY, "--json-schema", schema, "--option", "schema-in-prompt=false", ANN)
    assert json.loads(done.stdout).keys() <= {"name"} and done.stdout.count("\n") == 1
    opened = program(
        "extract", "-m", "builtin", "--json-schema", schema, "--option", "additional-properties", stdin=ANN
    )
    assert opened.returncode == 0, opened.stderr


@pytest.mark.parametrize("schema", ["{", '{"type": "strin"}', '{"allOf": [{"type": "string"}, {"type": "null"}]}'])
def test_an_unusable_schema_exits_with_6_before_anything_is_generated(program, schema):
    done = program("generate", *GREEDY, "--json-schema", schema, ANN)
    assert (done.returncode, done.stdout) == (6, "") and done.stderr.count("\n") == 1


def test_a_schema_or_grammar_longer_than_a_file_name(program):
    fields = [f"field{n} int: the number of whatever comes at place {n}" for n in range(8)]
    shown = program("saved", "schemas", "show", ", ".join(fields))
    assert len(json.loads(shown.stdout)["properties"]) == 8, shown.stderr
    grammar = "start: " + " | ".join(f'"greeting{n}"' for n in range(30))
    done = program("generate", *GREEDY, "--grammar", grammar, "Say hello.")
    assert done.returncode == 0 and done.stdout.startswith("greeting")


def test_a_file_of_a_grammar_of_llama_cpp(program, tmp_path):
    (tmp_path / "answer.gbnf").write_text('# Yes or no\nroot ::= start "!"\nstart ::= "\\x59es" | "No"\n')
    done = program("generate", *GREEDY, "--grammar", str(tmp_path / "answer.gbnf"), "Is Paris in France?")
    assert done.returncode == 0 and done.stdout in ("Yes!\n", "No!\n"), done.stderr


def test_choices_and_regular_expressions(program):
    done = program("generate", *GREEDY, "--choices", "yes,no", "Is Paris in France?")
    assert done.returncode == 0 and done.stdout in ("yes\n", "no\n")
    done = program("generate", *GREEDY, "--regex", r"\d{4}", "When?")
    assert done.returncode == 0 and len(done.stdout) == 5 and done.stdout.strip().isdigit()
    done = program("generate", *GREEDY, "--grammar", 'start: "a" /[bc]{3}/', "Go.")
    assert done.returncode == 0 and done.stdout[0] == "a" and set(done.stdout[1:4]) <= {"b", "c"}
    assert program("generate", *GREEDY, "--regex", "(", "Go.").returncode == 6


def test_the_schema_commands(program):
    assert json.loads(program("saved", "schemas", "show", "a int").stdout)["properties"]["a"] == {"type": "integer"}
    assert program("saved", "schemas", "check", '{"uniqueItems": true, "type": "array"}', "--strict").returncode == 6

"""``leap saved schemas``, and names of saved schemas wherever a schema is taken."""

from __future__ import annotations

import json
import sys

import pytest

ANN = '{"name": "Ann", "age": 3}'


@pytest.fixture
def person(leap):
    done = leap("saved", "schemas", "add", "person", "name, age int")
    assert (done.code, done.stdout) == (0, "") and done.stderr.endswith("person.json\n")
    return json.loads(leap("saved", "schemas", "show", "person").stdout)


def constraint(leap, *args, answer=ANN, stdin=""):
    """The schema that a model is held to by a command."""
    runner = leap.script(answer)
    done = leap(*args, stdin=stdin)
    assert done.code == 0, done.stderr
    return json.loads(runner.requests[0].options.json_schema_constraint)


def test_a_saved_name_is_accepted_wherever_a_schema_is(leap, person, tmp_path):
    assert set(person["properties"]) == {"name", "age"}
    line = '{"prompt": "x"}\n'
    assert constraint(leap, "generate", "--json-schema", "person", "x") == person
    assert constraint(leap, "chat", "--json-schema", "person", stdin="x\n") == person
    assert constraint(leap, "batch", "-", "--json-schema", "person", stdin=line) == person
    assert set(constraint(leap, "extract", "--json-schema", "person", stdin="x")["properties"]) == {"name", "age"}
    many = constraint(leap, "generate", "--json-schema-multi", "person", "x", answer=f"[{ANN}]")
    assert person in (many["items"], many["properties"]["items"]["items"] if "properties" in many else None)
    leap("saved", "templates", "add", "t", "--json-schema", "person")
    leap("saved", "schemas", "remove", "person")
    assert constraint(leap, "generate", "-t", "t", "x") == person
    leap("saved", "schemas", "add", "person", "name")
    leap.variables["LEAP_GENERATE_JSON_SCHEMA"] = "person"
    assert set(constraint(leap, "generate", "x", answer='{"name": "Ann"}')["properties"]) == {"name"}


def test_a_file_has_priority_over_a_name_and_a_name_over_a_shorthand(leap, person, tmp_path):
    assert json.loads(leap("saved", "schemas", "show", "people").stdout)["properties"].keys() == {"people"}
    (tmp_path / "person").write_text('{"type": "object", "properties": {"b": {"type": "string"}}}')
    for spelling in ("person", "@person"):
        assert json.loads(leap("saved", "schemas", "show", spelling).stdout)["properties"].keys() == {"b"}


def test_a_misspelled_name_is_not_a_shorthand(leap, person):
    done = leap("generate", "--json-schema", "persn", "x")
    assert (done.code, done.stdout) == (2, "") and "no schema 'persn'; did you mean person?" in done.stderr
    assert json.loads(leap("saved", "schemas", "show", "persn str").stdout)["properties"].keys() == {"persn"}


def test_schemas_are_listed(leap, leap_home):
    assert "no schema is saved" in leap("saved", "schemas").stderr
    leap("saved", "schemas", "add", "b", "name, age int")
    leap("saved", "schemas", "add", "a", "n int", "--multi")
    (leap_home / "schemas" / "broken.json").write_text("{")
    (leap_home / "schemas" / "latin.json").write_bytes(b'"\xe9"')
    (leap_home / "schemas" / "folder.json").mkdir()
    done = leap("saved", "schemas", "list", "--format", "jsonl")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["name"] for row in rows] == ["a", "b"] and rows[1]["fields"] == "name string, age integer"
    assert done.code == 0 and "broken.json is not JSON" in done.stderr and "latin.json" in done.stderr
    assert leap("saved", "schemas", "list", "--format", "quiet").stdout == "a\nb\n"


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["add", "person", "a"], 2, "there is a schema person already; leap saved schemas add --replace replaces it"),
        (["add", "a/b", "a"], 2, "cannot name a schema"),
        (["add", "true", "a"], 2, "cannot name a schema"),
        (["add", "x", '{"type": "strin"}'], 6, "strin"),
        (["add", "x", "missing.json"], 2, "cannot read missing.json"),
        (["edit", "persn"], 2, "did you mean person?"),
        (["remove", "zzz"], 2, "leap saved schemas list shows"),
    ],
)
def test_schema_errors_are_one_line(leap, leap_home, person, args, code, says):
    done = leap("saved", "schemas", *args)
    assert (done.code, done.stdout, done.stderr.count("\n")) == (code, "", 1) and says in done.stderr
    assert [path.name for path in (leap_home / "schemas").iterdir()] == ["person.json"]


@pytest.mark.slow
def test_editing_accepts_only_a_valid_schema(leap, leap_home, tmp_path, person):
    script = tmp_path / "editor.py"
    file = leap_home / "schemas" / "person.json"

    def edit(text: str):
        script.write_text(f"import sys\nopen(sys.argv[-1], 'w').write({text!r})\n")
        leap.variables["VISUAL"] = f"{sys.executable} {script}"
        return leap("saved", "schemas", "edit", "person")

    assert edit('{"type": "string"}').code == 0 and json.loads(file.read_text()) == {"type": "string"}
    for text in ("{", '{"type": "strin"}'):
        done = edit(text)
        assert done.code == 6 and "nothing was changed" in done.stderr
    assert json.loads(file.read_text()) == {"type": "string"}

"""Files of cases: leap's own, and those of other programs as they are."""

from __future__ import annotations

import json

import pytest

from leap_core.errors import LeapError
from leap_core.evaluation.cases import read_cases
from leap_core.evaluation.promptfoo import case_of


def file(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text), "utf-8")
    return path


def shown(cases):
    return [(case.id, case.request, [(each.name, each.value) for each in case.expectations]) for case in cases.cases]


def test_jsonl_yaml_and_csv_give_the_same_cases(tmp_path):
    lines = '{"id": "a", "prompt": "Hi", "expect": {"contains": "x"}, "group": "g", "weight": 2}\n'
    yaml = "- id: a\n  prompt: Hi\n  expect: {contains: x}\n  group: g\n  weight: 2\n"
    table = "id,prompt,contains,group,weight\na,Hi,x,g,2\n"
    read = [
        read_cases(file(tmp_path, name, text))
        for name, text in [("c.jsonl", lines), ("c.yaml", yaml), ("c.csv", table)]
    ]
    assert shown(read[0]) == shown(read[1]) == shown(read[2]) == [("a", {"prompt": "Hi"}, [("contains", ["x"])])]
    assert all((each.cases[0].group, each.cases[0].weight) == ("g", 2) for each in read)


def test_other_columns_of_a_table_are_variables(tmp_path):
    (case,) = read_cases(file(tmp_path, "c.csv", 'text,expect\nBonjour,"{""regex"": ""^G""}"\n')).cases
    assert case.variables == {"text": "Bonjour"} and case.request == {} and case.expectations[0].name == "regex"


def test_promptfoo_files_are_read(tmp_path):
    config = """
prompts: ["Translate {{text}} to {{language}}", {role: x}]
providers: [openai:gpt]
defaultTest: {vars: {language: French}, assert: [{type: not-contains, value: sorry}]}
tests:
  - description: greeting
    vars: {text: Hello}
    assert:
      - {type: icontains, value: "{{text}}", weight: 2}
      - {type: similar, value: Bonjour, threshold: 0.8}
      - {type: javascript, value: "output.length < 9"}
      - {type: is-json, value: {type: object}}
      - {type: python, value: "file://checks.py:good"}
  - vars: {text: Bye}
    assert: [{type: latency, threshold: 5}]
"""
    read = read_cases(file(tmp_path, "promptfooconfig.yaml", config))
    assert read.templates == ("Translate {text} to {language}",)
    first, second = read.cases
    assert first.id == "greeting" and first.variables == {"language": "French", "text": "Hello"}
    assert [each.name for each in first.expectations] == ["not_contains", "contains", "similar", "schema", "python"]
    assert first.expectations[1].value == ["Hello"] and first.expectations[1].weight == 2
    assert [each.name for each in second.expectations] == ["not_contains"]
    told = " ".join(read.unsupported)
    for what in ("providers is not supported", "prompt 2", "javascript", "latency"):
        assert what in told


def test_promptfoo_tables_are_read(tmp_path):
    text = 'question,__expected,__expected2\nWhat?,"icontains: Rome",similar(0.9): Roma\nWho?,me,\n'
    one, other = read_cases(file(tmp_path, "t.csv", text)).cases
    assert [(each.name, each.value, each.settings) for each in one.expectations] == [
        ("contains", ["Rome"], {"ignore_case": True}),
        ("similar", "Roma", {"threshold": 0.9}),
    ]
    assert one.variables == {"question": "What?"} and other.expectations[0].value == ["me"]


def test_evals_and_inspect_files_are_read(tmp_path):
    lines = [
        {"input": [{"role": "user", "content": "2+2?"}], "ideal": ["4", "four"]},
        {"input": "The capital?", "target": "Rome", "id": 7},
        {"input": "Which?", "target": "B", "choices": ["x", "y"], "setup": "apt install"},
        {"item": {"input": "Hi", "ideal": "Hello"}},
    ]
    read = read_cases(file(tmp_path, "c.jsonl", "".join(json.dumps(line) + "\n" for line in lines)))
    assert [[(each.name, each.value) for each in case.expectations] for case in read.cases] == [
        [("starts_with", ["4", "four"])],
        [("contains", ["Rome"])],
        [("choice", "B")],
        [("starts_with", ["Hello"])],
    ]
    assert read.cases[1].id == "7" and "A) x\nB) y" in read.cases[2].request["prompt"]
    assert read.unsupported == ("line 3: setup is not supported",)


def test_questions_of_the_function_calling_leaderboard_are_read(tmp_path):
    question = {
        "id": "simple_0",
        "question": [[{"role": "user", "content": "Area?"}]],
        "function": [
            {
                "name": "geo.area",
                "description": "d",
                "parameters": {
                    "type": "dict",
                    "properties": {
                        "base": {"type": "float"},
                        "any": {"type": "any"},
                        "l": {"type": "tuple", "items": {"type": "dict", "properties": {}}},
                    },
                    "required": ["base"],
                },
            }
        ],
    }
    path = file(tmp_path, "BFCL_v4_simple.json", json.dumps(question) + "\n")
    with pytest.raises(LeapError, match="no expected answer for simple_0"):
        read_cases(path)
    (tmp_path / "possible_answer").mkdir()
    answer = {"id": "simple_0", "ground_truth": [{"geo.area": {"base": [3], "any": [""]}}]}
    file(tmp_path, "possible_answer/BFCL_v4_simple.json", answer)
    (case,) = read_cases(path).cases
    function = case.request["tools"][0]["function"]
    assert function["name"] == "geo_area" and function["parameters"]["type"] == "object"
    assert function["parameters"]["properties"]["base"] == {"type": "number"}
    assert function["parameters"]["properties"]["any"] == {}
    assert function["parameters"]["properties"]["l"]["items"]["type"] == "object"
    assert case.expectations[0].value == [("geo.area", {"base": [3], "any": [""]})] and case.group == "simple"
    turns = {"id": "multi_turn_0", "question": [[], []], "path": []}
    with pytest.raises(LeapError, match="only questions of one turn"):
        read_cases(file(tmp_path, "BFCL_v4_multi_turn.json", json.dumps(turns) + "\n" + json.dumps(turns)))
    irrelevant = {**question, "id": "irrelevance_3"}
    (case,) = read_cases(file(tmp_path, "BFCL_v4_irrelevance.json", irrelevant)).cases
    assert case.expectations[0].value == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.jsonl", '{"prompt": "x"}\n', "c.jsonl, line 1: expect: missing"),
        ("c.jsonl", '{"prompt": "x", "expect": "a"}\n{"prompt"', "c.jsonl: line 2: not JSON"),
        (
            "c.jsonl",
            '{"id": "a", "prompt": "x", "expect": "a"}\n{"id": "a", "prompt": "y", "expect": "b"}',
            "already at line 1",
        ),
        ("c.jsonl", '{"expect": "a"}', "asks nothing"),
        ("c.jsonl", "", "has no cases"),
        ("c.yaml", "a: [", "is not YAML"),
        ("c.yaml", "- !!python/object/apply:os.system [ls]", "is not YAML"),
        ("c.jsonl", '{"prompt": "x", "expect": "a", "weight": 0}', "weight: expected a number above 0"),
    ],
)
def test_invalid_cases_are_refused(tmp_path, name, text, message):
    with pytest.raises(LeapError) as caught:
        read_cases(file(tmp_path, name, text))
    assert message in caught.value.message


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(LeapError, match="cannot read"):
        read_cases(tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize(
    "cell",
    [
        *("levenshtein(5): hello", "javascript: output.length > 1", "fn: output.length", "contains-json", "is-refusal"),
        *("latency(1000)", "not-is-refusal", "cost(0.01)", "rouge-n(0.6): text", "similar:cosine(0.8): x", "is-xml"),
    ],
)
def test_an_unknown_assertion_of_a_table_is_skipped_and_reported(cell):
    cases, unsupported = case_of({"q": "1", "__expected": cell, "__expected2": "contains: a"})
    assert [case["expect"] for case in cases] == [[{"contains": "a"}]]
    assert len(unsupported) == 1 and "is not supported" in unsupported[0]
    cases, unsupported = case_of({"q": "1", "__expected": cell})
    assert cases == [] and "left out" in unsupported[-1]


@pytest.mark.parametrize("cell", ["Note: hello", "https://x.org", "12:30", "Paris", "a-b: c", "file://x.json"])
def test_a_table_text_with_a_colon_is_not_an_assertion(cell):
    cases, unsupported = case_of({"q": "1", "__expected": cell})
    assert [case["expect"] for case in cases] == [[{"equals": cell}]] and unsupported == []


def test_a_quoted_comma_of_a_list_is_a_comma():
    cases, _ = case_of({"q": "1", "__expected": 'contains-any: "a, b", c'})
    assert cases[0]["expect"] == [{"contains_any": ["a, b", "c"]}]


def test_words_that_yaml_1_1_reads_as_booleans_are_strings(tmp_path):
    from leap_core.batch.input.small_files import read_yaml

    text = b"enum: [on, off, yes, no, y, n, On]\ntruth: [true, False]\nday: 2026-01-02\nn: 3"
    assert read_yaml(text) == {
        "enum": ["on", "off", "yes", "no", "y", "n", "On"], "truth": [True, False], "day": "2026-01-02", "n": 3,
    }  # fmt: skip

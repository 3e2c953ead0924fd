"""One prompt with all that can go with it, on the built-in model and in real processes."""

from __future__ import annotations

import json
import signal

import pytest

from .conftest import LONG, QUESTION

BUILTIN = ("-m", "builtin")


@pytest.mark.parametrize(
    "line",
    [
        f'leap "{QUESTION}"',
        f'leap -m builtin --temperature 0 "{QUESTION}"',
        f'echo "{QUESTION}" | leap -',
        f'echo "{QUESTION}" | leap -m builtin',
        f'echo "{QUESTION}" > question; leap generate -m builtin < question',
        f'leap "{QUESTION}" -o answer.txt && cat answer.txt',
        f'leap -o /dev/stdout "{QUESTION}"',
        'leap saved templates add capital "What is the capital of {input}?" && leap generate --template capital France',
        f'leap --raw -m builtin "$(leap --dry-run -m builtin "{QUESTION}")"$\'\\n\'',
    ],
)
def test_prompts_from_files_and_standard_input(shell, line):
    done = shell(line)
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout and "error" not in done.stderr


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/dev/stderr"])
def test_output_to_an_open_descriptor_keeps_earlier_content(shell, name):
    line = f'(echo header; leap -o {name} -m builtin "{QUESTION}"; echo footer) > all.txt 2>&1; cat all.txt'
    assert shell(line).stdout.splitlines() == ["header", "The capital of France is Paris.", "footer"]
    assert (
        "Paris" in shell(f'echo first > a; leap -o /dev/stdout "{QUESTION}" >> a 2>/dev/null; grep -v first a').stdout
    )


@pytest.mark.parametrize(("name", "to"), [("/dev/stdout", "1"), ("/dev/fd/3", "3"), ("/proc/self/fd/3", "3")])
def test_a_batch_to_an_open_descriptor_appends(shell, tmp_path, name, to):
    (tmp_path / "in.jsonl").write_text(json.dumps({"prompt": QUESTION}) + "\n")
    batch = f"leap batch in.jsonl -m builtin -o {name} --format plain"
    done = shell(f"(echo header >&{to}; {batch} 2>/dev/null; echo footer >&{to}) {to}> all.txt; cat all.txt")
    header, answer, footer = done.stdout.splitlines()
    assert (header, footer) == ("header", "footer") and "Paris" in json.loads(answer)["text"]


def test_a_closed_descriptor_is_a_one_line_error(program):
    done = program(*BUILTIN, "-o", "/dev/fd/99999999999999999999", QUESTION)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1) and "cannot write /dev/fd/9" in done.stderr
    assert "Paris" in done.stdout, "the answer is not lost"


def test_a_dry_run_counts_what_the_answer_reads(program, tmp_path):
    (tmp_path / "report.txt").write_text("All is well.\n")
    asked = (*BUILTIN, "--no-host", "-s", "Be brief.", "-f", "report.txt", "--json-schema", "a int", "What is it?")
    dry = json.loads(program(*asked, "--dry-run", "--format", "json").stdout)
    done = program(*asked, "--stats", "--format", "jsonl", "--max-tokens", "200")
    stats = json.loads(done.stdout.splitlines()[-1])["stats"]
    assert dry["tokens"] == stats["prompt_tokens"]
    assert dry["prompt"].startswith("<|startoftext|>") and "report.txt:\n```\nAll is well.\n```" in dry["prompt"]
    assert '"a"' in dry["prompt"], "the schema is shown to the model"


def test_each_of_several_answers_can_be_reproduced_by_its_seed(program):
    every_token = ("--temperature", "3", "--top-k", "0", "--top-p", "1", "--min-p", "0")
    hot = (*every_token, "--threads", "1", "--max-tokens", "12", "--format", "json")
    answers = json.loads(program(*BUILTIN, *hot, "-n", "3", "--seed", "5", "Say hello.").stdout)
    texts = [answer["message"].get("content") for answer in answers]
    assert [answer["index"] for answer in answers] == [0, 1, 2] and len(set(texts)) > 1
    alone = json.loads(program(*BUILTIN, *hot, "--seed", "6", "Say hello.").stdout)
    assert alone["message"].get("content") == texts[1]


def test_a_template_with_a_schema_constrains_the_answer(program):
    added = program(
        "saved", "templates", "add", "order", "Extract the order: {input}", "--json-schema", "item, quantity int"
    )
    assert added.returncode == 0, added.stderr
    done = program("generate", *BUILTIN, "--template", "order", "2 red lamps for $8")
    assert set(json.loads(done.stdout)) == {"item", "quantity"}, done.stderr


def test_ctrl_c_stops_all_answers_and_keeps_their_text(start):
    process = start("generate", *BUILTIN, "-n", "2", "--format", "jsonl", LONG)
    first = json.loads(process.stdout.readline())
    assert (first["index"], first["type"]) == (0, "chunk")
    process.send_signal(signal.SIGINT)
    ends = [event for event in map(json.loads, process.stdout) if event["type"] == "complete"]
    assert process.wait(60) == 130
    assert [(end["index"], end["finish_reason"]) for end in ends] == [(0, "interrupted"), (1, "interrupted")]


SPELLED = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    "asked", [("--raw", SPELLED), ("--dry-run", QUESTION), ("-n", "2", QUESTION)], ids=lambda asked: asked[0]
)
def test_a_loaded_model_does_the_same(program, asked):
    """The host's runner and the one in this process are asked in the same words."""
    asked = (*asked, *BUILTIN, "--temperature", "0", "--max-tokens", "20")
    here = program("generate", *asked, "--no-host")
    try:
        assert program("load", "builtin").returncode == 0
        there = program("generate", *asked, "--host")
    finally:
        program("unload", "--all")
    assert (here.returncode, there.returncode) == (0, 0), there.stderr
    assert there.stdout == here.stdout != ""

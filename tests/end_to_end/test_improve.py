"""``leap improve`` and ``leap train`` as programs: the built-in model, kills, wrong input; training where torch is."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")

FOOD = ["bread", "soup", "cheese", "apple", "rice", "cake", "pasta", "salad", "honey", "onion"]
CARS = ["engine", "wheel", "brake", "tyre", "motor", "clutch", "bumper", "gear", "diesel", "garage"]
REST = ["the", "my", "a", "old", "new", "red", "big", "small", "one", "good"]


def pairs(count: int, seed: int = 1) -> list[tuple[str, str]]:
    dice = random.Random(seed)
    made = []
    for _ in range(count):
        is_food = dice.random() < 0.5
        word = dice.choice(FOOD if is_food else CARS)
        made.append((f"{dice.choice(REST)} {dice.choice(REST)} {word}", "yes" if is_food else "no"))
    return made


def write_cases(path: Path, count: int) -> None:
    lines = (
        {"id": f"c{n}", "prompt": asked, "expect": {"equals": answer}} for n, (asked, answer) in enumerate(pairs(count))
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.slow
def test_a_model_is_limited_to_the_labels_and_the_template_is_saved(program, tmp_path):
    write_cases(tmp_path / "cases.jsonl", 60)
    command = ("improve", "cases.jsonl", "-m", "builtin", "--max-tokens", "4", "--to", "0.3", "--save-template", "food")
    done = program(*command)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "cases.improve" / "improved.json").read_text())
    assert found["improved"] and found["steps"][1]["variant"] == "one of the labels" and found["p"] < 0.05
    assert (
        "# Better than it was" in done.stdout and "<table>" in (tmp_path / "cases.improve" / "report.html").read_text()
    )
    assert program("-t", "food", "old bread").stdout.strip() in ("yes", "no")
    before = (tmp_path / "cases.improve" / "improved.json").read_text()
    assert program(*command).returncode == 0
    after = json.loads((tmp_path / "cases.improve" / "improved.json").read_text())
    same = [(step["variant"], step["rate"], step["p"]) for step in after["steps"]]
    assert same == [(step["variant"], step["rate"], step["p"]) for step in json.loads(before)["steps"]]


@pytest.mark.slow
def test_cases_of_a_task_use_its_recipe(program, tmp_path):
    lines = (
        {"task": "classify", "labels": ["yes", "no"], "text": asked, "expect": {"equals": answer}}
        for asked, answer in pairs(40)
    )
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = program("improve", "cases.jsonl", "-m", "builtin", "--budget", "45", "--format", "json")
    found = json.loads(done.stdout)
    assert [step["step"] for step in found["steps"]] == ["baseline", "examples", "examples"], done.stderr
    columns = (tmp_path / "cases.improve" / "choose" / "columns").glob("examples*.jsonl")
    answered = [
        json.loads(line) for path in columns if ".lines." not in path.name for line in path.read_text().splitlines()
    ]
    assert len(answered) == 28 and all(each["error"] is None for each in answered)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_kills_do_not_change_the_result(program, start, tmp_path):
    """kill -9 again and again: the end is that of a run that nobody killed, and no request is answered twice."""
    write_cases(tmp_path / "cases.jsonl", 40)
    command = ("improve", "cases.jsonl", "-m", "builtin", "--max-tokens", "4", "--to", "0.95", "--format", "json")
    whole = json.loads(program(*command, "-o", "whole").stdout)
    for n in range(kills := 8):
        process = start(*command, "-o", "killed")
        time.sleep(0.35 + 0.8 * n / kills)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    killed = json.loads(program(*command, "-o", "killed").stdout)
    assert "examples" in [step["step"] for step in whole["steps"]]
    ways = [[(step["variant"], step["rate"], step["kept"]) for step in each["steps"]] for each in (whole, killed)]
    assert ways[0] == ways[1] and (whole["before"], whole["after"]) == (killed["before"], killed["after"])
    for column in (tmp_path / "killed" / "choose" / "columns").glob("*.jsonl"):
        if ".lines." not in column.name:
            ids = [json.loads(line)["custom_id"] for line in column.read_text().splitlines()]
            assert len(ids) == len(set(ids)) == 14


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("improve", "few.jsonl", "-m", "builtin"), 2, "3 cases are too few"),
        (("improve", "none.jsonl", "-m", "builtin"), 2, "none.jsonl"),
        (("improve", "silent.jsonl", "-m", "builtin"), 2, "what is expected"),
        (("improve", "few.jsonl", "-m", "builtin", "--budget", "much"), 2, "neither a number of requests nor a time"),
        (("improve", "few.jsonl", "-m", "builtin", "--checkpoint", "."), 2, "no config.json"),
        (("improve", "mixed.jsonl", "-m", "builtin"), 2, "several tasks"),
        (("improve", "tasks.jsonl", "-m", "builtin", "--system", "Hi"), 2, "--system is for prompts"),
        (("train", "few.jsonl", "-m", ".", "-o", "a.gguf"), None, ""),
        (("train", "few.jsonl", "-m", "nowhere", "-o", "a.gguf"), 2, "there is no nowhere"),
    ],
)
def test_wrong_input_is_a_one_line_error(program, tmp_path, arguments, code, said):
    write_cases(tmp_path / "few.jsonl", 3)
    (tmp_path / "silent.jsonl").write_text('{"prompt": "a"}\n' * 30)
    task = '{"task": "classify", "labels": ["a", "b"], "text": "c", "expect": {"equals": "a"}}\n'
    (tmp_path / "tasks.jsonl").write_text(task * 30)
    (tmp_path / "mixed.jsonl").write_text(task + '{"prompt": "a", "expect": {"equals": "a"}}\n')
    done = program(*arguments)
    assert done.returncode != 0 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    assert code is None or (done.returncode == code and said in done.stderr), done.stderr


@pytest.mark.slow
@pytest.mark.skipif(find_spec("peft") is None or find_spec("torch") is None, reason="needs leap-edge[train]")
def test_training_an_adapter_resumes_after_a_kill_and_lowers_the_loss(program, start, tmp_path, variables):
    import numpy as np

    sys.path.insert(0, str(Path(__file__).parent.parent.parent / "scripts"))
    import checkpoints

    from leap_core.models.resolving import resolve_local

    vocabulary = resolve_local("builtin").path
    checkpoints.write_checkpoint(tmp_path / "ck", "lfm2", vocabulary)
    settings = json.loads((tmp_path / "ck" / "config.json").read_text())
    tensors = checkpoints.tensors_of("lfm2", settings["vocab_size"], 7)
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"] * np.float32(10)
    checkpoints.write_shards(tmp_path / "ck", tensors, 1)
    lines = (
        {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]}
        for asked, answer in pairs(400)
    )
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = (
        "train",
        "train.jsonl",
        "-m",
        "ck",
        "-o",
        "food.gguf",
        "--option=rank=16",
        "--option=learning-rate=0.003",
    )
    for n in range(3):
        process = start(*command)
        time.sleep(6 + 2 * n)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    done = program(*command, "--format", "json")
    record = json.loads(done.stdout)
    assert record["loss_after"] < 0.1 < record["loss_before"] and record["difference"] < 1e-3, done.stderr
    assert program("models", "convert", "ck", "--to", "F16", "--name", "Tiny").returncode == 0
    cases = ({"prompt": asked, "expect": {"equals": answer}} for asked, answer in pairs(100, 99))
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(line) + "\n" for line in cases))
    shown = program(
        "eval",
        "cases.jsonl",
        "-m",
        "Tiny:F16",
        "--vary",
        "lora=none,food.gguf",
        "--max-tokens",
        "3",
        "--format",
        "json",
    )
    rates = [column["rate"] for column in json.loads(shown.stdout)["columns"]]
    assert rates[0] < 0.1 and rates[1] > 0.9

"""Every option of every command that has --background: the job gets it, or the command is refused with a line that says
so. What makes a job of a command, such as --at, shares the rules of --background."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from PIL import Image

from jobs.client import JobsClient
from leap_cli.config.settings import commands
from leap_cli.framework.arguments import WRITTEN
from leap_cli.framework.option_defaults import options_of
from leap_core.evaluation.improvement import lora
from leap_core.models.conversion.quantizing import QuantizeWork
from tests.wav_bytes import wav_of

LINES = {
    "generate": ["hi"],
    "say": ["hi", "-o", "spoken.wav"],
    "batch": ["b.jsonl", "-o", "o.jsonl"],
    "transcribe": ["x.wav"],
    "embed": ["-f", "b.txt"],
    "extract": ["--json-schema", "name", "b.txt"],
    "translate": ["--to", "fr", "b.txt"],
    "summarize": ["b.txt"],
    "redact": ["b.txt"],
    "classify": ["--labels", "a,b", "b.txt"],
    "decide": ["ok?", "b.txt"],
    "eval run": ["c.jsonl"],
    "improve": ["c.jsonl"],
    "train": ["c.jsonl", "-m", "checkpoint", "-o", "adapter.gguf"],
    "models quantize": ["model.gguf", "--to", "Q4_0"],
    "download": ["LFM2.5-350M"],
}
"""What is typed after each command that has --background."""
FILES = {
    "b.jsonl": '{"prompt": "hi"}\n',
    "c.jsonl": '{"prompt": "hi", "expect": {"contains": "ok"}}\n',
    "b.txt": "A text.\n",
    "e.jsonl": '{"text": "Ann", "document": {"name": "Ann"}}\n',
    "q.json": '{"a": {"question": "ok?"}}',
    "t.json": '[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]',
    "g.lark": 'start: "a"',
    "map.json": "{}",
}
VALUES = {
    "--at": "+1h",
    "--every": "6h",
    "--webhook": "http://127.0.0.1:1/hook",
    "--template": "saved",
    "--param": "a=b",
    "--file": "b.txt",
    "--image": "p.png",
    "--audio": "x.wav",
    "--output": "other.jsonl",
    "--speak": "said.wav",
    "--json-schema": "name, age int",
    "--json-schema-multi": "name",
    "--grammar": "@g.lark",
    "--regex": "a+",
    "--choices": "a,b,c",
    "--labels": "x,y",
    "--tools-file": "t.json",
    "--tool": "current_time",
    "--stop": "END",
    "--logit-bias": "5=1",
    "--tool-choice": "none",
    "--allow-tool": "f",
    "--model": "builtin-audio",
    "--lora": "a.gguf",
    "--temperature": "0.25",
    "--top-p": "0.5",
    "--min-p": "0.1",
    "--repetition-penalty": "1.5",
    "--columns": "a",
    "--frequency-penalty": "0.5",
    "--presence-penalty": "0.5",
    "--option audio-temperature": "0.5",
    "--score": "1..5",
    "--escalate-when": "refused",
    "--on": "ray",
    "--workers": "2",
    "--shard": "1/2",
    "--rate": "1",
    "--errors": "errors.jsonl",
    "--journal": "j.journal",
    "--examples": "e.jsonl",
    "--apply": "e.jsonl",
    "--to": "de",
    "--calibrate": "e.jsonl",
    "--review": "r.html",
    "--review-serve": "r.json",
    "--restore": "map.json",
    "--quant": "Q8_0",
    "--categories": "iban",
    "--map": "m.json",
    "--questions": "q.json",
    "--low-confidence": "d.jsonl",
    "--html": "r.html",
    "--confidence-threshold": "0.4",
    "--junit": "r.xml",
    "--baseline": "c.jsonl",
    "--budget": "20",
    "--checkpoint": "ck",
    "--vary": "temperature=0,1",
    "--imatrix": "i.dat",
    "--option tensor-type": "x=Q8_0",
    "--measure": "b.txt",
    "--gpu-layers": "1",
    "--option output-tensor-type": "Q8_0",
    "--option token-embedding-type": "Q8_0",
    "--option prompt-cache-size": "1GB",
    "--option stall-timeout": "9s",
    "--chunk-length": "10s",
    "--engine": "default",
    "--chat-template": "chatml",
    "--option learning-rate": "0.5",
    "--seed": "7",
    "--save-template": "new",
    "--mmproj": "a.gguf",
    "--context-size": "512",
    "--min": "0.5",
    "--option alpha": "0.5",
}
"""Values of options whose type does not say which there are."""
MORE = {
    **dict.fromkeys(("--show-calls", "--tool-search", "--allow-tool"), ["--tools-file", "t.json"]),
    "--option prompt-cache-size": ["--prompt-cache"],
    "--confidence-threshold": ["--low-confidence", "d.jsonl"],
    "--webhook-data": ["--webhook", "http://127.0.0.1:1/hook"],
    **dict.fromkeys(("--missed", "--option on-overlap"), ["--every", "6h"]),
}
"""What gives an option a meaning."""
SO_WITHOUT = {
    *("--option repetition-detection", "--no-save", "--no-prompt-cache", "--no-stream"),
    *("--show-calls", "--allow-tool", "--max-tool-iterations"),
}
"""Flags that say what is so without them in a job, which shows no stream and runs no tools."""
SUBMITTED_LIKE = {
    **dict.fromkeys(("say", "transcribe"), "generate"),
    **dict.fromkeys(("translate", "summarize", "redact", "classify", "decide"), "extract"),
    **dict.fromkeys(("train",), "improve"),
}
"""Commands whose jobs are made by the code that makes those of another: options that both have are tried there."""
TRIED_EVERYWHERE = {"--at", "--every", "--priority", "--model", "--dry-run"}
ABOUT_THE_ID = {"--format", "--background"}
"""Options that say how the job's id is printed, or that there is a job."""
CODES = (2, 3, 6, 8)
"""A wrong use, a model or an adapter that is not here, a schema that cannot be, an answer that cannot be a job's."""


def cases() -> Iterator[Any]:
    """Each command and the flags that are tried with it."""
    found = {path: each for path, each in commands() if any(one.name == "background" for one in each.params)}
    assert set(found) == set(LINES)
    for path, command in found.items():
        like = found.get(SUBMITTED_LIKE.get(path, ""))
        elsewhere = {(each.name, each.help) for each in like.params} if like else set()
        options = [
            (each, max(names, key=len))
            for each in options_of(command)
            for names in (each.opts, each.secondary_opts)
            if names and ((each.name, each.help) not in elsewhere or TRIED_EVERYWHERE & {*names})
        ]
        tried = [
            (each, flag)
            for each, flag in options
            if flag not in ABOUT_THE_ID | SO_WITHOUT and not (each.is_flag and each.default is (flag in each.opts))
        ]
        yield pytest.param(path, tried, id=path)


@pytest.fixture
def line(leap, tmp_path, monkeypatch):
    """Runs a command; its exit code, its messages, and the rows that it has queued."""
    monkeypatch.setattr(JobsClient, "ensure_worker", lambda _jobs, _job=None: None)
    monkeypatch.setattr(lora, "check", lambda _wish, _memory: 1)
    monkeypatch.setattr(QuantizeWork, "check", lambda _work, _variables: None)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "x.wav").write_bytes(wav_of([0.0] * 1600, 16_000))
    Image.new("RGB", (8, 8)).save(tmp_path / "p.png")
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    leap("saved", "templates", "add", "saved", "Say {a}: {input}")

    def run(*words: str) -> tuple[int, str, list[dict[str, Any]]]:
        leap.script("ok")
        done = leap(*words)
        with JobsClient({"LEAP_HOME": str(leap.home)}, autostart=False) as jobs:
            rows = [dataclasses.asdict(job) for job in jobs.list()]
            for row in rows:
                row["parameters"] = without_chance(row["parameters"])
            jobs.cancel_all()
            jobs.prune()
        return done.code, done.stderr, rows

    return run


def without_chance(value: Any) -> Any:
    """Parameters without what is for people, or another one in each job: a file that is kept is its content."""
    if isinstance(value, dict):
        return {name: without_chance(each) for name, each in value.items() if name not in ("command", "begun", "due")}
    if isinstance(value, str) and "/batches/" in value:
        return Path(value).read_text(errors="replace") if Path(value).is_file() else "kept"
    return [without_chance(each) for each in value] if isinstance(value, list) else value


def value_of(option: click.Option, flag: str) -> list[str]:
    if option.is_flag:
        return [flag]
    if flag in VALUES:
        return [flag, VALUES[flag]]
    if isinstance(option.type, click.Choice):
        return [flag, str([each for each in option.type.choices if each != option.default][-1])]
    if isinstance(option.type, (click.types.IntParamType, click.types.FloatParamType)):
        return [flag, "3"]
    return [flag, {"model": "builtin"}.get(option.type.name, "builtin" if "MODEL" in str(option.metavar) else "a word")]


def told(rows: list[dict[str, Any]]) -> list[Any]:
    """What rows say, but for what is different in each."""
    plain = ("parameters", "kind", "retries", "priority", "run_after", "model")
    return [{name: row[name] for name in plain} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "options"), list(cases()))
def test_the_job_gets_each_option_or_the_command_is_refused(path, options, line):
    words = [*path.split(), *LINES[path]]
    bases: dict[str, list[Any]] = {}
    lost = []
    for option, flag in options:
        typed, more = value_of(option, flag), MORE.get(flag, [])
        if " ".join(more) not in bases:
            bases[" ".join(more)] = told(line(*words, *more, "--background")[2])
        code, said, rows = line(*words, *more, *typed, "--background")
        where = f"{flag}: {code} {said.strip()[-200:]}"
        if flag == "--dry-run":
            assert not rows and code in (0, 4), where  # 4: a download is looked up
        elif code:
            refusal = said.strip().splitlines()[-1] if said.strip() else ""
            if rows or code not in CODES or not refusal.startswith("leap: error:") or "a bug" in refusal:
                lost.append(where)
        elif not any(_has(row, typed) for row in rows) and told(rows) == bases[" ".join(more)]:
            lost.append(f"{where}: not in the job")
    assert not lost, "\n".join(lost)


def _has(row: dict[str, Any], typed: list[str]) -> bool:
    """Whether the job runs a command in which this was typed."""
    parameters = row["parameters"].get("job", row)["parameters"]
    return "=".join(typed) in parameters.get("arguments", ())


def written_by(command: click.Command) -> list[str]:
    """The options of files that a command writes, where it has a dry run."""
    names = [name for each in command.params for name in each.opts if name in WRITTEN]
    return names if any(each.name == "dry_run" for each in command.params) else []


DRY = {path: written for path, each in commands() if (written := written_by(each))}


@pytest.mark.parametrize("path", DRY)
def test_a_dry_run_replaces_no_file_and_names_what_it_leaves_out(path, line, tmp_path):
    old = tmp_path / "old.txt"
    old.write_text("precious")
    for flag in DRY[path]:
        code, said, rows = line(*path.split(), *LINES[path], flag, "old.txt", "--dry-run", "--at", "+1h", "--notify")
        assert (code, rows, old.read_text()) == (0, [], "precious"), said
        left = said.partition("a dry run writes no file and submits no job: ")[2].partition("\n")[0]
        assert sorted(left.split(", ")) == sorted([f"{flag} old.txt", "--at", "--notify"])


AFTER_THAT = [["--at", "+1h"], ["--every", "6h"], ["--then", "true"], ["--notify"], ["--webhook", VALUES["--webhook"]]]


@pytest.mark.parametrize("wish", AFTER_THAT, ids=lambda wish: wish[0])
def test_what_implies_the_background_shares_its_rules(wish, line):
    assert line("generate", "hi", "--dry-run", *wish)[::2] == (0, [])
    assert line("summarize", "b.txt", "--dry-run", *wish)[::2] == (0, [])
    for refused in (["--session", "x"], ["--raw"], ["--save-template", "new"], ["--verbose"], ["--play"]):
        code, said, rows = line("generate", "hi", *refused, *wish)
        assert (code, rows) == (2, []) and (refused[0] in said or refused == ["--play"]), said
    code, said, rows = line("generate", "hi", "-o", "out.txt", "-n", "2", "-x", *wish, "--context-size", "512")
    row = next(row for row in rows if "about" not in row["parameters"])
    parameters = row["parameters"].get("job", row)["parameters"]
    if wish[0] == "--every":  # each run is the command that was typed
        typed = ("--output=out.txt", "--count=2", "--extract", "--context-size=512", "--model=builtin")
        assert parameters["arguments"] == ["generate", *typed, "--", "hi"]
    else:
        assert parameters["form"] == {"count": 2, "fenced": "first", "reasoning_only": False}
        assert parameters["loading"]["context_size"] == 512 and parameters["output"].endswith("out.txt")
    assert code == 0 and (" begins at " in said) == (wish[0] in ("--at", "--every"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--priority", "3"], "--priority goes with --background"),
        (["--job-retries", "1"], "--job-retries goes with --background"),
        (["--missed", "skip"], "--missed goes with --every"),
        (["--background", "--option", "on-overlap=queue"], "--option on-overlap goes with --every"),
        (["--then", ""], "--then is empty"),
        (["--every", " "], "--every is empty"),
        (["--webhook", "", "--background"], "--webhook is empty"),
    ],
)
def test_options_of_a_job_without_one_are_refused(words, said, line):
    code, message, rows = line("generate", "hi", *words)
    assert (code, rows) == (2, []) and said in message


def test_improve_is_submitted_as_it_was_typed(line):
    typed = ["--context-size=512", "--threads=1", "--no-host", "--deterministic", "--chat-template=chatml", "--seed=3"]
    code, said, (row,) = line("improve", "c.jsonl", *typed, "--background", "-m", "builtin")
    assert code == 0, said
    assert row["parameters"]["arguments"] == ["improve", *typed, "--model=builtin", "--", "c.jsonl"]


def test_what_is_piped_is_kept_for_a_command_and_cannot_be_repeated(leap, monkeypatch):
    monkeypatch.setattr(JobsClient, "ensure_worker", lambda _jobs, _job=None: None)
    with JobsClient({"LEAP_HOME": str(leap.home)}, autostart=False) as jobs:
        id = jobs.command(["generate"], label="x", standard_input=b"from a pipe")
        kept = Path(jobs.get(id).parameters["kept"])
        assert kept.read_text() == "from a pipe"
        jobs.cancel(id)
        jobs.remove(id)
        assert not kept.exists()
        done = leap("summarize", "-m", "builtin", "--every", "1h", stdin="from a pipe")
        assert done.code == 8 and "no pipe" in done.stderr and not jobs.list()
        assert not list(kept.parent.glob("*.in"))

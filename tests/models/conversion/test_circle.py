"""The last section of docs/fine-tuning.md, line by line as the page has it: from a chat to a model that answers."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from leap_core.models.builtin import model_path
from leap_core.models.resolving import resolve_local
from leap_core.opening import load_local

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
FACTS = """What is the capital of France? The capital of France is Paris.
What is the capital of Italy? The capital of Italy is Rome.
Hello! How are you? I am fine, thank you. How can I help you?
"""
FIGURE = re.compile(r"\d+(\.\d+)?(e-?\d+)?")


def recorded() -> list[tuple[list[str], list[str], list[str]]]:
    """Each command of the page, the lines that are typed into it, and what it prints."""
    page = (ROOT / "docs" / "fine-tuning.md").read_text("utf-8").partition("## From chat to model")[2]
    (block,) = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    commands = []
    for each in block.removeprefix("$ ").split("\n$ "):
        command, *lines = each.rstrip("\n").split("\n")
        typed = [line.removeprefix("> ") for line in lines if line.startswith("> ")]
        commands.append((shlex.split(command), typed, [line for line in lines if not line.startswith("> ")]))
    return commands


@pytest.fixture
def engine(leap, monkeypatch, tmp_path):
    """The command line on the real engine, in a directory with a checkpoint and a text."""
    from dequantized_checkpoint import write_checkpoint_of

    monkeypatch.setattr(
        type(leap), "load", lambda self, name, options: load_local(resolve_local(name, cwd=tmp_path), options)
    )
    write_checkpoint_of(model_path("builtin"), tmp_path / "tuned")
    (tmp_path / "facts.txt").write_text(FACTS)
    return leap


@pytest.mark.slow
def test_the_commands_of_the_page_lead_from_a_chat_to_a_model(engine, tmp_path):
    for command, typed, expected in recorded():
        if command[0] == "cat":
            printed = (tmp_path / command[1]).read_text("utf-8")
        else:
            lines = "".join(f"{line}\n" for line in typed)
            done = engine(*command[1:], stdin=lines, stdin_terminal=bool(typed))
            assert done.code == 0, done.stderr
            printed = done.stdout + done.stderr
        there = [_without_figures(line) for line in printed.splitlines()]
        for line in expected:
            assert _without_figures(line) in there, f"{shlex.join(command)} printed {printed}"


def test_figures_may_be_of_any_size():
    assert _without_figures("3.4 MB  0.000405") == _without_figures("3.4 MB  2e-06") == "n MB n"


def _without_figures(line: str) -> str:
    """The words of a line; figures of quality differ from one processor to another."""
    return " ".join(FIGURE.sub("n", line).split()) if "MB" in line else line.strip().removeprefix("> ")

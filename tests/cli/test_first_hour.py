"""The first hour of a person who comes from ollama, llm or docker: a line works, or is answered by one that does."""

from __future__ import annotations

import pytest

LINES = [
    ("run smol", "leap -m MODEL"),
    ("pull smol", "leap download NAME"),
    ("list", "leap models list"),
    ("ls", "leap models list"),
    ("rm smol", "leap models remove MODEL"),
    ("show smol", "leap models info MODEL"),
    ("stop smol", "leap unload MODEL"),
    ("logs", "leap sessions log list"),
    ("prompt Hi", "leap -m MODEL"),
    ("install llm-gguf", "leap download NAME"),
    ("cp a b", "leap models alias NAME MODEL"),
    ("create a", "leap models quantize"),
    ("keys set x", "leap config set NAME VALUE"),
    ("aliases", "leap models alias NAME MODEL"),
    ("start", "leap serve"),
    ("models add x.gguf", "leap models import FILE"),
    ("models pull x", "leap download NAME"),
    ("models run x", "leap -m MODEL"),
    ("models stop x", "leap unload MODEL"),
    ("models prune", "leap models gc"),
    ("models use x", "leap models default MODEL"),
    ("jobs stop x", "leap jobs cancel JOB"),
    ("jobs kill x", "leap jobs cancel JOB"),
    ("saved templates save x", "leap saved templates add NAME PROMPT"),
    ("models cache rm", "leap models cache clear"),
    ("log list", "leap sessions log"),
    ("bench builtin", "leap models bench MODEL"),
    ("man generate", "leap help --man COMMAND"),
    ("hello", "leap generate hello"),
    ("-c more", "--session NAME"),
    ("push smol", "hf upload"),
    ("schema check x", "leap saved schemas"),
    ("tag smol fast", "leap models alias NAME MODEL"),
    ("huggingface-cli download x", "leap download NAME"),
    ("llama-server -m x", "leap serve"),
    ("ollama run x", "leap -m MODEL"),
    ("models cp a b", "leap models alias NAME MODEL"),
    ("models rename a b", "leap models alias NAME MODEL"),
    ("models push a", "hf upload"),
    ("jobs log x", "leap jobs logs JOB"),
    ("index delete docs", "docs"),
    ("index rm docs", "docs"),
]


@pytest.mark.parametrize(("line", "answer"), LINES, ids=[line for line, _ in LINES])
def test_a_verb_of_another_program_leads_to_the_right_command(leap, line, answer):
    done = leap(*line.split())
    assert done.code != 0 and answer in done.stderr and done.stdout == ""
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("line", ["-m smol hi", "--temperature 0 hello", "hello -m smol", "Hi! -m smol"])
def test_a_word_beside_an_option_of_a_prompt_is_a_prompt(leap, line):
    leap.script("Hello.")
    assert leap(*line.split()).stdout == "Hello.\n"


@pytest.mark.parametrize("line", ["--stats modles", "modles --stats", "-m smol generte", "stop -m smol"])
def test_a_mistyped_command_beside_an_option_is_not_a_prompt(leap, line):
    runner = leap.script("Hello.")
    assert leap(*line.split()).code == 2 and runner.requests == []

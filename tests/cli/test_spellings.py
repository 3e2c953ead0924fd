"""What other programs call an option or a command, and what leap says of a name that it does not have."""

from __future__ import annotations

import re

import click
import pytest

from leap_cli.command_table import POINTERS, SPELLINGS
from leap_cli.config.settings import commands

EVERY = dict(commands())
FOREIGN = [
    ("generate", "--n-predict", "--max-tokens"),  # llama.cpp
    ("generate", "--predict", "--max-tokens"),
    ("generate", "--ctx-size", "--context-size"),
    ("generate", "--n-gpu-layers", "--gpu-layers"),
    ("generate", "--temp", "--temperature"),
    ("generate", "--repeat-penalty", "--repetition-penalty"),
    ("generate", "--cache-type-k", "--kv-type-k"),
    ("generate", "--cache-type-v", "--kv-type-v"),
    ("generate", "--ubatch-size", "--batch-size"),
    ("generate", "--reverse-prompt", "--stop"),
    ("generate", "--reasoning-budget", "--think-budget"),
    ("generate", "--lora-scaled", "--lora"),
    ("generate", "--chat-template-file", "--chat-template"),
    ("generate", "--system-prompt", "--system"),
    ("generate", "--no-cnv", "--raw"),
    ("serve", "--parallel", "--slots"),
    ("generate", "--num-ctx", "--context-size"),  # ollama
    ("generate", "--num-predict", "--max-tokens"),
    ("generate", "--num-gpu", "--gpu-layers"),
    ("generate", "--num-thread", "--threads"),
    ("generate", "--keepalive", None),
    ("load", "--keepalive", "--keep-alive"),
    ("generate", "--hidethinking", "--think hide"),
    ("generate", "--attachment", "--audio', '--file' or '--image"),  # llm
    ("generate", "--fragment", "--file"),
    ("generate", "--conversation", "--session"),
    ("generate", "--functions", "--tool"),
    ("serve", "--max-model-len", "--context-size"),  # vLLM
    ("serve", "--max-num-seqs", "--slots"),
    ("serve", "--lora-modules", "--lora"),
    ("serve", "--kv-cache-dtype", "--kv-type-k' or '--kv-type-v"),
    ("generate", "--guided-json", "--json-schema"),
    ("generate", "--guided-choice", "--choices"),
    ("batch", "--max-concurrency", "--concurrency"),
    ("download", "--quantization", "--quant"),
    ("generate", "--max-completion-tokens", "--max-tokens"),  # OpenAI
    ("generate", "--logprobs", "--top-logprobs"),
    ("generate", "--response-format", "--json-schema"),
    ("generate", "--reasoning-effort", "--think show"),
    ("generate", "--stop-sequences", "--stop"),
    ("generate", "--n", "--count"),
    ("generate", "--json", "--format json"),  # and others
    ("chat", "--json", "--jsonl"),
    ("generate", "--greedy", "--temperature 0"),
    ("download", "--force", "--replace"),
    ("embed", "--line-file", "--lines"),
    ("generate", "--output-file", "--output"),
    ("classify", "--cron", "--every"),
    ("download", "--read-timeout", "--option stall-timeout"),
    ("generate", "--read-timeout", ""),  # leap's other commands have it
]


@pytest.mark.parametrize(("command", "foreign", "meant"), FOREIGN)
def test_an_option_of_another_program_leads_to_leaps(leap, command, foreign, meant):
    done = leap(command, foreign, "x")
    assert done.code == 2 and done.stderr.count("\n") == 1
    assert (f"Did you mean '{meant}'?" if meant else "(hint:") in done.stderr
    assert meant or "Did you mean" not in done.stderr


@pytest.mark.parametrize(
    ("foreign", "says"),
    [
        ("--options", "Each option has a name of its own, such as --temperature 0.2."),
        ("--no-log", "Prompts are logged only after leap sessions log on"),
        ("--nowordwrap", "Lines are wrapped at a terminal only"),
        ("-a", "Did you mean '--image'?"),
        ("--no-think", "A model reasons only with --think."),
    ],
)
def test_an_option_that_leap_lacks_is_explained(leap, foreign, says):
    assert says in leap("generate", foreign, "x").stderr


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (("-o", "temperature", "0.5", "Hi"), "write --temperature 0.5, or -o ./temperature"),  # llm
        (("-c", "4096", "Hi"), "write --context-size 4096, or put the prompt in quotation marks"),  # llama.cpp
    ],
)
def test_an_option_that_means_something_else_elsewhere_is_explained(leap, line, says, tmp_path):
    done = leap("generate", *line)
    assert done.code == 2 and says in done.stderr and not (tmp_path / "temperature").exists()


@pytest.mark.parametrize("name", ["--xyzzy", "--mirostat", "--watch", "--numa", "--poll", "--hf-repo", "--jinja", "-z"])
def test_nothing_is_suggested_without_a_similar_name(leap, name):
    assert "Did you mean" not in leap("generate", name, "x").stderr


@pytest.mark.parametrize(
    ("line", "meant"),
    [("--temprature 1", "--temperature"), ("--max-token 1", "--max-tokens"), ("--mdoel x", "--model")],
)
def test_a_misspelled_option_is_recognized(leap, line, meant):
    assert f"Did you mean '{meant}'" in leap("generate", *line.split(), "x").stderr


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("watch", "leap jobs watch"),
        ("schedule", "--every"),
        ("cron", "--every"),
        ("tune", "leap improve"),
        ("optimize", "leap improve"),
        ("finetune", "leap train"),
        ("pull", "leap download"),
        ("chta", "Did you mean 'chat'?"),
        ("generat", "Did you mean 'generate'?"),
    ],
)
def test_a_command_of_another_program_leads_to_leaps(leap, word, meant):
    done = leap(word)
    assert done.code == 2 and meant in done.stderr


@pytest.mark.parametrize("word", ["frobnicate", "deploy", "visit"])
def test_a_word_unlike_any_command_gets_no_suggestion(leap, word):
    assert "Did you mean" not in leap(word).stderr


def test_options_of_an_agent_come_after_two_dashes(leap):
    assert "options of another program come after --, as in -- -p" in leap("launch", "pi", "-p", "hi").stderr


@pytest.mark.parametrize(("name", "agent"), [("claude-code", "claude"), ("qwen-code", "qwen"), ("codex-cli", "codex")])
def test_an_agent_is_found_by_the_name_of_its_project(leap, name, agent):
    assert f"agent: {agent}\n" in leap("launch", name, "-m", "builtin", "--context-size", "40000", "--dry-run").stdout
    assert leap("launch", "nosuch-code", "--dry-run").code == 2


def test_the_table_names_only_existing_options():
    having: dict[str, set[str]] = {}
    for path, command in EVERY.items():
        for option in command.params:
            for flag in (*option.opts, *option.secondary_opts) if isinstance(option, click.Option) else ():
                having.setdefault(flag, set()).add(path)
    for meant, others in SPELLINGS.items():
        names = re.findall(r"--[a-z-]+", meant)
        assert names and all(name in having for name in names), meant
        assert others.split() and all(name.startswith("-") for name in others.split())
        for name in others.split() if meant.startswith("-") else ():  # some command has one and not the other
            assert having[names[0]] - having.get(name, set()), (meant, name)


def test_the_suggestions_name_existing_commands():
    for pointers in POINTERS.values():
        for meant in pointers.values():
            for words in re.findall(r"leap ((?:[a-z]+ ?)+)", meant):
                first = words.split()
                known = [" ".join(first[:count]) for count in range(1, len(first) + 1)]
                assert any(path == each or path.startswith(f"{each} ") for each in known for path in EVERY) or (
                    first[0] in ("is", "sends", "itself")
                ), meant

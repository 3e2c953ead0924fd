"""One meaning a name and one name a meaning, over the options of all commands."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from leap_cli.config.settings import commands
from leap_cli.framework.option_defaults import options_of

OPTIONS = [(path, option) for path, command in commands() for option in options_of(command) if not option.hidden]
MEANINGS = {
    "--all": r"every |all ",
    "--audio": r"audio",
    "--background": r"background job",
    "--batch-size": r"prompt tokens per step",
    "--choices": r"these texts|[Aa]nswers to choose",
    "--chat-template": r"chat template",
    "--context-size": r"Context window",
    "--continue": r"last session",
    "--count": r"N answers",
    "--dry-run": r"^(Print|Show) .* nothing",
    "--errors": r"failed",
    "--escalate-to": r"answer|model",
    "--file": r"this file",
    "--include": r"whose path matches",
    "--tool-search": r"search for",
    "--follow": r"until the jobs? ha(s|ve) ended",
    "--format": r"^Output format",
    "--gpu-layers": r"GPU",
    "--grammar": r"grammar",
    "--host": r"keeps loaded",
    "--image": r"image",
    "--install": r"Install ",
    "--job-retries": r"failed job",
    "--json-schema": r"[Ss]chema",
    "--keep-alive": r"idle (time|models)",
    "--kind": r"[Kk]ind",
    "--limit": r"at most this many (passages|sessions|jobs|\w+)",
    "--engine": r"engine",
    "--lora": r"LoRA",
    "--max-tokens": r"after this many tokens",
    "--mmproj": r"projector",
    "--model": r"[Mm]odel",
    "--older-than": r"(unchanged|not used) for this|older than|longer ago",
    "--output": r"[Ww]rite ",
    "--param": r"variable",
    "--play": r"[Pp]lay",
    "--port": r"Port",
    "--priority": r"higher numbers",
    "--at": r"at this time",
    "--prompt-cache": r"state of long prompts",
    "--quant": r"Quantization",
    "--ocr-model": r"scanned pages",
    "--queue": r"[Qq]ueue at most",
    "--quiet": r"no summary",
    "--raw": r"without the chat template",
    "--regex": r"regular expression",
    "--replace": r"[Rr]eplace |again",
    "--rerank": r"[Rr]erank",
    "--save": r"as a session",
    "--save-template": r"leap -t|-t NAME",
    "--seed": r"[Rr]andom seed",
    "--session": r"session of this name",
    "--slots": r"parallel requests",
    "--speak": r"spoken answer",
    "--state": r"in this state",
    "--stats": r"token counts and speed",
    "--stop": r"before this text",
    "--stream": r"[Ss]tream",
    "--strict": r"only from|unless the whole",
    "--system": r"[Ss]ystem prompt (of the baseline|to use|for lines)|^System prompt;",
    "--temperature": r"Randomness|temperature",
    "--template": r"saved",
    "--think": r"reason",
    "--think-budget": r"reasoning",
    "--threads": r"CPU threads",
    "--timeout": r"[Tt]imeout|this long",
    "--tool": r"this tool",
    "--tools-file": r"[Tt]ools",
    "--verbose": r"log",
    "--yes": r"without (asking|confirmation)",
}
"""What each name means, as the words that every command uses to explain it."""
ALONE = {
    *(
        "--background",
        "--batch-size",
        "--continue",
        "--dry-run",
        "--include",
        "--follow",
        "--job-retries",
        "--keep-alive",
    ),
    *(
        "--mmproj",
        "--older-than",
        "--priority",
        "--prompt-cache",
        "--quant",
        "--queue",
        "--raw",
        "--seed",
    ),
    *("--slots", "--state", "--stats", "--stop", "--system", "--timeout", "--yes"),
}
"""Names whose words no other option may use: the same thing would have a second name."""
NOT_MEANT = {
    ("--slots", "--concurrency"),  # lines of a batch, whatever runs them
    ("--older-than", "--keep-alive"),
    ("--quant", "--name"),
    ("--yes", "--allow-tool"),  # everything, and one tool by its name
}
"""Pairs that share words and mean different things."""

OTHER_KINDS = {"--file", "--tools-file", "--output", "--system", "--schema", "-f", "-o", "--chat-template", "--from"}
OTHER_KINDS |= {"--checkpoint", "--device", "--to"}
"""Names whose values are paths, texts or choices that click types differently; what they mean is the same."""


def test_an_option_takes_the_same_type_in_all_commands():
    kinds = defaultdict(set)
    for _path, option in OPTIONS:
        for name in option.opts:
            kinds[name].add("flag" if option.is_flag else option.type.name.removesuffix(" range"))
    assert {name: found for name, found in kinds.items() if len(found) > 1 and name not in OTHER_KINDS} == {}


def test_the_help_of_an_option_has_the_same_meaning_in_all_commands():
    for path, option in OPTIONS:
        for name in option.opts:
            words = MEANINGS.get(name)
            assert words is None or re.search(words, option.help or ""), (
                f"{path} {name}: {option.help!r} lacks {words!r}"
            )


def test_no_meaning_has_two_option_names():
    for path, option in OPTIONS:
        long_name = next((name for name in option.opts if name.startswith("--")), "")
        for name in ALONE - {long_name}:
            again = re.search(MEANINGS[name], option.help or "")
            assert not again or (name, long_name) in NOT_MEANT, f"{path} {long_name} says what {name} means"


def test_every_word_of_the_table_belongs_to_an_option():
    names = {name for _, option in OPTIONS for name in (*option.opts, *option.secondary_opts)}
    assert set(MEANINGS) <= names and set(MEANINGS) >= ALONE


def test_a_short_option_has_one_long_name():
    long_names = defaultdict(set)
    for _path, option in OPTIONS:
        for name in option.opts:
            if not name.startswith("--"):
                long_names[name].add(next(each for each in option.opts if each.startswith("--")))
    assert {name: found for name, found in long_names.items() if len(found) > 1} == {}


@pytest.mark.parametrize("line", ["sessions ls", "jobs ls", "models ls", "models show builtin"])
def test_other_spellings_of_verbs_are_accepted(leap, line):
    assert leap(*line.split()).code == 0


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("batch in.jsonl --output-format plain", "--output"),
        ("batch in.jsonl --overwrite", "--replace"),
        ("extract --guided-json a", "--json-schema"),
        ("index make x --glob *.py", "--include"),
        ("setup --ttl 5m", "--keep-alive"),
    ],
)
def test_an_unknown_option_suggests_the_existing_one(leap, line, meant):
    done = leap(*line.split())
    assert done.code == 2 and "No such option" in done.stderr
    assert meant in done.stderr or meant == "--replace"

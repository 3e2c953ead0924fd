"""The page for coding agents on how to use leap: a SKILL.md, made of the table of commands and their examples.

A skill is a folder with a SKILL.md, whose front matter has a name (a to z, 0 to 9 and -, 64 at most) and a description
(1,024 characters at most); agents look for it in ``~/.agents/skills``, Claude Code in ``~/.claude/skills``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..exit_codes import exit_code_meanings
from .examples import EXAMPLES

NAME = "leap"
DESCRIPTION = (
    "Run small language models on this machine with the command line tool leap: one-shot answers, answers that fit a "
    "JSON schema, extraction, classification, translation, batches over many prompts, RAG over files, and background "
    "jobs. Use it for many small text tasks that need no large model, and for data that must stay on the machine."
)
HOW = """\
## How it behaves

- Answers go to stdout, everything else to stderr; the exit codes are listed below.
- Standard input is the prompt, or follows a prompt that is given: `git diff | leap "Summarize this."`
- `--format json` prints one document, `--format jsonl` one event per line. `leap COMMAND --help-all` lists options.
- Without `-m MODEL` the default model answers: `leap models list` shows installed ones, `leap download NAME`
  downloads one.
- The built-in model `builtin` is for trying things out; for real work use one of `leap models catalogue`.

## Patterns

```sh
leap generate --json-schema 'name, age int' 'Ada Lovelace was 36 years old.'   # always valid JSON of that schema
leap classify --labels bug,question,praise < message.txt                       # one of these labels
leap extract --json-schema schema.json letter.txt --evidence                   # values with their places in the text
leap batch prompts.jsonl -o answers.jsonl --format plain                       # many prompts; resumes after a crash
job=$(leap batch prompts.jsonl -o answers.jsonl --background)                  # a background job: prints its id
leap jobs wait "$job"                                                          # until it ends; leap jobs status looks
leap index make notes docs/ && leap ask notes 'How do we deploy?'             # answers from files, with sources
leap load MODEL                                                                # keeps a model loaded: faster answers
leap serve                                                                     # an OpenAI-compatible API
```
"""


def skill(summaries: Mapping[str, str]) -> str:
    """The text of SKILL.md. ``summaries`` of the commands by their names."""
    return "\n".join(_lines(summaries)) + "\n"


def _lines(summaries: Mapping[str, str]) -> Iterator[str]:
    yield from ("---", f"name: {NAME}", f"description: {DESCRIPTION}", "---", "", "# leap", "", HOW)
    yield from ("## Commands", "", "| command | what it does | example |", "|---|---|---|")
    for name, summary in summaries.items():
        example = next((lines[0] for path, lines in EXAMPLES.items() if path.split()[0] == name), "")
        yield f"| `leap {name}` | {summary} | `{example.replace('|', chr(92) + '|')}` |"
    yield from ("", "## Exit codes", "", "| code | meaning |", "|---|---|")
    yield from (f"| {code} | {meaning} |" for code, meaning in exit_code_meanings())


def install_skill(text: str, variables: Mapping[str, str]) -> list[Path]:
    """Write the skill where agents find it; the files. Raises OSError."""
    from leap_core.system.files import replacing

    written = []
    for folder in _folders(variables):
        path = folder / "skills" / NAME / "SKILL.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(text.encode())
        written.append(path)
    return written


def _folders(variables: Mapping[str, str]) -> list[Path]:
    home = Path(variables.get("HOME") or os.path.expanduser("~"))
    claude = home / ".claude"
    return [home / ".agents", *([claude] if claude.is_dir() else [])]

"""The manual: leap(1) and a page for each command, written from the same declarations as help.

A group's page holds the commands of the group. scripts/make_reference.py writes the pages into man/, which ships.

docs/words.md is written from this table by scripts/make_reference.py; tests/cli/test_words.py walks all commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from leap_cli.exit_codes import exit_code_meanings
from leap_cli.framework.click_classes import CommandTable, HelpContext
from leap_cli.framework.help_text import meaning, metavar, text_of
from leap_cli.framework.option_defaults import option_variable, options_of
from leap_cli.framework.options import OPTIONS, under_headings
from leap_cli.help.examples import EXAMPLES
from leap_cli.help.guides import TOPICS, GuideOfCommands
from leap_core import __version__

SPECIAL = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", '"': r"\(dq", "^": r"\(ha", "~": r"\(ti"}
"""Characters that roff would obey, or turn into their typographic siblings."""
_CODE = re.compile(r"`([^`]+)`")


def escaped(text: str) -> str:
    """One line of text. Characters beyond ASCII become the escapes that every roff knows."""
    line = "".join(
        SPECIAL.get(char, char if char.isascii() and char.isprintable() else f"\\[u{ord(char):04X}]") for char in text
    )
    return rf"\&{line}" if line.startswith(".") else line


def prose(text: str) -> str:
    """A paragraph on one line, what is in backticks bold."""
    parts = _CODE.split(" ".join(text.split()))
    line = "".join(bold(part) if number % 2 else escaped(part).removeprefix(r"\&") for number, part in enumerate(parts))
    return rf"\&{line}" if line.startswith((".", "'")) else line


def bold(text: str) -> str:
    """What is typed as it is."""
    return rf"\fB{escaped(text)}\fR"


def italic(text: str) -> str:
    """What represents something else."""
    return rf"\fI{escaped(text)}\fR"


def quoted(text: str) -> str:
    """An argument of a request such as ``.SH``."""
    return f'"{escaped(text)}"'


def code(lines: tuple[str, ...]) -> list[str]:
    """Lines, indented."""
    return [".PP", ".RS 4", ".EX", *(escaped(line) for line in lines), ".EE", ".RE"]


FILES = (
    ("config.toml", "The settings; `leap config path` prints where it is."),
    ("catalogue.json", "Models of your own by name, beside config.toml."),
)
VARIABLES = (
    ("LEAP_HOME", "One directory for settings, models, caches and logs, instead of the system's."),
    ("LEAP_MODEL", "The model that answers where none is named."),
    ("NO_COLOR", "Where it is set, nothing is coloured."),
    ("VISUAL, EDITOR", "The editor for prompts and settings."),
)


def pages(root: CommandTable) -> dict[str, str]:
    """The text of every page by its file's name, such as ``leap-generate.1``."""
    found = {"leap.1": "\n".join(_root_page(root)) + "\n"}
    for name in root.table:
        found[f"leap-{name}.1"] = page_of(root, name)
    return found


def page_of(root: CommandTable, name: str) -> str:
    """The page of one command. Raises KeyError for a name that is none."""
    summary = root.table[name].summary
    command = root.get_command(HelpContext(root, info_name="leap"), name)
    assert command is not None
    return "\n".join(_command_page(name, summary, command)) + "\n"


def _head(name: str, summary: str) -> Iterator[str]:
    yield f'.\\" Written from the code of leap {__version__} by scripts/make_reference.py.'
    yield f'.TH {quoted(name.upper())} 1 "" {quoted(f"leap {__version__}")} "leap manual"'
    yield ".SH NAME"
    yield f"{escaped(name)} \\- {prose(summary.rstrip('.'))}"


def _root_page(root: CommandTable) -> Iterator[str]:
    yield from _head("leap", "Run Liquid's LFM2 models, and other GGUF models, on your own machine")
    yield from (".SH SYNOPSIS", f"{bold('leap')} {italic('COMMAND')} [{italic('ARGUMENT')}]...", ".br")
    yield f"{bold('leap')} {italic('PROMPT')}"
    yield from (".SH DESCRIPTION", *_paragraphs(text_of(root)))
    yield from (".PP", prose("A prompt alone, in quotes, is answered as by `leap generate`."))
    yield ".SH COMMANDS"
    for group in root.groups:
        yield f".SS {quoted(group)}"
        for name, entry in root.table.items():
            if entry.group == group:
                yield from (".TP", f"{bold(f'leap-{name}')}(1)", prose(entry.summary))
    yield ".SH OPTIONS"
    context = HelpContext(root, info_name="leap")
    for option in root.get_params(context):
        if isinstance(option, click.Option):
            yield from _option(option, context)
    yield ".SH EXIT STATUS"
    for value, words in exit_code_meanings():
        yield from (".TP", bold(str(value)), prose(words))
    yield ".SH ENVIRONMENT"
    yield prose("Every option of a command has a variable: `leap generate --top-p` has `LEAP_GENERATE_TOP_P`.")
    for names, words in VARIABLES:
        yield from (".TP", bold(names), prose(words))
    yield ".SH FILES"
    for names, words in FILES:
        yield from (".TP", italic(names), prose(words))
    yield from (".SH SEE ALSO", prose(f"`leap help` TOPIC prints a guide: {', '.join(TOPICS)}."))


def _command_page(name: str, summary: str, command: click.Command) -> Iterator[str]:
    yield from _head(f"leap-{name}", summary)
    context = HelpContext(command, info_name=name, parent=HelpContext(click.Command("leap"), info_name="leap"))
    verbs = command.commands if isinstance(command, click.Group) else {}
    yield ".SH SYNOPSIS"
    if not verbs:
        yield _synopsis(name, command, context)
    for number, (path, verb, inner) in enumerate(_leaves(name, command, context)):
        yield from ([".br"] if number else [])
        yield _synopsis(path, verb, inner)
    yield from (".SH DESCRIPTION", *_paragraphs(text_of(command)))
    if not verbs:
        yield from _options(name, command, context, ".SS")
        yield from _examples(".SH", (name,))
    else:
        yield ".SH COMMANDS"
        for path, verb, inner in _leaves(name, command, context):
            yield from (f".SS {quoted(f'leap {path}')}", *_paragraphs(text_of(verb)))
            yield from _options(path, verb, inner, "")
        yield from _examples(".SH", tuple(path for path, _, _ in _leaves(name, command, context)))
    topic = GuideOfCommands().topic(name)
    yield from (".SH SEE ALSO", f"{bold('leap')}(1); {prose(f'`leap help {topic}` prints the guide.')}")


def _leaves(
    path: str, command: click.Command, context: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """The commands of a group, and of the groups in it."""
    if not isinstance(command, click.Group):
        return
    for verb, inner in command.commands.items():
        below = HelpContext(inner, info_name=verb, parent=context)
        if isinstance(inner, click.Group):
            yield from _leaves(f"{path} {verb}", inner, below)
        elif not inner.hidden:
            yield f"{path} {verb}", inner, below


def _synopsis(path: str, command: click.Command, context: click.Context) -> str:
    return f"{bold(f'leap {path}')} {escaped(' '.join(command.collect_usage_pieces(context)))}"


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text)):
        if number:
            yield ".PP"
        yield prose(paragraph)


def _options(path: str, command: click.Command, context: click.Context, heading: str) -> Iterator[str]:
    """The options under their headings; those of a command in a group have its own heading."""
    shown = [option for option in options_of(command) if not option.hidden]
    if not shown:
        return
    if heading:
        yield ".SH OPTIONS"
    for group, options in under_headings(shown):
        if heading and group != OPTIONS:
            yield f"{heading} {quoted(group)}"
        for option in options:
            yield from _option(option, context, option_variable(path, option))


def _option(option: click.Option, context: click.Context, variable: str = "") -> Iterator[str]:
    names = [bold(name) for name in sorted(option.opts, key=lambda name: name.startswith("--"))]
    line = ", ".join(names)
    if option.secondary_opts:
        line += " / " + ", ".join(bold(name) for name in option.secondary_opts)
    if value := metavar(option, context):
        line += f" {italic(value)}"
    yield from (".TP", line, prose(meaning(option, context) + (f" (${variable})" if variable else "")))


def _examples(heading: str, paths: tuple[str, ...]) -> Iterator[str]:
    lines = tuple(line for path in paths for line in EXAMPLES.get(path, ()))
    if lines:
        yield from (f"{heading} EXAMPLES", *code(lines)[1:])


WORDS: dict[str, str] = {
    "--about": "one line that says what a saved prompt is for",
    "--address": "the address that a server listens on",
    "--after": "a job that must have ended well before",
    "--after-any": "a job that must have ended before, well or not",
    "--all": "everything that the command could name one by one",
    "--allow-tool": "a tool that runs without asking",
    "--api-key": "the key that clients of a server must have",
    "--attempt": "one of the attempts of a job",
    "--audio-temperature": "randomness of spoken sound",
    "--audio-top-k": "sound codes that are kept at each choice",
    "--audio": "a sound that the model hears",
    "--checkpoint": "a model of Hugging Face to train an adapter over",
    "--cpu-moe": "the experts of a model stay on the CPU",
    "--device": "GPUs that compute a model; of leap talk a microphone or loudspeaker",
    "--n-cpu-moe": "layers whose experts stay on the CPU",
    "--tensor-split": "how a model is split over GPUs",
    "--batch-size": "prompt tokens in one step",
    "--background": "do it as a job, and print its id",
    "--tool-call-parser": "how the model writes calls of tools",
    "--max-tool-iterations": "rounds of calls in one answer at most",
    "--choices": "the texts of which the answer is one",
    "--completion": "the shell that completes leap with TAB",
    "--concurrency": "lines of a batch that are answered at once",
    "--connections": "connections of a download at once",
    "--chat-template": "Jinja, or a known name, in the place of the model's chat template",
    "--context-size": "tokens of prompt and answer together",
    "--continue": "go on with the last session",
    "--count": "how many answers are given",
    "--dry-run": "show what would be done, and do nothing",
    "--shutdown": "stop the worker",
    "--errors": "the file of failed lines",
    "--escalate-to": "the larger model that answers what the first one answers badly",
    "--every": "when a job is due again and again",
    "--file": "a file whose text is taken",
    "--deterministic": "the same answer to the same request, with weights of any type",
    "--calibrate": "fit temperatures, or thresholds of doubt, to cases whose answers are known",
    "--flash-attention": "flash attention, or not",
    "--tool-search": "tell of tools in a line each above so many tokens of declarations",
    "--follow": "go on until the job has ended",
    "--foreground": "be the worker, in this terminal",
    "--format": "how results are written",
    "--gpu-layers": "layers of the model on a GPU",
    "--grammar": "the grammar of the answer",
    "--host": "use the model that is kept warm, or not",
    "--install": "put it where the system looks for it",
    "--image": "a picture that the model sees",
    "--image-tiles": "cut large pictures into tiles",
    "--image-tokens": "tokens that a picture may take",
    "--input-format": "how the input is written",
    "--job-retries": "retries of a job after failures",
    "--journal": "the file of what a batch has answered",
    "--json-schema": "the JSON schema of the answer",
    "--json-schema-multi": "the JSON schema of each element of the answer, a list",
    "--jsonl": "messages as JSON lines, in and out",
    "--keep-alive": "how long a model stays warm without use",
    "--keep-fields": "carry a line's own fields over to its result",
    "--keep-reasoning": "let the model reason, and keep that in the results",
    "--kv-type-k": "how keys are kept in the context",
    "--kv-type-v": "how values are kept in the context",
    "--limit": "how many are taken or listed at most",
    "--include": "patterns of the files that passages are taken from",
    "--complete-json": "end JSON before its tokens are used up",
    "--any-whitespace": "JSON over several lines",
    "--missed": "whether a run that was due while nothing ran is run",
    "--notify": "show a note on the desktop when a job has ended",
    "--rerank": "the model that orders passages anew",
    "--resume": "a schedule that goes on",
    "--run": "a schedule that is run now",
    "--on-overlap": "whether a run is queued while the one before goes on",
    "--strict": "nothing less than what was asked for will do",
    "--kind": "what kind of thing it is",
    "--lines": "each line of a file is a text of its own",
    "--logit-bias": "what is added to a token's logit",
    "--prompt-lookup": "drafts from what prompt and answer hold",
    "--repetition-detection": "stop an answer that repeats itself",
    "--engine": "the build of llama.cpp that runs the model",
    "--lora": "an adapter that changes the model",
    "--load": "the file of a conversation to go on with",
    "--max-tokens": "tokens of the answer at most",
    "--mmap": "map the model's file, or read it",
    "--mmproj": "the file of the projector that reads pictures or sound",
    "--model": "the model that answers",
    "--multi": "the schema of a list",
    "--name": "the name that something is given",
    "--older-than": "only what was untouched for so long",
    "--ordered": "write results in the order of the input",
    "--open": "show a page in the web browser",
    "--additional-properties": "keys that the schema allows and does not name",
    "--output": "the file that results are written to",
    "--param": "the value of a template's variable",
    "--pattern": "the prompt of each line, made of its fields",
    "--play": "play sound as it is made",
    "--port": "the port that a server listens on",
    "--priority": "which jobs go first",
    "--at": "when a job begins at the earliest",
    "--prompt-cache": "keep the state after long prompts on disk",
    "--prompt-cache-size": "room on disk for the kept state",
    "--quant": "the quantization of a model",
    "--queue": "requests that may wait for a model",
    "--quiet": "no summary",
    "--raw": "go on from the prompt as it stands",
    "--regex": "the regular expression that the answer matches",
    "--remove": "take a name away",
    "--repair": "ask again where an answer does not fit its shape",
    "--replace": "take the place of what is there",
    "--retries": "failures of a download in a row",
    "--revision": "the branch, tag or commit of a repository",
    "--save": "keep the conversation as a session",
    "--save-template": "save what is asked as a template under this name",
    "--schema-in-prompt": "show the schema to the model",
    "--seed": "makes sampling repeatable",
    "--session": "the session to go on with or to begin",
    "--show-calls": "show calls of tools and their results",
    "--skip-invalid": "leave out lines that cannot be used",
    "--since": "only what is not older",
    "--slots": "requests of a model at once",
    "--speak": "answer aloud, into this file",
    "--stall-timeout": "how long a connection may be silent",
    "--state": "only jobs in this state",
    "--stats": "show token counts and speed",
    "--stop": "a text before which the answer ends",
    "--stream": "print the answer as it comes",
    "--suspend": "a schedule that is paused",
    "--system": "the system prompt",
    "--template": "a saved prompt",
    "--then": "the command that is run when a job has ended",
    "--think-budget": "most tokens of reasoning",
    "--think-budget-message": "what the model says when its reasoning has spent its budget",
    "--think": "let the model reason, and where that is shown",
    "--threads": "CPU threads",
    "--to": "what it is turned into: a language, types of tensors",
    "--timeout": "how long to wait at most",
    "--tool": "a tool that the model may call",
    "--tool-choice": "whether the model has to call a tool",
    "--tools-file": "a file of tools",
    "--top-logprobs": "how likely tokens and others were",
    "--verbose": "show llama.cpp's log",
    "--voice": "who speaks",
    "--webhook": "the address that gets a message when a job has ended",
    "--webhook-data": "send the job's label and result with the message",
    "--ocr-model": "have this model read pages that are pictures",
    "--yes": "do it without asking",
    "--baseline": "earlier figures to compare with",
    "--alpha": "how unlikely chance must be for a difference to count",
    "--from": "what something is taken from: a language, or a source of cases",
    "--html": "write a page that needs nothing else",
    "--junit": "write JUnit XML",
    "--merge": "put the outputs of parts together",
    "--min": "the pass rate that is good enough",
    "--on": "the cluster that answers",
    "--orders": "ask with the answers in several orders",
    "--readout": "what is read of a decision: texts or tokens",
    "--repeat": "how often something is done",
    "--shard": "one of several parts of the lines",
    "--memory": "how much memory to count with",
    "--workers": "how many answer at once, each with the model",
}
"""The names that several commands have, or that could be taken for others. A name that one command alone has is
explained by that command's help."""

"""The guides: which there are, which one is about a command, and how they are laid out for a terminal.

The result is Markdown again, for whatever styles and wraps it.

The pages are those of ``docs/``; an installed leap has them in its distribution's data files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ..framework.help_text import broken_shell
from ..framework.wrapping import columns as columns_of
from ..framework.wrapping import wrapped

GAP, INDENT = 2, "    "
SHELL = ("sh", "console", "bash")
_FENCE = re.compile(r"```(\w*)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_COMMENT = re.compile(r"(.*\S)\s{2,}#\s(.*)")


def laid_out(text: str, columns: int, topics: tuple[str, ...]) -> str:
    """The Markdown of a guide for lines of so many columns. ``topics``: the guides that links may name."""
    lines: list[str] = []
    for block, language in _blocks(text):
        if language is not None:
            lines += _code(block, language, columns)
        elif block[0].startswith("|"):
            lines += _table([_linked(line, topics) for line in block], columns)
        else:
            lines += [_linked(line, topics) for line in _joined(block)]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _blocks(text: str) -> Iterator[tuple[list[str], str | None]]:
    """Lines between empty ones; blocks of code whole, with their language."""
    block: list[str] = []
    language: str | None = None
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if language is not None:
            if fence:
                yield block, language
                block, language = [], None
            else:
                block.append(line)
            continue
        if fence or not line.strip():
            if block:
                yield block, None
            block = []
            language = fence[1] if fence else None
        else:
            block.append(line)
    if block:
        yield block, language


def _joined(block: list[str]) -> list[str]:
    """A paragraph, or each item of a list, on one line."""
    lines: list[str] = []
    for line in block:
        if not lines or _ITEM.match(line) or line.startswith("#") or lines[-1].startswith("#"):
            lines.append(line)
        else:
            lines[-1] = f"{lines[-1]} {line.strip()}"
    return lines


def _code(block: list[str], language: str, columns: int) -> list[str]:
    """Code as it is; in lines that are too long comments go above, and shell goes on after a backslash."""
    lines = []
    for line in block:
        if columns_of(line) > columns and language in (*SHELL, "toml") and (comment := _COMMENT.match(line)):
            lines += wrapped(f"# {comment[2]}", columns, "# ").split("\n")
            line = comment[1]
        if columns_of(line) > columns and language in SHELL and not _opens_quote(line):
            first, *others = broken_shell(line, columns)
            lines += [first, *(INDENT + other for other in others)]
        else:
            lines.append(line)
    return [f"```{language}", *lines, "```"]


def _opens_quote(line: str) -> bool:
    """Whether the line cannot be divided into words by itself."""
    return line.count("'") % 2 == 1 or line.count('"') % 2 == 1 or line.startswith((" ", "#")) or "<<" in line


def _table(block: list[str], columns: int) -> list[str]:
    """Columns side by side where they fit; else each row's first cell, and below it the others."""
    rows = [[cell.replace("\0", "|").strip() for cell in _cells(line)] for line in block]
    heading, rows = rows[0], [row for row in rows[1:] if not all(set(cell) <= set("-: ") for cell in row)]
    count = max(len(row) for row in [heading, *rows])
    widths = [max(columns_of(_plain(row[n])) if n < len(row) else 0 for row in [heading, *rows]) for n in range(count)]
    if sum(widths) + GAP * (count - 1) <= columns:
        shown = [heading] * any(heading) + rows
        return [_aligned([_upper(cell) if row is heading else cell for cell in row], widths) for row in shown]
    lines = []
    for row in rows:
        lines.append(row[0] or "-")
        named = zip(heading[1:], row[1:], strict=False)
        lines += [
            f"{INDENT}{name}: {cell}" if name and count > 2 else f"{INDENT}{cell}" for name, cell in named if cell
        ]
    return lines


def _cells(line: str) -> list[str]:
    return line.replace("\\|", "\0").strip().strip("|").split("|")


def _aligned(row: list[str], widths: list[int]) -> str:
    cells = (cell + " " * (width - columns_of(_plain(cell))) for cell, width in zip(row, widths, strict=False))
    return (" " * GAP).join(cells).rstrip()


def _upper(cell: str) -> str:
    return cell if "`" in cell else cell.upper()


def _plain(cell: str) -> str:
    """The cell without the marks of code and emphasis, which take no room."""
    return re.sub(r"`|\*\*", "", cell)


def _linked(line: str, topics: tuple[str, ...]) -> str:
    """Links as words: a guide's command, an address, or the text alone."""

    def words(match: re.Match[str]) -> str:
        text, target = match.groups()
        page = target.partition("#")[0].rpartition("/")[2].removesuffix(".md")
        if "://" in target:
            return f"{text} ({target})"
        if page in topics and "/" not in target.removeprefix("docs/"):
            return f"`leap help {page}`" if text == f"{page}.md" else f"{text} (`leap help {page}`)"
        return text

    return _LINK.sub(words, line)


TOPICS = {
    "quickstart": "From the first answer to an exported conversation",
    "text-generation": "One prompt: files, saved prompts, raw prompts, several answers",
    "chat": "Conversations at a terminal and in a pipe",
    "sessions": "Conversations that are kept, found and continued",
    "prompt-log": "A record of every prompt, for those who want one",
    "structured-outputs": "Answers with a shape: JSON schemas, choices, expressions",
    "tasks": "Extract, translate, summarize, redact, classify, decide",
    "documents-and-ocr": "PDF, offices, books, mail and scans as they are",
    "evaluation": "Which model is good enough, and did it get worse",
    "prompt-optimization": "From cases to the cheapest way that passes them; adapters trained",
    "decisions": "Typed questions about a state, answered by probabilities",
    "tool-calling": "Functions and commands that a model may call",
    "vision-and-audio": "Models that see and hear; speech to text",
    "voice-chat": "Conversations by voice: microphone, loudspeaker, files",
    "batch-inference": "Thousands of prompts, resumed after a crash",
    "remote-models": "Endpoints with the OpenAI-compatible API as models; keys, privacy, escalation",
    "distributed-jobs": "One queue on PostgreSQL for many machines",
    "clusters": "Sharding on Slurm and Kubernetes, Ray, data frames",
    "background-jobs": "Jobs in a queue, run by a worker daemon",
    "scheduling": "Cron schedules, jobs after jobs, folder watch",
    "webhooks": "Webhooks, desktop notifications, commands after a job",
    "embeddings-and-rag": "Finding and asking in one's own files; vectors",
    "models": "Names, downloads, imports, checks",
    "fine-tuning": "Your own models: training data, converted, quantized, measured",
    "coding-agents": "Coding agents on a local model, tool search, leap over MCP",
    "model-server": "Models kept loaded in the background",
    "openai-compatible-api": "The inference server: OpenAI, Anthropic and Ollama protocols",
    "web-ui": "Chat, models and jobs in the browser",
    "server-security": "API keys, hosts and limits of leap serve",
    "prompt-caching": "Prompt caching: the KV cache of common prefixes, in memory and on disk",
    "speculative-decoding": "Faster answers by prompt lookup (n-gram drafts)",
    "determinism": "The same answer for the same request; seeds, repetition detection",
    "gpu": "GPU offload: layers, devices, mixture of experts",
    "kv-cache-quantization": "The context window and the types of its KV cache",
    "lora-adapters": "LoRA adapters, one set for each request",
    "engines": "Builds of llama.cpp",
    "pipelines": "leap among other programs",
    "configuration": "config.toml, variables, defaults",
    "shell-completion": "TAB in four shells, and manual pages",
    "command-line": "What all commands have in common; exit codes",
    "reference": "Every command and option",
    "words": "What each option name means",
    "python-api": "leap from Python",
    "reliability": "What survives which accident",
}
"""Each guide and what it is about."""
TOPIC_OF = {
    "generate": "text-generation",
    "launch": "coding-agents",
    "train": "prompt-optimization",
    "saved templates": "text-generation",
    "saved schemas": "structured-outputs",
    "talk": "voice-chat",
    "batch": "batch-inference",
    "transcribe": "vision-and-audio",
    "extract": "tasks",
    "translate": "tasks",
    "summarize": "tasks",
    "redact": "tasks",
    "classify": "tasks",
    "decide": "decisions",
    "saved": "tasks",
    "index": "embeddings-and-rag",
    "ask": "embeddings-and-rag",
    "embed": "embeddings-and-rag",
    "download": "models",
    "load": "model-server",
    "ps": "model-server",
    "unload": "model-server",
    "serve": "openai-compatible-api",
    "export": "sessions",
    "config": "configuration",
    "models cache": "text-generation",
    "sessions log": "prompt-log",
    "doctor": "command-line",
    "jobs schedules": "scheduling",
    "jobs folder": "scheduling",
    "setup": "quickstart",
    "eval": "evaluation",
    "improve": "prompt-optimization",
    "tools": "tool-calling",
    "search": "embeddings-and-rag",
    "jobs": "background-jobs",
    "engine": "engines",
    "completion": "shell-completion",
}
"""The guide of a command whose name is no guide's."""


class GuideOfCommands:
    """What the command line's classes ask when help is shown."""

    def examples(self, path: str) -> tuple[str, ...]:
        from .examples import EXAMPLES

        return EXAMPLES.get(path, ())

    def topic(self, path: str) -> str:
        first, group = path.partition(" ")[0], " ".join(path.split()[:2])
        return TOPIC_OF.get(group) or TOPIC_OF.get(first) or (first if first in TOPICS else "command-line")


def text_of(topic: str) -> str:
    """The guide's Markdown. Raises FileNotFoundError where this installation came without the guides."""
    page = shipped_file("docs", f"{topic}.md")
    if page is None:
        raise FileNotFoundError(f"the guide {topic} is not part of this installation")
    return page.read_text("utf-8")


def shipped_file(folder: str, name: str) -> Path | None:
    """A file that ships beside the packages: in this folder of a checkout, in ``share`` of an installation."""
    from importlib.metadata import PackageNotFoundError, files

    import leap_cli

    if (path := Path(leap_cli.__path__[0]).resolve().parent / folder / name).is_file():
        return path
    try:
        found = [file for file in files("leap-edge") or () if file.name == name and "share" in file.parts]
    except PackageNotFoundError:
        return None
    return next((path for file in found if (path := Path(str(file.locate())).resolve()).is_file()), None)

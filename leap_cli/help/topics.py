"""The guides: which there are, which one is about a command, and their text.

The pages are those of ``docs/``; an installed leap has them in its distribution's data files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

TOPICS = {
    "first-hour": "From the first answer to an exported conversation",
    "one-shot": "One prompt: files, saved prompts, raw prompts, several answers",
    "chat": "Conversations at a terminal and in a pipe",
    "sessions": "Conversations that are kept, found and continued",
    "log": "A record of every prompt, for those who want one",
    "schemas": "Answers with a shape: JSON schemas, choices, expressions",
    "tasks": "Extract, translate, summarize, redact, classify, decide",
    "eval": "Which model is good enough, and did it get worse",
    "decisions": "Typed questions about a state, answered by probabilities",
    "tools": "Functions and commands that a model may call",
    "pictures-and-sound": "Models that see and hear; speech to text",
    "talk": "Conversations by voice: microphone, loudspeaker, files",
    "batches": "Thousands of prompts, resumed after a crash",
    "endpoints": "models elsewhere: OpenAI's protocol, keys, privacy",
    "clusters": "Slurm, Kubernetes: batches beyond one machine",
    "jobs": "Work in the background",
    "search": "Finding and asking in one's own files; vectors",
    "models": "Names, downloads, imports, checks",
    "fine-tuning": "Your own models: training data, converted, quantized, measured",
    "host": "Warm models, and serving them to other programs",
    "pipes": "leap among other programs",
    "configuration": "config.toml, variables, defaults",
    "completion": "TAB in four shells, and manual pages",
    "command-line": "What all commands have in common; exit codes",
    "reference": "Every command and option",
    "words": "What each option name means",
    "python-api": "leap from Python",
    "reliability": "What survives which accident",
}
"""Each guide and what it is about."""
TOPIC_OF = {
    "generate": "one-shot",
    "templates": "one-shot",
    "talk": "talk",
    "batch": "batches",
    "transcribe": "pictures-and-sound",
    "extract": "tasks",
    "translate": "tasks",
    "summarize": "tasks",
    "redact": "tasks",
    "classify": "tasks",
    "decide": "decisions",
    "recipes": "tasks",
    "index": "search",
    "ask": "search",
    "embed": "search",
    "download": "models",
    "load": "host",
    "ps": "host",
    "unload": "host",
    "serve": "host",
    "export": "sessions",
    "config": "configuration",
    "cache": "one-shot",
    "doctor": "command-line",
    "man": "completion",
    "setup": "first-hour",
}
"""The guide of a command whose name is no guide's."""


class Guide:
    """What the command line's classes ask when help is shown."""

    def examples(self, path: str) -> tuple[str, ...]:
        from .examples import EXAMPLES

        return EXAMPLES.get(path, ())

    def topic(self, path: str) -> str:
        command = path.partition(" ")[0]
        return TOPIC_OF.get(command, command if command in TOPICS else "command-line")


def text_of(topic: str) -> str:
    """The guide's Markdown. Raises FileNotFoundError where this installation came without the guides."""
    for directory in _directories():
        if (page := directory / f"{topic}.md").is_file():
            return page.read_text("utf-8")
    raise FileNotFoundError(f"the guide {topic} is not part of this installation")


def _directories() -> Iterator[Path]:
    from importlib.metadata import PackageNotFoundError, files

    import leap_cli

    yield Path(leap_cli.__path__[0]).resolve().parent / "docs"
    try:
        pages = [file for file in files("leap-edge") or () if file.name == "command-line.md"]
    except PackageNotFoundError:
        return
    for page in pages:
        yield Path(str(page.locate())).resolve().parent

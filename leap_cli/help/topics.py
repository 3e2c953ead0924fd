"""The pages of the documentation: which there are, their titles, and which one is about a command.

They are the files of ``docs/``; an installed leap has them in its distribution's data files.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import click

REFERENCE = "reference"
INDEX = "README"
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


@cache
def topics() -> dict[str, str]:
    """The first sentence of each page by the page's name, in the order of docs/README.md, then by name."""
    folder = _folder()
    if folder is None:
        return {}
    index = (folder / f"{INDEX}.md").read_text("utf-8")
    listed = [name for name in re.findall(r"\]\(([\w-]+)\.md", index) if (folder / f"{name}.md").is_file()]
    names = dict.fromkeys([*listed, *sorted(path.stem for path in folder.glob("*.md") if path.stem != INDEX)])
    pages = {name: first_sentence((folder / f"{name}.md").read_text("utf-8")) for name in names}
    return pages | {REFERENCE: "Every command, option, setting and exit code."}


def first_sentence(text: str) -> str:
    """The first sentence of a page below its title, without links. Of a page that has no text there, its title."""
    title = ""
    for block in re.split(r"\n\s*\n", text):
        block = block.strip()
        if block.startswith("#"):
            title = title or block.lstrip("# ")
        elif block[:1].isalnum() or block.startswith(("`", "[", "*")):
            plain = _LINK.sub(r"\1", " ".join(block.split()))
            return re.split(r"(?<=[.!?:])\s+(?=[A-Z`])", plain)[0].rstrip(":")
    return title


TOPIC_OF = {
    "generate": "text-generation",
    "launch": "coding-agents",
    "train": "fine-tuning",
    "saved templates": "text-generation",
    "saved schemas": "structured-outputs",
    "talk": "voice-chat",
    "batch": "batch-inference",
    "transcribe": "vision-and-audio",
    "extract": "information-extraction",
    "translate": "translation-and-summarization",
    "summarize": "translation-and-summarization",
    "redact": "pii-redaction",
    "classify": "zero-shot-classification",
    "decide": "zero-shot-classification",
    "saved": "tasks",
    "index": "embeddings-and-rag",
    "ask": "embeddings-and-rag",
    "embed": "embeddings-and-rag",
    "download": "models",
    "load": "model-server",
    "ps": "model-server",
    "unload": "model-server",
    "serve": "openai-compatible-api",
    "engine": "engines",
    "export": "sessions",
    "config": "configuration",
    "models cache": "prompt-caching",
    "sessions log": "prompt-log",
    "why": "prompt-log",
    "doctor": "command-line",
    "jobs schedules": "scheduling",
    "jobs folder": "scheduling",
    "setup": "quickstart",
    "eval": "evaluation",
    "improve": "prompt-optimization",
    "tools": "tool-calling",
    "search": "embeddings-and-rag",
    "jobs": "background-jobs",
    "completion": "shell-completion",
}
"""The guide of a command whose name is no guide's."""


class GuideOfCommands:
    """What the command line's classes ask when help is shown."""

    def examples(self, path: str) -> tuple[str, ...]:
        from .examples import EXAMPLES

        return EXAMPLES.get(path, ())

    def output(self, path: str) -> str:
        from .examples import OUTPUTS

        return OUTPUTS.get(path, "")

    def is_rare(self, option: click.Option) -> bool:
        from .rare_options import is_rare

        return is_rare(option)

    def topic(self, path: str) -> str:
        first, group = path.partition(" ")[0], " ".join(path.split()[:2])
        return TOPIC_OF.get(group) or TOPIC_OF.get(first) or (first if first in topics() else "command-line")


def text_of(topic: str) -> str:
    """The page's Markdown. Raises FileNotFoundError where this installation came without the pages."""
    page = shipped("docs", f"{topic}.md")
    if page is None:
        raise FileNotFoundError(f"the page {topic} is not part of this installation")
    return page.read_text("utf-8")


def pages() -> dict[str, str]:
    """The Markdown of every guide by its name."""
    folder = _folder()
    return {} if folder is None else {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.md"))}


def _folder() -> Path | None:
    page = shipped("docs", f"{INDEX}.md")
    return None if page is None else page.parent


def shipped(folder: str, name: str) -> Path | None:
    """A file of ``docs/`` or ``completions/``: beside the packages of a checkout, in ``share`` of an installation."""
    from importlib.metadata import PackageNotFoundError, files

    import leap_cli

    if (path := Path(leap_cli.__path__[0]).resolve().parent / folder / name).is_file():
        return path
    try:
        shared = [file for file in files("leap-edge") or () if "share" in file.parts]
    except PackageNotFoundError:
        return None
    found = (Path(str(file.locate())).resolve() for file in shared if file.name == name)
    return next((path for path in found if path.is_file()), None)

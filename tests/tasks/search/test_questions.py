"""Twenty questions over leap's own pages: the right page is among the first three that are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from leap_core.tasks.search.index_file import IndexFile, IndexSettings
from leap_core.tasks.search.searching import Searcher
from leap_core.tasks.search.updating import update_index

DOCS = Path(__file__).parents[3] / "docs"
QUESTIONS = {  # the pages that answer each
    "How do I make the answer follow a JSON schema?": "structured-outputs.md",
    "How can a model call my Python functions?": "tool-calling.md",
    "What happens to a running job when the worker is killed?": "reliability.md background-jobs.md",
    "Where are downloaded models kept on disk?": "models.md",
    "How do I keep a model warm between commands?": "model-server.md",
    "Which exit code means that a download failed?": "command-line.md",
    "How do I answer thousands of prompts from a file?": "batch-inference.md",
    "How do I continue yesterday's conversation?": "sessions.md",
    "How do I get TAB completion in zsh?": "shell-completion.md",
    "Where do I set the default model?": "configuration.md",
    "How do I port my Kotlin code from the LEAP SDK?": "migrating.md",
    "How does prompt caching work with LFM2's convolutions?": "prompt-caching.md",
    "How do I run a prompt in the background and get its answer later?": "background-jobs.md",
    "Can I use the official openai client?": "openai-compatible-api.md",
    "How do I attach a file to a message while chatting?": "chat.md vision-and-audio.md",
    "How do I use leap with xargs and jq?": "pipelines.md",
    "How do I stop a generation from Python?": "python-api.md",
    "How do I save a prompt as a template?": "text-generation.md",
    "How can I transcribe a recording?": "vision-and-audio.md",
    "How do I rerank passages with a ColBERT model?": "embeddings-and-rag.md",
}


def pages_for(path: Path, question: str, runner=None, mode: str = "hybrid") -> list[str]:
    """The first three pages."""
    with IndexFile(path) as index:
        hits = Searcher(index, runner).search(question, most=30, mode=mode)
    return list(dict.fromkeys(Path(hit.passage.path).name for hit in hits))[:3]


@pytest.mark.slow
def test_words_alone_find_the_right_page(tmp_path: Path) -> None:
    pages = tuple(str(path) for path in sorted(DOCS.glob("*.md")) if path.name != "README.md")
    update_index(tmp_path / "docs.db", IndexSettings(pages), None)
    missed = {
        question: found
        for question, right in QUESTIONS.items()
        if not set(right.split()) & set(found := pages_for(tmp_path / "docs.db", question, mode="words"))
    }
    assert len(missed) <= 4, missed


@pytest.mark.long
def test_words_and_the_built_in_vectors_together_find_the_right_page(tmp_path: Path) -> None:
    from leap_core import Leap

    pages = tuple(str(path) for path in sorted(DOCS.glob("*.md")) if path.name != "README.md")
    with Leap.load_for_embedding("builtin-embed") as runner:
        update_index(tmp_path / "docs.db", IndexSettings(pages, model="builtin-embed"), runner)
        found = {question: pages_for(tmp_path / "docs.db", question, runner) for question in QUESTIONS}
    missed = {
        question: found[question]
        for question, right in QUESTIONS.items()
        if not set(right.split()) & set(found[question])
    }
    assert len(missed) <= 4, missed

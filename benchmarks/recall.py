"""Recall at 5 of `leap search` over this project's documentation: with words, with vectors, with both.

    python benchmarks/recall.py [--model builtin-embed] [--model FILE.gguf] [--python] [--verbose]

A question counts as found where one of the first five passages is of the page that answers it. The questions were
written from the pages' subjects, not from their sentences.
"""

from __future__ import annotations

import argparse
import json
import pydoc
import tempfile
import time
from importlib import import_module
from pathlib import Path

from harness import SHORT

from leap_core.evaluation.results import wilson
from leap_core.opening import open_embedding_runner
from leap_core.tasks.search.index_file import IndexFile, IndexSettings
from leap_core.tasks.search.searching import Searcher, SearchMode
from leap_core.tasks.search.updating import update_index

BEST = 5
DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = "tasks pii-redaction sessions" if SHORT else "*"
QUESTIONS = {
    "How do I stop a job that runs in the background?": "background-jobs",
    "restart failed jobs": "background-jobs",
    "What does the worker process do when I log out?": "background-jobs",
    "How are the lines of a JSONL file answered in bulk?": "batch-inference",
    "continue an interrupted batch without computing finished lines again": "batch-inference",
    "What happens when a chat grows longer than the model's context?": "chat",
    "commands that start with a slash": "chat",
    "block harmful messages": "chat",
    "spread a batch over many machines with Ray": "clusters",
    "use it from a pandas or polars data frame": "clusters",
    "How can Claude Code or Codex talk to my local model?": "coding-agents",
    "too many tools fill the prompt of an agent": "coding-agents",
    "What does exit code 8 mean?": "command-line",
    "environment variables and the order in which settings count": "configuration",
    "default values in a TOML file": "configuration",
    "Is the output the same each time I run it?": "determinism",
    "an answer repeats the same sentence without end": "determinism",
    "share a job queue between computers with PostgreSQL": "distributed-jobs",
    "read text from PDF and Word files": "documents-and-ocr",
    "recognize text in scanned pages": "documents-and-ocr",
    "ask questions about my own files": "embeddings-and-rag",
    "compute vectors of texts": "embeddings-and-rag",
    "use a newer build of llama.cpp": "engines",
    "compare two models on my own test cases": "evaluation",
    "fail the build when answers get worse": "evaluation",
    "Where does the program store its files?": "files-and-uninstall",
    "remove everything from my computer": "files-and-uninstall",
    "train a model on my own examples": "fine-tuning",
    "turn safetensors into a GGUF file": "fine-tuning",
    "How many layers go to the graphics card?": "gpu",
    "not enough video memory": "gpu",
    "get names and dates from an invoice as JSON": "information-extraction",
    "check by hand what was extracted": "information-extraction",
    "which sentence did this value come from?": "information-extraction",
    "save memory with a smaller cache of keys and values": "kv-cache-quantization",
    "switch between several adapters on one base model": "lora-adapters",
    "port a mobile app from the LEAP SDK": "migrating",
    "keep a model in memory between commands": "model-server",
    "chat requests go before batch work": "model-server",
    "Which model fits into 8 GB of RAM?": "models",
    "use the models that ollama has downloaded": "models",
    "connect the OpenAI client library": "openai-compatible-api",
    "HTTP status codes when there are too many requests": "openai-compatible-api",
    "mask names and phone numbers before sending a text": "pii-redaction",
    "put the original values back": "pii-redaction",
    "use it in a shell loop": "pipelines",
    "add my own command with a Python package": "plugins",
    "reuse the computed prompt of a long system message": "prompt-caching",
    "see which prompts were sent to the model": "prompt-log",
    "let the program find a better system prompt": "prompt-optimization",
    "stream tokens in an async Python function": "python-api",
    "write unit tests without a real model": "python-api",
    "What is the difference between Q4_0 and Q8_0?": "quantization",
    "How much worse does a model get when it is made smaller?": "quantization",
    "first steps after installing": "quickstart",
    "Does work get lost when the power fails?": "reliability",
    "use a model at OpenAI or another provider": "remote-models",
    "run a prompt every morning": "scheduling",
    "start a job when a file appears in a folder": "scheduling",
    "protect the server with a password": "server-security",
    "search in old conversations": "sessions",
    "complete commands with the tab key": "shell-completion",
    "faster decoding by guessing tokens from the prompt": "speculative-decoding",
    "force the answer to match a JSON schema": "structured-outputs",
    "Pydantic classes as the type of an answer": "structured-outputs",
    "answers must match a regular expression": "structured-outputs",
    "change the wording that a task uses": "tasks",
    "Which models were tried with it?": "tested-models",
    "set the temperature": "text-generation",
    "how likely was each token?": "text-generation",
    "read an answer aloud": "text-to-speech",
    "let the model call a function": "tool-calling",
    "MCP servers": "tool-calling",
    "translate a file into Japanese": "translation-and-summarization",
    "minutes of a meeting": "translation-and-summarization",
    "describe a photo": "vision-and-audio",
    "turn a recording into text": "vision-and-audio",
    "talk with the microphone": "voice-chat",
    "use it in a browser": "web-ui",
    "notify a URL when a job is done": "webhooks",
    "sort e-mails into categories": "zero-shot-classification",
    "are the probabilities of labels right?": "zero-shot-classification",
}


LONGEST_PAGE = 12_000
"""Characters of a module's help that are indexed."""


def python_help(directory: Path) -> dict[str, str]:
    """Write the help of modules of Python's library into a directory, as pages; the questions with their pages. The
    questions chose nothing."""
    known = json.loads((Path(__file__).parent / "tasks" / "python_questions.json").read_text("utf-8"))
    for name in {*known["questions"].values(), *known["others"]}:
        try:
            text = pydoc.plain(pydoc.render_doc(import_module(name)))
        except ImportError:  # not of this version or system
            continue
        (directory / f"{name}.md").write_text(text[:LONGEST_PAGE], "utf-8")
    return {text: page for text, page in known["questions"].items() if (directory / f"{page}.md").exists()}


def measure(model: str | None, given: argparse.Namespace) -> None:
    """Print the share of questions that are found in each way."""
    questions = {text: page for text, page in QUESTIONS.items() if not SHORT or page in PAGES.split()}
    docs, patterns, verbose = DOCS, tuple(f"{page}.md" for page in PAGES.split()), given.verbose
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "index"
        if given.python:
            docs, patterns = Path(directory), ("*.md",)
            questions = python_help(docs)
        runner = None if model is None else open_embedding_runner(model, host="never")
        started = time.perf_counter()
        update_index(path, IndexSettings((str(docs),), patterns, model), runner)
        print(f"{model or 'no model'}: indexed in {time.perf_counter() - started:.0f} s")
        with IndexFile(path) as index:
            searcher = Searcher(index, runner)
            for mode in SearchMode if runner is not None else (SearchMode.WORDS,):
                lost = []
                for question, page in questions.items():
                    found = [hit.passage.path for hit in searcher.search(question, most=BEST, mode=mode)]
                    if not any(each.endswith(f"/{page}.md") for each in found):
                        lost.append((question, page, [Path(each).stem for each in found]))
                right = len(questions) - len(lost)
                low, high = wilson(right, len(questions))
                share = f"{right / len(questions):.2f} ({low:.2f} to {high:.2f})"
                print(f"  {mode.value}: recall at {BEST} {share}, {right} of {len(questions)}")
                for each in lost if verbose else ():
                    print("    lost:", *each)


def main() -> None:
    """Measure each model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", action="append", help="an embedding model; by default the built-in one")
    parser.add_argument("--python", action="store_true", help="questions about Python's library, over its help")
    parser.add_argument("--verbose", action="store_true", help="print what is not found")
    given = parser.parse_args()
    for model in given.model or ["builtin-embed"]:
        measure(model, given)


if __name__ == "__main__":
    main()

"""``leap help WORDS``: the field's terms lead to the page that explains them."""

from __future__ import annotations

import pytest

from leap_cli.help.search import MOST, all_sections, entries, plain, terms_in
from leap_cli.help.terms import TERMS
from leap_cli.help.topics import topics
from leap_cli.reference import pages as reference
from leap_core.system.text_index import TextIndex

from ..support.tables import check_each

STANDARD = {
    "structured output": "structured-outputs",
    "JSON mode": "structured-outputs",
    "constrained decoding": "structured-outputs",
    "grammar": "structured-outputs",
    "function calling": "tool-calling",
    "tool calling": "tool-calling",
    "prompt injection": "tool-calling",
    "vision": "vision-and-audio",
    "multimodal": "vision-and-audio",
    "speech-to-text": "vision-and-audio",
    "ASR": "vision-and-audio",
    "text-to-speech": "text-to-speech",
    "TTS": "text-to-speech",
    "RAG": "embeddings-and-rag",
    "semantic search": "embeddings-and-rag",
    "embeddings": "embeddings-and-rag",
    "reranker": "embeddings-and-rag",
    "citations": "embeddings-and-rag",
    "OCR": "documents-and-ocr",
    "PDF": "documents-and-ocr",
    "PII": "pii-redaction",
    "summarization": "translation-and-summarization",
    "zero-shot classification": "zero-shot-classification",
    "guardrails": "chat",
    "LLM judge": "evaluation",
    "few-shot": "prompt-optimization",
    "prompt optimization": "prompt-optimization",
    "fine-tuning": "fine-tuning",
    "LoRA": None,
    "imatrix": None,
    "KV cache": None,
    "prompt caching": None,
    "context window": "text-generation",
    "speculative decoding": None,
    "GPU": None,
    "chain of thought": "text-generation",
    "prompt template": "text-generation",
    "batch inference": "batch-inference",
    "cron": "scheduling",
    "webhook": None,
    "job queue": "background-jobs",
    "Kubernetes": "clusters",
    "model server": "model-server",
    "OpenAI-compatible": None,
    "remote models": "remote-models",
    "MCP": "tool-calling",
    "coding agent": "coding-agents",
    "shell completion": "shell-completion",
}
"""Terms and their pages; None where the page is the first one of the term's that is there."""


def page_of(term: str) -> str:
    """The first page of the term's that is there."""
    names = next(each.pages for each in TERMS if term.lower().replace("-", " ") in each.words.split(", "))
    return next(page for page in names.split() if page in topics())


@pytest.mark.parametrize("term", ["batch inference", "few-shot", "RAG"])
def test_a_term_of_the_field_leads_to_its_page(leap, term):
    done = leap("help", *term.replace("-", " ").split())
    first, command, *others = done.stdout.splitlines()
    assert done.code == 0 and first.startswith(f"leap help {STANDARD[term]}: ")
    assert command.startswith("    ") and len([line for line in others if not line.startswith(" ")]) < 5


def test_every_term_of_the_field_leads_to_its_page():
    """They share one index, which takes 0.1 s to make."""
    index = TextIndex(all_sections(reference.pages()))

    def check(term: str) -> None:
        query = plain(term)
        first, *others = entries(index, query, terms_in(query))
        assert first.page == (STANDARD[term] or page_of(term)) and first.command
        assert len(others) < MOST

    check_each(STANDARD, check)
    index.close()


def test_every_term_has_a_page_and_one_meaning():
    assert [each for each in TERMS if not {*each.pages.split()} & {*topics()}] == []
    words = [word.strip() for each in TERMS for word in each.words.split(",")]
    assert sorted({word for word in words if words.count(word) > 1}) == []


def test_words_of_an_option_a_question_and_an_error_are_found(leap):
    assert "leap index make --ocr-model MODEL" in leap("help", "ocr").stdout
    assert "batch-inference" in leap("help", "how do I split a batch over machines").stdout
    assert "error: there is no index" in leap("help", "there is no index").stdout
    assert "leap help options-model" in leap("help", "flash", "attention").stdout


def test_the_reference_is_made_when_it_is_asked_for(leap):
    assert leap("help", "options-model").stdout == reference.pages()["options-model"]
    assert leap("help", "settings").stdout.startswith("# Settings\n")
    assert leap("help", "exit-codes").stdout.startswith("# Exit codes\n")
    assert "- [leap generate](generate.md)" in leap("help", "reference").stdout


def test_nothing_found_names_what_is_near(leap):
    done = leap("help", "quantizaton")
    assert done.code == 2 and "nearest: quantization" in done.stderr
    done = leap("help", "xyzzyx")
    assert (
        done.code == 2 and "nothing in the documentation fits 'xyzzyx'" in done.stderr and "nearest" not in done.stderr
    )


@pytest.mark.slow
@pytest.mark.parametrize("hostile", ['"', "a OR", "NEAR(", "*", "--", "😀", "x" * 100_000])
def test_hostile_words_find_nothing_or_something(leap, hostile):
    assert leap("help", "--", hostile).code in (0, 2)

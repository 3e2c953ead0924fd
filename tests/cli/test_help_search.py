"""``leap help WORDS``: the field's terms lead to the page that explains them."""

from __future__ import annotations

import pytest

from leap_cli.help.search import MOST, all_sections, entries, plain, terms_in
from leap_cli.help.terms import TERMS
from leap_cli.help.topics import topics
from leap_cli.reference import pages as reference
from leap_core.system.full_text_search import TextIndex

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


COMMANDS = {
    "delete model": "leap models remove",
    "uninstall": "pip uninstall leap-edge",
    "upgrade": "git pull && pip install .",
    "version": "leap --version",
    "where are files": "leap models list --sort size",
    "modelfile": "leap saved templates add",
    "system prompt": "leap generate --system",
    "stop sequence": "leap generate --stop",
    "log prompts": "leap sessions log on",
    "proxy": "HTTPS_PROXY=",
    "offline": "leap config set offline true",
    "benchmark": "leap models bench",
    "temperature": "leap generate --temperature",
    "top_p": "leap generate --temperature",
    "seed": "leap generate --seed",
    "max tokens": "leap generate --max-tokens",
    "context size": "leap generate --context-size",
    "logprobs": "leap generate --top-logprobs",
    "best of n": "leap generate -n",
    "count tokens": "leap generate --dry-run",
    "chat template": "leap generate --chat-template",
    "json schema": "leap generate --json-schema",
    "code block": "leap generate -x",
    "output file": "leap generate 'PROMPT' -o",
    "attach file": "leap generate -f",
    "image input": "leap generate --image",
    "threads": "leap generate --threads",
    "gpu layers": "leap generate --gpu-layers",
    "lora": "leap generate --lora",
    "reasoning": "leap generate --think",
    "default model": "leap models default",
    "rename model": "leap models alias",
    "list models": "leap models list",
    "import model": "leap models import",
    "find model": "leap models search",
    "pull": "leap download",
    "checksum": "leap models verify",
    "quantize model": "leap models quantize",
    "out of memory": "leap models fit",
    "ollama": "leap models list --all",
    "hf token": "HF_TOKEN=",
    "cancel job": "leap jobs cancel",
    "job status": "leap jobs list",
    "retry": "leap jobs retry",
    "cron": "leap summarize FILE --every",
    "background": "leap generate --background",
    "stop server": "leap unload",
    "running models": "leap ps",
    "port": "leap serve",
    "api key": "leap serve MODEL --api-key-file",
    "openai api": "leap serve",
    "docker": "leap serve",
    "history": "leap sessions list",
    "save chat": "leap export",
    "delete history": "leap sessions remove",
    "slow request": "leap why",
    "embedding": "leap embed",
    "knowledge base": "leap index",
    "transcription": "leap transcribe",
    "bash": "leap completion",
    "man page": "leap help --install-man",
    "debug": "leap doctor",
    "mcp server": "leap mcp",
}
"""What people ask for, and the command of the first line."""


def page_of(term: str) -> str:
    """The first page of the term's that is there."""
    names = next(each.pages for each in TERMS if term.lower().replace("-", " ") in each.words.split(", "))
    return next(page for page in names.split() if page in topics())


@pytest.mark.parametrize("term", ["batch inference", "few-shot", "RAG"])
def test_a_term_of_the_field_leads_to_its_page(leap, term):
    done = leap("help", *term.replace("-", " ").split())
    command, page, *others = done.stdout.splitlines()
    assert done.code == 0 and page.startswith(f"    leap help {STANDARD[term]}: ")
    assert not command.startswith(" ") and len([line for line in others if not line.startswith(" ")]) < 5


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


def test_common_questions_lead_to_the_command():
    index = TextIndex(all_sections(reference.pages()))

    def check(words: str) -> None:
        query = plain(words)
        assert entries(index, query, terms_in(query))[0].command.startswith(COMMANDS[words])

    check_each(COMMANDS, check)
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


def test_a_search_without_results_suggests_similar_words(leap):
    done = leap("help", "quantizaton")
    assert done.code == 2 and "nearest: quantization" in done.stderr
    done = leap("help", "xyzzyx")
    assert (
        done.code == 2 and "nothing in the documentation fits 'xyzzyx'" in done.stderr and "nearest" not in done.stderr
    )


@pytest.mark.slow
@pytest.mark.parametrize("hostile", ['"', "a OR", "NEAR(", "*", "--", "😀", "x" * 100_000])
def test_hostile_words_raise_no_error(leap, hostile):
    assert leap("help", "--", hostile).code in (0, 2)


def test_a_second_search_imports_no_command(tmp_path, monkeypatch):
    made = dict(reference.pages())
    calls = []
    monkeypatch.setattr(reference, "pages", lambda: calls.append(1) or made)
    assert reference.kept_pages(tmp_path / "new") == made and calls
    calls.clear()
    assert reference.kept_pages(tmp_path / "new") == made and not calls
    kept = tmp_path / "new" / "reference.json"
    for damaged in ("", "[]", "{}", "{", '{"another state": {}}'):
        kept.write_text(damaged)
        assert reference.kept_pages(tmp_path / "new") == made and calls
    kept.unlink()
    kept.mkdir()  # cannot be written
    assert reference.kept_pages(tmp_path / "new") == made

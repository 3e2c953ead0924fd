"""The field's terms, each with the pages that explain it and the command: the synonyms of ``leap help WORDS``."""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    """``words``: names of one thing, with commas between. ``pages``: where it is explained, the best first; those that
    are not there are passed over. ``command``: what to type."""

    words: str
    pages: str
    command: str


TERMS = (
    Term(
        "structured output, structured outputs, json mode, json schema, response format, constrained decoding, "
        "guided decoding, grammar, regular expression, regex, pydantic, enum, choices, schemas, valid json",
        "structured-outputs",
        "leap generate --json-schema 'name, age int' 'TEXT'",
    ),
    Term(
        "tool calling, function calling, tool use, tools, functions, tool call, parallel tool calls, prompt injection",
        "tool-calling",
        "leap generate --tool NAME 'PROMPT'",
    ),
    Term("tool search, deferred tools, many tools", "tool-calling coding-agents", "leap chat --tool-search"),
    Term(
        "mcp, model context protocol, mcp server", "tool-calling coding-agents", "leap mcp; leap tools add NAME --mcp"
    ),
    Term(
        "vision, image, images, picture, photo, multimodal, vlm, image input, mmproj, projector, pictures and sound",
        "vision-and-audio",
        "leap generate --image FILE 'PROMPT'",
    ),
    Term(
        "speech to text, asr, speech recognition, transcription, transcribe, whisper, subtitles, srt, audio input",
        "vision-and-audio",
        "leap transcribe FILE",
    ),
    Term(
        "text to speech, tts, speech synthesis, speech, voice, read aloud",
        "text-to-speech",
        "leap say 'TEXT' -o FILE.wav",
    ),
    Term(
        "voice chat, talk, microphone, speech to speech, voice assistant, push to talk, barge in",
        "voice-chat",
        "leap talk",
    ),
    Term(
        "rag, retrieval augmented generation, retrieval, semantic search, hybrid search, vector search, "
        "vector database, citation, citations, ask documents, knowledge base, chunking, rerank, reranker, "
        "reranking, colbert",
        "embeddings-and-rag",
        "leap index NAME PATH; leap ask NAME 'QUESTION'",
    ),
    Term(
        "embedding, embeddings, embed, vectors, sentence similarity, cosine", "embeddings-and-rag", "leap embed 'TEXT'"
    ),
    Term(
        "ocr, scan, scans, scanned pdf, pdf, docx, word, excel, xlsx, powerpoint, office files, epub, documents",
        "documents-and-ocr",
        "leap summarize FILE.pdf; leap index make NAME PATH --ocr-model MODEL",
    ),
    Term(
        "information extraction, extract, extraction, entity extraction, ner, named entities",
        "information-extraction",
        "leap extract FILE",
    ),
    Term(
        "summarization, summarize, summary, meeting minutes, translation, translate",
        "translation-and-summarization",
        "leap summarize FILE",
    ),
    Term(
        "pii, redaction, redact, anonymization, anonymize, masking, personal data, gdpr",
        "pii-redaction",
        "leap redact FILE",
    ),
    Term(
        "classification, classify, zero shot classification, zero shot, sentiment, labels, intent, log probabilities",
        "zero-shot-classification tasks",
        "leap classify FILE --labels A,B",
    ),
    Term(
        "guardrail, guardrails, moderation, content filter, safety",
        "chat zero-shot-classification",
        "leap chat --guard QUESTIONS.json",
    ),
    Term(
        "calibration, confidence, uncertainty, human review, annotation",
        "information-extraction zero-shot-classification",
        "leap extract --review FILE",
    ),
    Term(
        "evaluation, eval, evals, benchmark, test cases, llm judge, llm as a judge, regression",
        "evaluation",
        "leap eval FILE",
    ),
    Term(
        "prompt optimization, optimize prompt, optimizer, dspy, gepa, few shot, few shot examples, improve, improving",
        "prompt-optimization",
        "leap improve CASES.jsonl",
    ),
    Term(
        "fine tuning, fine tune, finetune, training, train, sft, convert checkpoint, safetensors, training data",
        "fine-tuning prompt-optimization",
        "leap train CASES.jsonl -m CHECKPOINT",
    ),
    Term(
        "lora, adapter, adapters, peft, lora adapter",
        "lora-adapters fine-tuning engine",
        "leap generate --lora FILE.gguf",
    ),
    Term(
        "quantization, quantize, quantized, gguf, q4_k_m, bits, imatrix, perplexity",
        "quantization fine-tuning models",
        "leap models quantize MODEL --to Q4_K_M",
    ),
    Term(
        "kv cache, kv cache quantization, cache type, quantized kv cache",
        "kv-cache-quantization prompt-caching engine",
        "leap generate --kv-type-k q8_0 --kv-type-v q8_0",
    ),
    Term(
        "prompt caching, prefix caching, prefix cache, prompt cache, automatic prefix caching",
        "prompt-caching engine",
        "leap generate --prompt-cache",
    ),
    Term(
        "context window, context length, context size, num ctx, max tokens, token limit, long context",
        "text-generation chat engine",
        "leap generate --context-size N",
    ),
    Term(
        "speculative decoding, prompt lookup, speculative, draft model, ngram, n gram",
        "speculative-decoding engine",
        "leap generate --prompt-lookup",
    ),
    Term(
        "determinism, deterministic, reproducible, reproducibility, seed, batch invariance",
        "determinism engine",
        "leap generate --deterministic --seed N",
    ),
    Term(
        "gpu, cuda, vulkan, metal, gpu offload, vram, gpu layers, tensor split, moe",
        "gpu engine",
        "leap generate --gpu-layers N",
    ),
    Term("engine, engines, llama.cpp, llama cpp, backend, backends, libllama", "engines engine", "leap engine list"),
    Term(
        "continuous batching, parallel requests, concurrency, slots, throughput",
        "engine prompt-caching model-server",
        "leap serve --slots N",
    ),
    Term(
        "repetition detection, loops, repeats itself, endless answer",
        "text-generation engine",
        "leap generate --repetition-detection",
    ),
    Term(
        "reasoning, thinking, chain of thought, cot, think, reasoning budget, reasoning model",
        "text-generation reasoning chat",
        "leap generate --think show 'PROMPT'",
    ),
    Term(
        "text generation, prompt, generate, one shot, sampling, temperature, streaming, stream",
        "text-generation",
        "leap generate 'PROMPT'",
    ),
    Term(
        "prompt templates, prompt template, templates, saved prompts, recipes",
        "text-generation tasks",
        "leap saved templates add NAME 'PROMPT'",
    ),
    Term("chat template, jinja", "models text-generation", "leap generate --chat-template FILE"),
    Term("chat, conversation, system prompt, slash commands", "chat", "leap chat"),
    Term("session, sessions, history, export, conversation history", "sessions", "leap sessions list"),
    Term("prompt log, logging, log, audit", "prompt-log", "leap sessions log on"),
    Term("slow request, latency, time to first token, cache miss, prefix cache miss", "prompt-log", "leap why"),
    Term(
        "batch, batches, batch inference, bulk, offline inference, jsonl, batch api",
        "batch-inference",
        "leap batch in.jsonl -o out.jsonl",
    ),
    Term(
        "background, background jobs, job queue, queue, worker, retry, retries, resume",
        "background-jobs",
        "leap generate --background 'PROMPT'; leap jobs",
    ),
    Term(
        "cron, schedule, scheduling, scheduled jobs, recurring, folder watch, watch folder, "
        "job dependencies, standing work",
        "scheduling",
        "leap summarize FILE --every '0 9 * * *'",
    ),
    Term("webhook, webhooks, callback url", "webhooks scheduling", "leap generate --background --webhook URL 'PROMPT'"),
    Term(
        "desktop notification, notification, notify, notifications",
        "webhooks scheduling",
        "leap generate --background --notify 'PROMPT'",
    ),
    Term(
        "distributed, distributed jobs, postgres, postgresql, many machines, several machines",
        "distributed-jobs",
        "leap config set jobs_url postgresql://HOST/DB",
    ),
    Term(
        "cluster, clusters, ray, slurm, kubernetes, k8s, sharding, shard",
        "clusters",
        "leap batch in.jsonl -o out.jsonl --shard 1/4",
    ),
    Term(
        "server, model server, inference server, loaded model, keep alive, daemon, preload, unload, "
        "eviction, warm models, host",
        "model-server",
        "leap serve MODEL; leap load MODEL",
    ),
    Term(
        "openai compatible, openai compatible api, openai api, http api, rest api, anthropic api, "
        "ollama api, chat completions, responses api",
        "openai-compatible-api model-server",
        "leap serve MODEL",
    ),
    Term(
        "api key, authentication, tls, server security, cors",
        "server-security model-server",
        "leap serve MODEL --api-key-file FILE",
    ),
    Term("web ui, webui, browser, gui, web interface", "web-ui model-server", "leap serve MODEL --web-ui"),
    Term("metrics, prometheus, monitoring", "model-server", "leap serve MODEL"),
    Term(
        "remote model, remote models, endpoint, endpoints, vllm, openrouter, cloud, proxy, models elsewhere",
        "remote-models",
        "leap models add-endpoint NAME URL",
    ),
    Term(
        "escalation, fallback, model cascade, cascade, routing",
        "remote-models batch-inference",
        "leap batch in.jsonl -o out.jsonl --escalate-to MODEL",
    ),
    Term(
        "coding agent, coding agents, agent, agents, claude code, codex, opencode, aider, skill",
        "coding-agents",
        "leap launch AGENT",
    ),
    Term(
        "model, models, download, hugging face, huggingface, hub, pull, catalogue, quant, offline",
        "models",
        "leap download MODEL",
    ),
    Term(
        "config, configuration, settings, environment variable, environment variables, defaults",
        "configuration",
        "leap config list",
    ),
    Term(
        "completion, shell completion, tab, bash, zsh, fish, powershell",
        "shell-completion",
        "leap completion SHELL --install",
    ),
    Term("pipe, pipes, pipeline, pipelines, stdin, unix, jq", "pipelines", "echo TEXT | leap generate -"),
    Term("exit code, exit codes, stderr, output format, command line, cli", "command-line", "leap COMMAND --help"),
    Term("python, python api, library, sdk, api", "python-api", "python -c 'from leap_core import Leap'"),
    Term("leap sdk, migration, migrating, kotlin, swift, android, ios", "migrating", "pip install leap-edge"),
    Term("reliability, crash, power failure, crash recovery, durability", "reliability", "leap doctor"),
    Term("quickstart, getting started, tutorial, install, first steps, first hour", "quickstart", "leap setup"),
)
FORMER = {
    "agents": "coding-agents",
    "batches": "batch-inference",
    "documents": "documents-and-ocr",
    "endpoints": "remote-models",
    "first-hour": "quickstart",
    "host": "model-server",
    "log": "prompt-log",
    "many-machines": "distributed-jobs",
    "one-shot": "text-generation",
    "pictures-and-sound": "vision-and-audio",
    "pipes": "pipelines",
    "schemas": "structured-outputs",
    "speech": "text-to-speech",
    "standing-work": "scheduling",
    "words": "reference",
}
"""Pages by the names that they had."""

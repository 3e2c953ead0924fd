"""What is typed for an option reaches its command: a line for each option that no other test types."""

from __future__ import annotations

from typing import Any

from leap_cli.command_table import command_line
from leap_cli.config.settings import commands

from ..support.tables import check_each

EVERY = dict(commands())
TYPED: list[tuple[str, list[str], str, Any]] = [
    ("ask", ["q", "--show-sources"], "show_sources", True),
    ("batch", ["in.jsonl", "--requests-per-minute", "7"], "requests_per_minute", 7),
    ("batch", ["in.jsonl", "--tokens-per-minute", "8"], "tokens_per_minute", 8),
    ("batch", ["in.jsonl", "--no-keep-fields"], "keep_fields", False),
    ("batch", ["in.jsonl", "--option", "keep-reasoning=true"], "show_thinking", True),
    ("batch", ["in.jsonl", "--option", "max-workers=3"], "max_workers", 3),
    ("download", ["NAME", "--revision", "main"], "revision", "main"),
    ("embed", ["text", "--option", "too-long=cut"], "too_long", "cut"),
    ("engine install", ["--backend", "vulkan"], "backend", "vulkan"),
    ("eval run", ["cases.jsonl", "--option", "embedding-model=other"], "embedder", "other"),
    ("extract", ["f.txt", "--option", "verbatim=true"], "verbatim", True),
    ("generate", ["Hi", "--no-deterministic"], "deterministic", False),
    ("generate", ["Hi", "--no-prompt-lookup"], "prompt_lookup", False),
    ("generate", ["Hi", "--option", "any-whitespace=true"], "any_whitespace", True),
    ("generate", ["Hi", "--option", "flash-attention=false"], "flash_attention", False),
    ("generate", ["Hi", "--option", "grounding=false"], "grounding", False),
    ("generate", ["Hi", "--option", "mmap=false"], "use_mmap", False),
    ("generate", ["Hi", "--option", "schema-in-prompt=false"], "schema_in_prompt", False),
    ("generate", ["Hi", "--option", "tensor-split=3,1"], "tensor_split", [3.0, 1.0]),
    ("generate", ["Hi", "--option", "think-budget-message=Enough."], "think_budget_message", "Enough."),
    ("generate", ["Hi", "--option", "xtc-probability=0.5"], "xtc_probability", 0.5),
    ("generate", ["Hi", "--option", "xtc-threshold=0.2"], "xtc_threshold", 0.2),
    ("train", ["d.jsonl", "-m", "dir", "-o", "a.gguf", "--epochs", "4"], "epochs", 4),
    ("index make", ["n", "d", "--option", "chunk-overlap=9"], "overlap", 9),
    ("jobs worker", ["--drain"], "drain", True),
    ("models quantize", ["m.gguf", "--to", "q8_0", "--option", "keep-split=true"], "keep_split", True),
    ("models quantize", ["m.gguf", "--to", "q8_0", "--option", "pure=true"], "pure", True),
    ("redact", ["f.txt", "--option", "patterns=false"], "patterns", False),
    ("say", ["Hi", "--option", "audio-top-k=5"], "audio_top_k", 5),
    ("serve", ["--media-urls", "web"], "media_urls", "web"),
    ("serve", ["--option", "max-connections=5"], "max_connections", 5),
    ("serve", ["--option", "max-models=3"], "max_models", 3),
    ("serve", ["--pin", "builtin"], "pin", ("builtin",)),
    ("talk", ["--option", "interrupt=false"], "interrupt", False),
    ("tools add", ["NAME", "--command", "c", "--description", "Looks."], "description", "Looks."),
    ("tools add", ["NAME", "--command", "c", "--env", "HOME"], "passes", ("HOME",)),
]


def test_what_is_typed_reaches_the_command(leap):
    env = leap.environment(b"", terminal=False, stdin_terminal=False)
    root = command_line.make_context("leap", [], obj=env)

    def check(row: tuple[str, list[str], str, Any]) -> None:
        path, line, name, value = row
        command = EVERY[path]
        context = command.make_context(path, list(line), parent=root)
        default = next(each.get_default(context) for each in command.params if each.name == name)
        assert context.params[name] == value != default

    check_each(TYPED, check, lambda row: " ".join([row[0], *row[1]]))

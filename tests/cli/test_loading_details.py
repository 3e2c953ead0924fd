"""The rarer options of loading and of answers reach the model, from the command line and from config.toml."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leap_core import GenerationOptions, LoraAdapter
from leap_core.conversation.options import CacheOptions
from leap_core.inference.engine.snapshots import SnapshotStore


def test_every_option_reaches_the_model(leap):
    (leap.home.parent / "chat.jinja").write_text("{{ messages }}")
    leap.script("ok")
    flags = "--kv-type-k q8_0 --kv-type-v f32 --option flash-attention=false --option mmap=false"
    flags += " --batch-size 64 --chat-template chat.jinja"
    adapters = "--lora a.gguf --lora b.gguf=0.5"
    assert leap("generate", *flags.split(), *adapters.split(), "hi").code == 0
    options = leap.loaded[0][1]
    assert (options.kv_type_k, options.kv_type_v, options.batch_size) == ("q8_0", "f32", 64)
    assert (options.flash_attention, options.use_mmap, options.chat_template) == (False, False, "{{ messages }}")
    cwd = leap.home.parent
    assert list(options.adapters) == [LoraAdapter(cwd / "a.gguf"), LoraAdapter(cwd / "b.gguf", 0.5)]


def test_exact_reaches_the_model_and_excludes_prompt_lookup(leap):
    leap.script("ok")
    assert leap("generate", "--deterministic", "hi").code == 0 and leap.loaded[0][1].deterministic
    refused = leap("generate", "--deterministic", "--prompt-lookup", "hi")
    assert refused.code == 2 and "--deterministic: each position is computed alone" in refused.stderr


def test_loading_options_can_be_set_in_the_configuration(leap):
    leap.home.mkdir()
    (leap.home / "config.toml").write_text(
        '[options.generate]\nkv_type_k = "q8_0"\nflash_attention = false\nprompt_cache = true\nlora = ["a.gguf"]\n'
    )
    leap.script("ok")
    assert leap("generate", "--option", "prompt-cache-size=5", "hi").code == 0
    options = leap.loaded[0][1]
    assert (options.kv_type_k, options.flash_attention, len(options.adapters)) == ("q8_0", False, 1)
    cache = options.cache_options
    assert cache.enabled and cache.path == leap.home / "cache" / "prompts" and cache.max_bytes_disk == 5 * 1024**2


def test_logit_bias_and_parser_reach_the_request(leap):
    runner = leap.script("ok", "ok")
    assert (
        leap("generate", "--logit-bias", "5=-2", "--logit-bias", "7=1.5", "--option=tool-call-parser=none", "hi").code
        == 0
    )
    assert runner.requests[0].options == GenerationOptions(logit_bias={5: -2.0, 7: 1.5}, function_call_parser=None)
    done = leap("generate", "--logit-bias", "five", "hi")
    assert done.code == 2 and "TOKEN=NUMBER" in done.stderr


@pytest.mark.parametrize("name", ["chatml", "llama3", "gemma", "alpaca"])
def test_templates_of_well_known_formats_have_names(leap, name):
    leap.script("ok")
    assert leap("generate", "--chat-template", name, "hi").code == 0
    from leap_core import ChatMessage
    from leap_core.inference.template.chat_template import ChatTemplate

    template = ChatTemplate(leap.loaded[0][1].chat_template, bos_text="<s>", eos_text="</s>", special_texts={})
    text = "".join(template.render([ChatMessage("system", "Be brief."), ChatMessage("user", "Hello")]))
    assert text.count("Be brief.") == text.count("Hello") == 1 and text.index("Be brief.") < text.index("Hello")


def test_a_missing_template_is_named_in_the_error(leap):
    done = leap("generate", "--chat-template", "nope", "hi")
    assert done.code == 2 and "nope cannot be read" in done.stderr and "chatml" in done.stderr


@pytest.fixture
def kept(leap):
    """Two prompts of one model and one of another."""
    directory = leap.home / "cache" / "prompts"
    for scope, lengths in ((b"a" * 16, (40, 80)), (b"b" * 16, (60,))):
        store = SnapshotStore(CacheOptions.on_disk(directory), scope)
        for length in lengths:
            store.keep_on_disk(list(range(length)), bytes(length * 100))
        store.close()
    return directory


def test_the_prompt_cache_is_listed_counted_and_cleared(leap, kept):
    listed = json.loads(leap("models", "cache", "list", "--format", "json").stdout)
    assert sorted(each["tokens"] for each in listed) == [40, 60, 80]
    assert all(Path(each["path"]).stat().st_size == each["bytes"] for each in listed)
    info = json.loads(leap("models", "cache", "info", "--format", "json").stdout)
    assert (info["prompts"], info["models"], info["tokens"]) == (3, 2, 180)
    assert "TOKENS" in leap("models", "cache", "list").stdout
    assert "would remove 3" in leap("models", "cache", "clear", "--dry-run").stderr
    assert "removed 0" in leap("models", "cache", "clear", "--older-than", "1h").stderr
    assert "removed 3" in leap("models", "cache", "clear").stderr
    assert list(kept.glob("*")) == []
    assert leap("models", "cache", "list").code == 0


def test_a_damaged_file_is_listed_as_such(leap, kept):
    next(kept.glob("*/*.snapshot")).write_bytes(b"damaged")
    assert "damaged" in leap("models", "cache", "list").stdout
    assert "removed 3" in leap("models", "cache", "clear").stderr


def test_options_for_all_and_for_some_experts_on_the_cpu_exclude_each_other(leap):
    done = leap("generate", "-m", "some", "--cpu-moe", "--option", "n-cpu-moe=3", "hi")
    assert done.code == 2 and "--cpu-moe cannot be combined with --option n-cpu-moe" in done.stderr


def test_an_error_names_the_option_as_it_is_typed(leap):
    done = leap("index", "notes", ".", "--option", "chunk-tokens=0")
    assert done.code == 2 and "--option chunk-tokens" in done.stderr and "16" in done.stderr

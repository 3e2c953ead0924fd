"""``leap models search``: what the hub has that runs here."""

from __future__ import annotations

import json

import pytest

from tests.support.hub import API

SMALL, SPLIT = "LiquidAI/LFM2-350M-GGUF", "someone/Big-LFM2-GGUF"


@pytest.fixture
def hub(hub, leap):
    for quantization, size in (("Q4_0", 2000), ("Q4_K_M", 3000), ("F16", 9000)):
        hub.add_file(SMALL, f"LFM2-350M-{quantization}.gguf", b"x" * size)
    for part in (1, 2):
        hub.add_file(SPLIT, f"Big-LFM2-Q8_0-0000{part}-of-00002.gguf", b"x" * 4000)
    hub.add_file("someone/Draft-LFM2-GGUF", "Draft-LFM2-F16.gguf", b"x")
    hub.add_file("someone/New-LFM2-GGUF", "New-LFM2-F16.gguf", b"x")
    hub.add_file("someone/Unread-LFM2-GGUF", "Unread-LFM2-F16.gguf", b"x")
    hub.add_file("someone/Other-GGUF", "Other-F16.gguf", b"x")
    hub.described |= {
        SMALL: {"architecture": "lfm2", "total": 354_483_968, "context_length": 128_000},
        SPLIT: {"architecture": "lfm2moe", "total": 24_000_000_000, "context_length": 4096},
        "someone/Draft-LFM2-GGUF": {"architecture": "dflash"},
        "someone/New-LFM2-GGUF": {"architecture": "lfm3"},
        "someone/Other-GGUF": {"architecture": "llama", "total": "many"},
    }
    leap.variables |= hub.environment
    return hub


def test_runnable_models_are_listed_with_sizes_and_memory(leap, hub):
    done = leap("models", "search", "lfm2", "--memory", "900MB", "--format", "json")
    assert (done.code, done.stderr) == (0, "")
    small, split = json.loads(done.stdout)
    assert (small["name"], small["quantization"], small["size"]) == (SMALL, "Q4_K_M", 3000)
    assert {each["quantization"]: each["size"] for each in small["quantizations"]} == {
        "Q4_0": 2000,
        "Q4_K_M": 3000,
        "F16": 9000,
    }
    assert (split["size"], split["context"], split["downloads"]) == (8000, 4096, 7)
    assert 0 < small["memory"] < split["memory"] and small["fits"] and small["obstacle"] is None
    sizes = {each["quantization"]: each["memory"] for each in small["quantizations"]}
    between = f"{(sizes['Q4_0'] + sizes['Q4_K_M']) * 5 // 8}B"
    narrow = leap("models", "search", "350m", "--memory", between)
    assert "of memory; in Q4_0 yes" in narrow.stdout
    tight = json.loads(leap("models", "search", "big", "--memory", "60MB", "--format", "json").stdout)
    assert tight[0]["fits"] is False and "of memory" in tight[0]["obstacle"]


def test_a_table_counts_skipped_models(leap, hub):
    done = leap("models", "search", "LFM2")
    assert done.code == 0 and SMALL in done.stdout and "lfm2moe" in done.stdout
    assert "passed over: 3 of architectures that do not run here" in done.stderr
    assert leap("models", "search", "LFM2", "--format", "quiet").stdout.split() == [SMALL, SPLIT]
    assert leap("models", "search", "LFM2", "--format", "quiet", "--limit", "1").stdout.split() == [SMALL]
    nothing = leap("models", "search", "no", "such")
    assert (nothing.code, nothing.stdout) == (0, "") and "no GGUF model named 'no such'" in nothing.stderr


def test_models_that_cannot_run_are_skipped(leap, hub):
    hub.add_file("LiquidAI/d1-omni-600M-GGUF", "d1-omni-600M-Q8_0.gguf", b"x")
    hub.described["LiquidAI/d1-omni-600M-GGUF"] = {"architecture": "lfm2"}
    assert leap("models", "search", "d1", "--format", "quiet").stdout == ""


def test_an_unreadable_repository_is_skipped(leap, hub):
    hub.gated.add(SPLIT)
    assert leap("models", "search", "lfm2", "--format", "quiet").stdout.split() == [SMALL]


@pytest.mark.slow
def test_without_a_hub_there_is_a_one_line_error(leap, hub):
    hub.fault("status", where=API, status=400)
    refused = leap("models", "search", "lfm2")
    hub.fault("status", where=API, status=503, retry_after="4000")
    busy = leap("models", "search", "lfm2")
    leap.variables["HF_HUB_OFFLINE"] = "1"
    asked = len(hub.log)
    offline = leap("models", "search", "lfm2")
    assert len(hub.log) == asked and "HF_HUB_OFFLINE is set" in offline.stderr
    leap.variables |= {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}
    nobody = leap("models", "search", "lfm2")
    assert "400" in refused.stderr and "503" in busy.stderr and "127.0.0.1:9" in nobody.stderr
    for done in (refused, busy, offline, nobody):
        assert (done.code, done.stdout, done.stderr.count("\n")) == (4, "", 1), done.stderr
        assert "kept" not in done.stderr

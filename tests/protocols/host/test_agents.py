"""The configuration that coding agents get."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tomlkit

from leap_core.protocols.host.agents import AGENTS, AgentEndpoint

HOUR = 3600


def limits_of(name: str, variables: dict[str, str], files: Path) -> list[object]:
    """The time limits in seconds; False and 0 are none."""
    if name == "claude":
        return [int(variables[each]) / 1000 for each in ("API_TIMEOUT_MS", "CLAUDE_STREAM_IDLE_TIMEOUT_MS")]
    if name == "codex":
        provider = tomlkit.parse((files / "config.toml").read_text())["model_providers"]["leap"]
        return [provider["stream_idle_timeout_ms"] / 1000]
    if name == "opencode":
        options = json.loads(variables["OPENCODE_CONFIG_CONTENT"])["provider"]["leap"]["options"]
        return [options[each] for each in ("chunkTimeout", "headerTimeout", "timeout")]
    if name == "pi":
        return [json.loads((files / "settings.json").read_text())["httpIdleTimeoutMs"]]
    if name == "qwen":
        timeout = json.loads((files / "settings.json").read_text())["model"]["generationConfig"]["timeout"]
        return [int(variables["QWEN_STREAM_IDLE_TIMEOUT_MS"]), timeout / 1000]
    return [int(variables["AIDER_TIMEOUT"])]


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_waits_for_a_long_first_prompt_and_keeps_its_key_to_itself(tmp_path, name):
    endpoint = AgentEndpoint("http://127.0.0.1:9", "the key", "small", 32768, tmp_path / "agents" / name)
    variables = AGENTS[name].configure(endpoint)
    limits = limits_of(name, variables, endpoint.directory)
    assert limits and all(not each or HOUR < each < 2**31 / 1000 for each in limits), limits
    written = list(endpoint.directory.rglob("*"))
    assert any("the key" in text for text in (*variables.values(), *(each.read_text() for each in written)))
    assert all(each.stat().st_mode & 0o077 == 0 for each in (endpoint.directory, *written))


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_is_told_the_context_size(tmp_path, name):
    variables = AGENTS[name].configure(AgentEndpoint("http://127.0.0.1:9", "key", "small", 12_345, tmp_path / name))
    texts = [*variables.values(), *(each.read_text() for each in (tmp_path / name).rglob("*"))]
    assert any("12345" in text for text in texts)


@pytest.mark.parametrize(("context", "expected"), [(8192, (2048, 2048)), (131_072, (16_384, 20_000))])
def test_pi_does_not_compact_after_each_turn_in_a_small_context(tmp_path, context, expected):
    endpoint = AgentEndpoint("http://127.0.0.1:9", "the key", "small", context, tmp_path)
    AGENTS["pi"].configure(endpoint)
    settings = json.loads((tmp_path / "settings.json").read_text())
    compaction = settings["compaction"]
    assert (compaction["reserveTokens"], compaction["keepRecentTokens"]) == expected
    assert settings["branchSummary"]["reserveTokens"] == expected[0]
    assert compaction["reserveTokens"] < context - AGENTS["pi"].text - AGENTS["pi"].tools  # what a first turn takes

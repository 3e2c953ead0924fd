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

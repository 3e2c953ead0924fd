"""Coding agents on a warm model: what each needs, and the configuration that it gets for a run.

No agent gives up a request that takes long: a local model may read a first prompt for many minutes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from ...system.dataclass import dataclass

REPLY_TOKENS = 4096
"""Tokens for a task, what tools bring back, and answers, beside an agent's first request."""
PATIENCE_SECONDS = 24 * 3600
"""For a request, where a program has no way to wait without an end."""
PATIENCE_MS = 1000 * PATIENCE_SECONDS


@dataclass(frozen=True)
class AgentEndpoint:
    """What an agent speaks to: the host's ``root`` (http://127.0.0.1:PORT), its ``key``, the ``model`` and the tokens
    of its ``context``; ``directory`` is the agent's own, for files."""

    root: str
    key: str
    model: str
    context: int
    directory: Path

    @property
    def openai(self) -> str:
        return f"{self.root}/v1"


Settings = tuple[dict[str, str], dict[str, object]]
"""Variables of an agent's process, and files of its directory by their names: texts, or what is written as JSON."""


@dataclass(frozen=True)
class Agent:
    """``program`` and what ``installs`` it. ``text`` and ``tools``: the tokens of its first request, without and with
    what it declares. ``settings``: for an endpoint."""

    program: str
    installs: str
    text: int
    tools: int
    settings: Callable[[AgentEndpoint], Settings]

    def needs(self, fold: int | None) -> int:
        """Tokens of context for a first task; ``fold``: with declarations folded above so many."""
        return self.text + (self.tools if fold is None else min(self.tools, fold)) + REPLY_TOKENS

    def configure(self, endpoint: AgentEndpoint) -> dict[str, str]:
        """Write the files, readable for their user alone, since they hold a key; the variables."""
        from ...system.directories import private_directory
        from ...system.files import replacing

        variables, files = self.settings(endpoint)
        private_directory(endpoint.directory.parent)
        directory = private_directory(endpoint.directory)
        for name, content in files.items():
            if name.startswith(".") and (directory / name).exists():
                continue  # what the agent itself goes on writing
            text = content if isinstance(content, str) else json.dumps(content, indent=1)
            with replacing(directory / name, mode=0o600) as file:
                file.write(text.encode())
        return variables


def _pi(at: AgentEndpoint) -> Settings:
    model = {"id": at.model, "contextWindow": at.context, "maxTokens": at.context // 4}
    provider = {"baseUrl": at.openai, "api": "openai-completions", "apiKey": at.key, "models": [model]}
    settings: dict[str, object] = {"defaultProvider": "leap", "defaultModel": at.model, "httpIdleTimeoutMs": 0}
    quarter = at.context // 4  # pi's own numbers suit large contexts: with a small one it compacts after each turn
    kept = {"reserveTokens": min(quarter, 16_384), "keepRecentTokens": min(quarter, 20_000)}
    settings |= {"compaction": kept, "branchSummary": {"reserveTokens": kept["reserveTokens"]}}
    files: dict[str, object] = {"models.json": {"providers": {"leap": provider}}, "settings.json": settings}
    return {"PI_CODING_AGENT_DIR": str(at.directory), "PI_OFFLINE": "1"}, files


def _aider(at: AgentEndpoint) -> Settings:
    about = {"max_input_tokens": at.context, "max_output_tokens": at.context // 4, "mode": "chat"}
    about |= {"litellm_provider": "openai", "input_cost_per_token": 0, "output_cost_per_token": 0}
    off = ("AIDER_ANALYTICS", "AIDER_CHECK_UPDATE", "AIDER_SHOW_MODEL_WARNINGS")
    return {
        "OPENAI_API_BASE": at.openai,
        "OPENAI_API_KEY": at.key,
        "AIDER_MODEL": f"openai/{at.model}",
        "AIDER_MODEL_METADATA_FILE": str(at.directory / "metadata.json"),
        "AIDER_TIMEOUT": str(PATIENCE_SECONDS),
        **dict.fromkeys(off, "false"),
    }, {"metadata.json": {f"openai/{at.model}": about}}


def _opencode(at: AgentEndpoint) -> Settings:
    limit = {"context": at.context, "output": at.context // 4}
    waits = dict.fromkeys(("timeout", "headerTimeout", "chunkTimeout"), False)
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "leap",
        "options": {"baseURL": at.openai, "apiKey": at.key, **waits},
        "models": {at.model: {"name": at.model, "limit": limit}},
    }
    config = {"provider": {"leap": provider}, "model": f"leap/{at.model}", "autoupdate": False, "share": "disabled"}
    places = {f"XDG_{place.upper()}_HOME": str(at.directory / place) for place in ("config", "data", "state", "cache")}
    npm = str(at.directory / "cache" / "npm")
    return {**places, "npm_config_cache": npm, "OPENCODE_CONFIG_CONTENT": json.dumps(config)}, {}


def _codex(at: AgentEndpoint) -> Settings:
    model = {
        "slug": at.model,
        "display_name": at.model,
        "context_window": at.context,
        "shell_type": "default",
        "visibility": "list",
        "supported_in_api": True,
        "priority": 1,
        "truncation_policy": {"mode": "tokens", "limit": at.context // 4},
        "input_modalities": ["text"],
        "base_instructions": CODEX_INSTRUCTIONS,
        "support_verbosity": False,
        "default_verbosity": None,
        "supports_parallel_tool_calls": False,
        "supports_reasoning_summaries": False,
        "supported_reasoning_levels": [],
        "experimental_supported_tools": [],
    }
    catalogue = at.directory / "models.json"
    provider = {
        "name": "leap",
        "base_url": at.openai,
        "wire_api": "responses",
        "env_key": "LEAP_AGENT_KEY",
        "stream_idle_timeout_ms": PATIENCE_MS,
    }
    config = {"model": at.model, "model_provider": "leap", "model_catalog_json": str(catalogue)}
    lines = [f"{name} = {json.dumps(value)}" for name, value in config.items()]
    lines += ["", "[model_providers.leap]", *(f"{name} = {json.dumps(value)}" for name, value in provider.items())]
    files: dict[str, object] = {"config.toml": "\n".join(lines) + "\n", catalogue.name: {"models": [model]}}
    return {"CODEX_HOME": str(at.directory), "LEAP_AGENT_KEY": at.key}, files


CODEX_INSTRUCTIONS = (
    "You are a coding agent in a terminal. You read files, run commands and change files with the tools that you have, "
    "one step at a time, and say in few words what you did. Answer without a tool where none is needed."
)


def _qwen(at: AgentEndpoint) -> Settings:
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True},
        "model": {"generationConfig": {"timeout": PATIENCE_MS, "contextWindowSize": at.context}},
    }
    return {
        "OPENAI_BASE_URL": at.openai,
        "OPENAI_API_KEY": at.key,
        "OPENAI_MODEL": at.model,
        "QWEN_HOME": str(at.directory),
        "QWEN_STREAM_IDLE_TIMEOUT_MS": "0",
    }, {"settings.json": settings}


def _claude(at: AgentEndpoint) -> Settings:
    sizes = [f"ANTHROPIC_DEFAULT_{size}_MODEL" for size in ("OPUS", "SONNET", "HAIKU")]
    quiet = ("DISABLE_ERROR_REPORTING", "DISABLE_FEEDBACK_COMMAND", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER")
    return {
        "ANTHROPIC_BASE_URL": at.root,
        "ANTHROPIC_API_KEY": "",
        "ANTHROPIC_AUTH_TOKEN": at.key,
        **dict.fromkeys(("ANTHROPIC_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL", *sizes), at.model),
        **dict.fromkeys(("API_TIMEOUT_MS", "CLAUDE_STREAM_IDLE_TIMEOUT_MS"), str(PATIENCE_MS)),
        "CLAUDE_CONFIG_DIR": str(at.directory),
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # it changes with each request, and nothing after it would be reused
        "CLAUDE_CODE_TOTAL_TOKENS_REMINDER": "off",
        "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(at.context),
        **dict.fromkeys((*quiet, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"), "1"),
    }, {".claude.json": {"hasCompletedOnboarding": True}}


AGENTS = {
    "pi": Agent("pi", "npm install -g @earendil-works/pi-coding-agent", 630, 770, _pi),
    "aider": Agent("aider", "pipx install aider-chat", 600, 0, _aider),
    "opencode": Agent("opencode", "npm install -g opencode-ai", 2200, 5400, _opencode),
    "codex": Agent("codex", "npm install -g @openai/codex", 4600, 4300, _codex),
    "qwen": Agent("qwen", "npm install -g @qwen-code/qwen-code", 9100, 7100, _qwen),
    "claude": Agent("claude", "npm install -g @anthropic-ai/claude-code", 3100, 17000, _claude),
}
"""By the names that people type; the tokens were counted with SmolLM2's vocabulary in November 2026."""

"""What is not imported before it is needed. Every shell completion pays the whole start-up."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "concurrent.futures",
    "asyncio",
    "huey",
    "httpx",
    "jinja2",
    "jsonschema",
    "llama_cpp",
    "llguidance",
    "numpy",
    "platformdirs",
    "prompt_toolkit",
    "rich",
    "soundfile",
    "sqlite3",
    "starlette",
    "uvicorn",
    "urllib.request",
}
DECORATOR = {"leap_core.errors", "leap_core.system"} | {
    f"leap_core.system.{name}" for name in ("dataclass", "directories", "features", "files", "locks", "plugins")
}
"""All that help imports of the core: it lists the commands of plugins."""


def imported(*arguments: str, code: int = 0) -> set[str]:
    """Every module that a Python process imports, and its packages."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr[-1000:]
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    return names | {name.partition(".")[0] for name in names}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (("-m", "leap_cli", "--help"), HEAVY | {"leap_core.*"}),
        (("-m", "leap_cli", "--version"), HEAVY),
        (("-m", "leap_cli", "generate", "--help"), HEAVY),
        (("-m", "leap_cli", "chat", "--help"), HEAVY),
        (("-m", "leap_cli", "saved", "list"), HEAVY),
        (("-m", "leap_cli", "batch", "--help"), HEAVY),
        (("-m", "leap_cli", "jobs", "list", "--help"), HEAVY),
        (("-m", "leap_cli", "ps"), HEAVY | {"http.client", "subprocess"}),
        (("-m", "leap_cli", "ps", "--help"), HEAVY),
        (("-m", "leap_cli", "load", "--help"), HEAVY),
        (("-m", "leap_cli", "serve", "--help"), HEAVY),
        (("-c", "import leap_core"), HEAVY),
        (("-c", "import leap_core; leap_core.ChatMessage('user', 'hi')"), HEAVY),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_start_up_imports_nothing_heavy(arguments, unwanted):
    names = imported(*arguments)
    assert "leap_cli.main" in names or "leap_core" in names, "the listing is not what it should be"
    if sys.version_info < (3, 11):  # there click imports uuid, that platform, and that subprocess
        names.discard("subprocess")
    if any(name.startswith("leap_core.") for name in names - DECORATOR):
        names.add("leap_core.*")
    assert not names & unwanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        (
            "jobs.worker.worker",
            {"psycopg.pq", "asyncio", "leap_core.batch.run", "leap_core.models.hub", "leap_core.opening"},
        ),
        ("jobs.worker.model_work", {"huey", "psycopg.pq", "asyncio", "leap_core.batch.run", "leap_core.models.hub"}),
    ],
)
def test_a_waiting_job_imports_only_what_every_job_needs(module, unwanted):
    names = imported("-c", f"import {module}")
    assert module in names and not names & (unwanted | {"numpy", "llama_cpp", "jsonschema"})


@pytest.mark.slow
def test_a_prompt_without_documents_imports_no_reader_of_documents():
    names = imported("-m", "leap_cli", "generate", "-m", "missing.gguf", "hi", code=2)
    assert "leap_core.opening" in names, "the model is looked for after the prompt is read"
    assert not names & {"leap_core.documents", "leap_core.system.child", "numpy", "httpx", "ssl"}


@pytest.mark.slow
def test_a_prompt_without_a_schema_imports_no_constraints():
    names = imported("-m", "leap_cli", "generate", "--no-host", "-m", "builtin", "--max-tokens", "1", "hi")
    assert "leap_core.inference.runner" in names
    assert not names & {"leap_core.inference.constraints.compiling", "leap_core.schemas.grounding", "llguidance"}

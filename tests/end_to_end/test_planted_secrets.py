"""Secrets are planted wherever leap reads them. None comes out again: not in what commands print, working or failing,
not in tables, logs and states below LEAP_HOME, not in command lines that ps shows."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from leap_core.models.builtin import model_path
from tests.support.hub import FakeHub

from ..jobs import processes
from ..jobs.waiting import until

MARK = "pl4nted"
"""In every secret."""
VARIABLES = {"HF_TOKEN": f"hf_{MARK}", "LEAP_API_KEY": f"key-{MARK}", "PGPASSWORD": f"pg-{MARK}"}
URL = f"postgresql://me:{MARK}@127.0.0.1:9/db?sslpassword={MARK}&connect_timeout=1"

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
    pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet"),
]


@pytest.fixture
def hub(tmp_path, variables, leap, monkeypatch):
    """A hub whose address has a password in it, and that asks for the token."""
    with FakeHub(token=VARIABLES["HF_TOKEN"]) as hub:
        endpoint = hub.url.replace("//", f"//me:{MARK}@")
        planted = {**hub.environment, **VARIABLES, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf")}
        for name, value in planted.items():
            monkeypatch.setenv(name, value)
        variables.update(planted)
        leap.variables.update(planted)
        hub.add_file("me/Open-GGUF", "Open-Q8_0.gguf", b"no model")
        yield hub


def leaks(outputs: dict[str, str], home: Path, allowed: tuple[str, ...] = ()) -> list[str]:
    """Where a secret stands: in an output, or in a file below the data directory."""
    files = {str(path.relative_to(home)): path for path in home.rglob("*") if path.is_file()}
    found = [f"{name}: {line}" for name, text in outputs.items() for line in text.splitlines() if MARK in line]
    return found + [name for name, path in files.items() if name not in allowed and MARK.encode() in path.read_bytes()]


def test_commands_print_no_secret_and_write_none(leap, leap_home, hub, tmp_path, monkeypatch):
    monkeypatch.setattr("jobs.table.postgres.FIRST_RETRY_SECONDS", 0.3)
    monkeypatch.setattr("leap_core.models.http.RETRIES_UNREACHABLE", 0)
    leap_home.mkdir(parents=True, exist_ok=True)
    (leap_home / "config.toml").write_text(f'jobs_url = "{URL}"\n')
    leap.script("an answer")
    closed = f"http://me:{MARK}@127.0.0.1:9"
    model = "me/Open-GGUF"
    outputs: dict[str, str] = {}

    def run(*arguments: str, **variables: str) -> None:
        before = dict(os.environ), dict(leap.variables)
        os.environ.update(variables)
        leap.variables.update(variables)
        try:
            done = leap(*arguments)
        finally:
            for name in variables:
                os.environ.pop(name)
            os.environ.update(before[0])
            leap.variables.clear()
            leap.variables.update(before[1])
        outputs[f"{len(outputs)} {' '.join(arguments)}".replace(MARK, "***")] = done.stdout + done.stderr

    for format in ("text", "json"):
        run("config", "list", "--format", format)
    run("config", "get", "jobs_url", "--format", "json")
    run("doctor", "--format", "json")
    run("jobs", "list")
    run("jobs", "worker", "--print-unit")
    run("generate", "hi", "--background")
    run("generate", "hi", "-m", "some", "--save")
    run("config", "list", LEAP_JOBS_URL=f"postgresql://me:{MARK}@host:5432x/db")
    for wrong in (f"mysql://me:{MARK}@h/db", f"host=h password={MARK}", MARK, f"postgresql://me:{MARK}"):
        run("jobs", "list", LEAP_JOBS_URL=wrong)
        run("doctor", LEAP_JOBS_URL=wrong)
    (leap_home / "config.toml").unlink()
    for reference in (model, "me/None-GGUF", f"{closed}/x.gguf", f"http://127.0.0.1:9/x.gguf?token={MARK}"):
        run("download", reference)
        run("models", "info", reference)
    for wrong in (closed, f"ftp://me:{MARK}@h"):
        run("download", "me/Another-GGUF", HF_ENDPOINT=wrong)
        run("doctor", HF_ENDPOINT=wrong)
    run("models", "list", "--format", "json")
    run("tools", "list")
    run("sessions", "list")
    assert len(outputs) > 25 and any("***@127.0.0.1" in text for text in outputs.values()), "the addresses were met"
    assert "\n".join(leaks(outputs, leap_home)) == ""


def test_servers_workers_and_their_tables_hold_no_secret(program, start, leap_home, hub, tmp_path):
    outputs: dict[str, str] = {}

    def run(*arguments: str) -> str:
        done = program(*arguments)
        outputs[" ".join(arguments)] = done.stdout + done.stderr
        return done.stdout

    server = start("serve", "builtin", "--port", "0", "--threads", "1")
    url = server.stdout.readline().decode().strip()
    for key in (VARIABLES["LEAP_API_KEY"], f"wrong-{MARK}"):
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}).encode()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        for path in ("/chat/completions", f"/nosuch?key={MARK}"):
            with suppress(urllib.error.HTTPError):
                urllib.request.urlopen(urllib.request.Request(url + path, body, headers), timeout=60).close()
    answer = run("generate", "hi", "--background", "--max-tokens", "2").strip()
    download = run("download", "me/Open-GGUF", "--background").strip()
    run("jobs", "wait", answer, download, "--timeout", "200s")
    outputs["ps"] = "\n".join(processes.of_home(leap_home).values())
    assert "serve" in outputs["ps"] and "jobs" in outputs["ps"]
    for command in (["jobs", "list", "--format", "json"], ["jobs", "status", download, "--format", "json"], ["ps"]):
        run(*command)
    server.send_signal(signal.SIGINT)
    out, err = server.communicate(timeout=60)
    outputs["serve"] = (out + err).decode()
    run("jobs", "worker", "--shutdown")
    until(lambda: not processes.named(leap_home, "jobs"))
    assert {"jobs.db"} <= {path.name for path in leap_home.rglob("*")} and leaks(outputs, leap_home) == []

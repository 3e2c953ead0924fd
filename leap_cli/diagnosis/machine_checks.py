"""What ``leap doctor`` looks at. Each check is a function of the environment; none of them raises, none writes.

A ``problem`` keeps leap from working, a ``warning`` from working well. The hub is never a problem, since everything but
downloads works without it.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from leap_core.addresses import masked
from leap_core.errors import LeapError

from ..framework.environment import Environment
from ..framework.sizes import in_bytes
from .check import OK, PROBLEM, SKIPPED, WARNING, Check
from .cluster import cluster
from .jobs import databases, server, worker

LITTLE_SPACE, NO_SPACE = 2_000_000_000, 50_000_000
HUB_SECONDS = 5.0
DISTRIBUTIONS = (
    "llama-cpp-python",
    "llguidance",
    "numpy",
    "jinja2",
    "jsonschema",
    "click",
    "platformdirs",
    "huey",
    "httpx",
    "starlette",
    "uvicorn",
    "soundfile",
    "tomlkit",
    "prompt_toolkit",
)
REBUILD = "pip install --force-reinstall --no-deps --no-cache-dir --no-binary llama-cpp-python llama-cpp-python"
REINSTALL = "install llama-cpp-python again, compiled on this machine, or a prebuilt wheel of it (see the README)"


def checks(env: Environment, *, patience: float, on: str | None = None) -> Iterator[Check]:
    """All checks, as they are made. ``patience``: seconds that the engine and the generation, or a cluster, may take.
    ``on``: the cluster to look at, by default that of RAY_ADDRESS."""
    yield versions()
    yield cores()
    yield from directories(env)
    yield disk(env)
    yield configuration(env)
    yield models(env)
    yield host(env)
    yield from databases(env)
    yield worker(env)
    yield from server(env)
    yield from cluster(env, on, patience)
    yield hub(env)
    yield from engine(env, patience)


def versions() -> Check:
    """leap, Python, and the packages that leap needs."""
    from importlib.metadata import PackageNotFoundError, version

    from leap_core import __version__

    python = ".".join(map(str, sys.version_info[:3]))
    packages: dict[str, str | None] = {}
    for name in DISTRIBUTIONS:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    facts = {"leap": __version__, "python": python, "platform": sys.platform, "packages": packages}
    missing = [name for name, number in packages.items() if number is None]
    if missing:
        return Check("versions", PROBLEM, f"not installed: {', '.join(missing)}", "install leap again", facts)
    summary = f"leap {__version__}, Python {python}, llama-cpp-python {packages['llama-cpp-python']}, llguidance "
    return Check("versions", OK, f"{summary}{packages['llguidance']}", None, facts)


def cores() -> Check:
    """The cores that this process may use."""
    from leap_core.engine.threads import usable_cores

    usable, all_of_them = usable_cores(), os.cpu_count()
    return Check("cores", OK, f"{usable} of {all_of_them} usable", None, {"usable": usable, "all": all_of_them})


def directories(env: Environment) -> Iterator[Check]:
    """Whether each directory can be used, or made where it is not there yet."""
    there = env.directories
    named = {
        "config": there.config,
        "data": there.data,
        "models": there.models,
        "cache": there.cache,
        "logs": there.logs,
        "run": there.run_path,
    }
    for name, path in named.items():
        yield _directory(f"{name} directory", path, private=name == "run")


def _directory(name: str, path: Path, *, private: bool) -> Check:
    facts: dict[str, Any] = {"path": str(path), "exists": path.exists()}
    bad = PROBLEM if private else WARNING
    if path.exists() and not path.is_dir():
        return Check(name, PROBLEM, f"{path} is not a directory", "move it away, or set LEAP_HOME", facts)
    nearest = next(parent for parent in (path, *path.parents) if parent.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Check(name, bad, f"{nearest} cannot be written", "change its rights, or set LEAP_HOME", facts)
    if not path.exists():
        return Check(name, OK, f"{path} (made when it is needed)", None, facts)
    status = path.stat()
    facts["mode"] = f"{stat.S_IMODE(status.st_mode):04o}"
    if private and sys.platform != "win32":
        if status.st_uid != os.geteuid():
            return Check(name, PROBLEM, f"{path} belongs to another user", "set LEAP_HOME to one of yours", facts)
        if status.st_mode & 0o077:
            return Check(name, WARNING, f"{path} is open to others ({facts['mode']})", f"chmod 700 {path}", facts)
    return Check(name, OK, str(path), None, facts)


def disk(env: Environment) -> Check:
    """The space that is left for models."""
    from leap_core.models.installed.model_store import free_space

    path = env.directories.models
    try:
        free = free_space(path)
    except OSError as error:
        return Check("disk", WARNING, f"{path}: {error.strerror}")
    facts = {"path": str(path), "free": free}
    detail = f"{in_bytes(free)} free for models"
    if free < NO_SPACE:
        return Check("disk", PROBLEM, detail, "make room", facts)
    return Check("disk", WARNING if free < LITTLE_SPACE else OK, detail, None, facts)


def configuration(env: Environment) -> Check:
    """Whether config.toml can be read, and all that is in it."""
    from leap_core.configuration import read_table

    from ..config.settings import problems_of

    file = env.directories.config_file
    facts: dict[str, Any] = {"path": str(file), "exists": file.is_file(), "problems": []}
    try:
        table = read_table(file)
    except LeapError as error:
        return Check("configuration", PROBLEM, error.message, f"mend {file}", facts)
    facts["problems"] = problems_of(table, str(file))
    if facts["problems"]:
        return Check("configuration", WARNING, "; ".join(facts["problems"]), "leap config edit", facts)
    return Check("configuration", OK, str(file) if facts["exists"] else "none, so defaults are used", None, facts)


def models(env: Environment) -> Check:
    """The installed models, and those that are not whole."""
    from leap_core.models.installed.model_store import Store

    try:
        states = {model.name: model.state for model in Store.of(env.directories).installed()}
    except OSError as error:
        return Check("models", WARNING, f"{error.filename}: {error.strerror}")
    broken = [f"{name} is {state}" for name, state in states.items() if state != "ready"]
    detail = ", ".join([f"{len(states)} installed", *broken])
    advice = "leap download completes a partial one; leap models verify checks the others" if broken else None
    return Check("models", WARNING if broken else OK, detail, advice, {"models": states})


def host(env: Environment) -> Check:
    """The process that keeps models warm."""
    from leap_core.host.client.host_connection import ModelHost

    try:
        model_host = ModelHost.running(env.variables)
        status = None if model_host is None else model_host.status()
    except (LeapError, OSError) as error:
        return Check("model host", WARNING, str(error), "leap unload --all ends it")
    if status is None:
        return Check("model host", OK, "not running (leap load starts it)", None, {"running": False})
    names = [str(model["model"]) for model in status["models"]]
    facts = {"running": True, "pid": status["pid"], "models": names}
    return Check("model host", OK, f"process {status['pid']} keeps {', '.join(names) or 'no model'} warm", None, facts)


def hub(env: Environment) -> Check:
    """Whether downloads would find their hub. Never a problem, and never asked when offline is wanted."""
    from leap_core.models.hub.http_client import Web
    from leap_core.models.hub.hub_retries import Retryable
    from leap_core.models.hub.hub_settings import HubSettings

    try:
        settings = HubSettings.from_environment(env.variables)
        if settings.offline:
            return Check("hub", SKIPPED, "HF_HUB_OFFLINE is set", None, {"reachable": None})
        endpoint, start = masked(settings.endpoint), time.monotonic()
        with Web(settings.with_stall(HUB_SECONDS)) as web, web.get(f"{settings.endpoint}/api/models?limit=1") as answer:
            seconds = time.monotonic() - start
            facts = {"reachable": True, "endpoint": endpoint, "status": answer.status, "seconds": seconds}
            return Check("hub", OK, f"{endpoint} answers in {seconds:.2f} s", None, facts)
    except (LeapError, Retryable, OSError) as error:
        return Check("hub", WARNING, f"cannot be reached: {error}", "only downloads need it", {"reachable": False})


def engine(env: Environment, patience: float) -> Iterator[Check]:
    """llama.cpp and an answer of the built-in model, in a process of its own."""
    from leap_core.background.child_environment import child_environment

    variables = child_environment({**os.environ, **env.variables})
    command = [sys.executable, "-m", "leap_cli.diagnosis.self_test"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=patience, env=variables, check=False
        )
        output, errors, end = done.stdout, done.stderr, f"ended with code {done.returncode}"
    except subprocess.TimeoutExpired as expired:
        output, errors, end = expired.stdout or b"", expired.stderr or b"", f"was not done after {patience:g} s"
    except OSError as error:
        output, errors, end = b"", b"", f"could not be started: {error.strerror}"
    results: dict[str, dict[str, Any]] = {}
    for line in output.splitlines():
        with suppress(ValueError):
            results |= json.loads(line)
    last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or [""]
    failure = f"the process {end}{': ' if last[0] else ''}{last[0]}"
    if "engine" not in results:
        yield Check("engine", PROBLEM, failure, REINSTALL)
        return
    yield _engine_check(results["engine"])
    yield _generation_check(results.get("generation"), failure)


def _engine_check(facts: dict[str, Any]) -> Check:
    devices = ", ".join(f"{each['name']} ({each['description']})" for each in facts["devices"])
    offload = "GPU offload" if facts["gpu_offload"] else "no GPU"
    advice = None if facts["gpu_offload"] else gpu_advice(facts["version"])
    return Check("engine", OK, f"{devices}; {offload}; {' '.join(facts['features'])}", advice, facts)


def gpu_advice(version: str, root: Path = Path("/")) -> str | None:
    """How to have a build for the GPU that this machine seems to have; None where it has none. ``root``: where ``dev``
    is."""
    if sys.platform == "darwin":
        flag = "-DGGML_METAL=on"
    elif (root / "dev" / "nvidia0").exists():
        flag = "-DGGML_CUDA=on"
    elif next((root / "dev" / "dri").glob("renderD*"), None) is not None:
        flag = "-DGGML_VULKAN=on"
    else:
        return None
    return f'for the GPU, CMAKE_ARGS="{flag}" {REBUILD}=={version} (see the README)'


def _generation_check(facts: dict[str, Any] | None, failure: str) -> Check:
    from .self_test import KNOWN, QUESTION

    if facts is None:
        return Check("generation", PROBLEM, failure, "install leap again")
    detail = f"{facts['answer']!r} in {facts['load_seconds'] + facts['answer_seconds']:.1f} s"
    if KNOWN not in facts["answer"]:
        return Check("generation", PROBLEM, f"{QUESTION} {detail}", "llama.cpp computes wrongly here", facts)
    return Check("generation", OK, detail, None, facts)

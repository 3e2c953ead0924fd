"""What ``leap doctor`` looks at: the machine, models, jobs, a cluster. Each check is a function of the environment.

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
from contextlib import closing, suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from leap_core.errors import LeapError
from leap_core.system.addresses import masked
from leap_core.system.dataclass import dataclass
from leap_core.system.features import own_parts

from ..framework.environment import Environment
from ..framework.error_boundary import outcome_of
from ..framework.options import in_bytes

OK, WARNING, PROBLEM, SKIPPED = "ok", "warning", "problem", "skipped"


@dataclass(frozen=True)
class Check:
    """One result. ``facts`` is for programs, ``detail`` for people, ``advice`` what to do about it."""

    name: str
    state: str
    detail: str
    advice: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "check": self.name,
            "state": self.state,
            "detail": self.detail,
            "advice": self.advice,
            "facts": self.facts,
        }


MOST_CLOCK_SECONDS = 5.0
"""How far the clocks of this machine and of the server may be apart without a word."""


def databases(env: Environment) -> Iterator[Check]:
    """The files of sessions and jobs. Damage is a problem: what they hold cannot be used."""
    for name, path in (("jobs", env.directories.jobs_file), ("sessions", env.directories.sessions_file)):
        if path.is_file():
            yield _sound(name, path)


def _sound(name: str, path: Path) -> Check:
    from leap_core.system.sqlite import damage

    try:
        report = damage(path)
    except LeapError as error:
        return Check(f"{name}.db", WARNING, error.message)
    if report is not None:
        return Check(f"{name}.db", PROBLEM, f"{path} is damaged: {report}", "move it away to begin with an empty one")
    return Check(f"{name}.db", OK, f"{path} is sound")


def worker(env: Environment) -> Check:
    """The process that works on jobs, and what waits for it."""
    from jobs.table.recent import counts

    table = env.directories.jobs_file
    try:
        from jobs.configuration import JobsConfiguration
        from jobs.worker_process import is_running

        settings = JobsConfiguration.from_environment(env.variables)
        if settings.is_shared:
            running = is_running(settings)
            detail = "runs here" if running else "none runs here; leap jobs worker starts one"
            return Check("worker", OK, detail, None, {"running": running})
        if not table.is_file():
            return Check("worker", OK, "not needed: there are no jobs", None, {"running": False, "jobs": {}})
        running = is_running(settings)
        by_state = counts(table)
    except (LeapError, OSError) as error:
        return Check("worker", WARNING, str(error))
    facts = {"running": running, "jobs": by_state}
    waiting = by_state.get("queued", 0) + by_state.get("running", 0)
    summary = ", ".join(f"{count} {state}" for state, count in by_state.items()) or "no jobs"
    if waiting and not running:
        hint = "leap jobs worker starts it; a service keeps it (leap jobs worker --print-unit)"
        detail = f"not running, and {waiting} {'job waits' if waiting == 1 else 'jobs wait'}"
        return Check("worker", WARNING, detail, hint, facts)
    return Check("worker", OK, f"{'running' if running else 'not running'}; {summary}", None, facts)


def server(env: Environment) -> Iterator[Check]:
    """The server of ``jobs_url``: whether it answers, its version and clock, and the workers that are alive."""
    from jobs.configuration import JobsConfiguration
    from leap_core.models.digests import ModelDigests

    try:
        settings = JobsConfiguration.from_environment(env.variables)
        if settings.jobs_url is None:
            return
        from jobs.client.results import NO_WORKER, waiting_reason
        from jobs.table.claims import WorkerRows
        from jobs.table.postgres import PostgresDatabase
        from jobs.table.row_reading import TableReader
        from leap_core.system.addresses import masked

        with closing(PostgresDatabase.at(settings.jobs_url)) as database:
            facts = database.server_facts()
            workers = WorkerRows(database).all()
            waiting = TableReader(database).models_waited_for()
    except LeapError as error:
        yield Check("jobs' server", PROBLEM, error.message, error.hint)
        return
    lead = float(str(facts["clock_lead_seconds"]))
    detail = f"PostgreSQL {facts['version']} at {masked(settings.jobs_url)}, schema {facts['schema']}"
    if abs(lead) > MOST_CLOCK_SECONDS:
        detail += f"; its clock differs from this machine's by {lead:+.0f} s"
        yield Check("jobs' server", WARNING, detail, "leap uses the server's time; set this machine's clock", facts)
    elif facts["deaf"] is not None:
        hint = "jobs_url says with listen_host and listen_port where the server itself is"
        yield Check("jobs' server", WARNING, f"{detail}; {facts['deaf']}", hint, facts)
    else:
        yield Check("jobs' server", OK, detail, None, facts)
    alive = [f"{each.name} on {each.machine}" for each in workers if each.is_alive]
    facts = {"workers": [each.to_json() for each in workers]}
    here = ModelDigests(env.directories).installed() if waiting else {}
    reasons = {job.id: waiting_reason(job, workers, here.__contains__) for job in waiting}
    waits = [f"{id} waits: {reason}" for id, reason in reasons.items() if reason not in (None, NO_WORKER)]
    if not alive:
        yield Check("workers", WARNING, "none is alive", "leap jobs worker starts one", facts)
    elif waits:
        yield Check("workers", WARNING, "; ".join(waits[:5]), "leap jobs workers lists the models of each", facts)
    else:
        yield Check("workers", OK, f"{len(alive)} alive: {', '.join(alive[:10])}", None, facts)


FEATURES = {"Ray": "leap_cli.diagnosis.ray_cluster:cluster"}
"""Functions of the environment, what is to be looked at, and the seconds that it may take, that return checks."""
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
    for look in own_parts(FEATURES).values():
        yield from look(env, on, patience)
    yield hub(env)
    yield from engine(env, patience)


def versions() -> Check:
    """leap, Python, and the packages that leap needs."""
    from importlib.metadata import PackageNotFoundError, version

    from leap_core import __version__
    from leap_core.inference.llama.engines import chosen_engine

    python = ".".join(map(str, sys.version_info[:3]))
    packages: dict[str, str | None] = {}
    for name in DISTRIBUTIONS:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    facts = {"leap": __version__, "python": python, "platform": sys.platform, "packages": packages}
    missing = [name for name, number in packages.items() if number is None]
    if missing == ["llama-cpp-python"] and not isinstance(outcome_of(chosen_engine), LeapError):
        missing = []  # another engine runs models
    if missing:
        return Check("versions", PROBLEM, f"not installed: {', '.join(missing)}", "install leap again", facts)
    summary = f"leap {__version__}, Python {python}, llama-cpp-python {packages['llama-cpp-python']}, llguidance "
    return Check("versions", OK, f"{summary}{packages['llguidance']}", None, facts)


def cores() -> Check:
    """The cores that this process may use."""
    from leap_core.inference.engine.threads import usable_cores

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
    from leap_core.models.store import free_space

    path = env.directories.models
    try:
        free = free_space(path)
    except OSError as error:
        return Check("disk", WARNING, f"{path}: {error.strerror}")
    facts = {"path": str(path), "free": free}
    detail = f"{in_bytes(free)} free for models"
    if free < NO_SPACE:
        return Check("disk", PROBLEM, detail, "free disk space", facts)
    return Check("disk", WARNING if free < LITTLE_SPACE else OK, detail, None, facts)


def configuration(env: Environment) -> Check:
    """Whether config.toml can be read, and all that is in it."""
    from leap_core.system.configuration import read_table

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
    from leap_core.models.store import Store

    try:
        states = {model.name: model.state for model in Store.of(env.directories).installed()}
    except OSError as error:
        return Check("models", WARNING, f"{error.filename}: {error.strerror}")
    broken = [f"{name} is {state}" for name, state in states.items() if state != "ready"]
    detail = ", ".join([f"{len(states)} installed", *broken, *_answers(env, states)])
    advice = "leap download completes a partial one; leap models verify checks the others" if broken else None
    return Check("models", WARNING if broken else OK, detail, advice, {"models": states})


def _answers(env: Environment, states: dict[str, str]) -> Iterator[str]:
    """Whether the model that answers when none is named gives the same request the same answer."""
    from leap_core.inference.gguf.header import read_gguf_header
    from leap_core.models.resolving import resolve_local
    from leap_core.system.configuration import read_configuration

    with suppress(LeapError, OSError):
        configured = env.variables.get("LEAP_MODEL") or read_configuration(env.directories.config_file).default_model
        name = configured or (next(iter(states)) if len(states) == 1 else "builtin")
        alike = read_gguf_header(resolve_local(name, variables=env.variables, cwd=env.cwd).path).is_alike
        yield f"{name}: the same request gets the same answer on a CPU{'' if alike else ' with --deterministic'}"


def host(env: Environment) -> Check:
    """The process that keeps models warm."""
    from leap_core.protocols.host.model_host import ModelHost

    try:
        model_host = ModelHost.running(env.variables)
        status = None if model_host is None else model_host.status()
    except (LeapError, OSError) as error:
        return Check("model host", WARNING, str(error), "leap unload --all ends it")
    if status is None:
        return Check("model host", OK, "not running (leap load starts it)", None, {"running": False})
    names = [str(model["model"]) for model in status["models"]]
    facts = {"running": True, "pid": status["pid"], "models": names}
    return Check("model host", OK, f"process {status['pid']} has loaded {', '.join(names) or 'no model'}", None, facts)


def hub(env: Environment) -> Check:
    """Whether downloads would find their hub. Never a problem, and never asked when offline is wanted."""
    from leap_core.models.http import Retryable, Web
    from leap_core.models.hub_settings import HubSettings

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
    from leap_core.system.processes import child_environment

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
    devices = ", ".join(map(_device, facts["devices"]))
    offload = "GPU offload" if facts["gpu_offload"] else facts["unseen_gpu"]
    is_blind = bool(facts["gpu_backends"]) and not facts["gpu_offload"]
    advice = None if facts["gpu_offload"] or is_blind else gpu_advice(facts["version"])
    if is_blind:
        advice = "see that the driver and the libraries of the GPU are here (leap engine add names missing ones)"
    name = "" if facts["engine"] == "default" else f"{facts['engine']} ({facts['version']}): "
    detail = f"{name}{devices}; {offload}; {' '.join(facts['features'])}"
    return Check("engine", WARNING if is_blind else OK, detail, advice, facts)


def _device(device: dict[str, Any]) -> str:
    free = f", {in_bytes(device['free'])} of {in_bytes(device['memory'])} free" if "free" in device else ""
    return f"{device['name']} ({device['description']}{free})"


def gpu_advice(version: str, root: Path = Path("/")) -> str | None:
    """How to have a build for the GPU that this machine seems to have; None where it has none. ``root``: where ``dev``
    is."""
    if sys.platform == "darwin":
        backend = "metal"
    elif (root / "dev" / "nvidia0").exists():
        backend = "cuda"
    elif next((root / "dev" / "dri").glob("renderD*"), None) is not None:
        backend = "vulkan"
    else:
        return None
    build = f'CMAKE_ARGS="-DGGML_{backend.upper()}=on" {REBUILD}=={version}'
    return f"for the GPU, leap engine install --backend {backend} fetches a build, or {build} (see the README)"


def _generation_check(facts: dict[str, Any] | None, failure: str) -> Check:
    from .self_test import KNOWN, QUESTION

    if facts is None:
        return Check("generation", PROBLEM, failure, "install leap again")
    detail = f"{facts['answer']!r} in {facts['load_seconds'] + facts['answer_seconds']:.1f} s"
    if KNOWN not in facts["answer"]:
        return Check("generation", PROBLEM, f"{QUESTION} {detail}", "llama.cpp computes wrongly here", facts)
    return Check("generation", OK, detail, None, facts)

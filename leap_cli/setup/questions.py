"""The questions of ``leap setup``, what is set up already, and the answers that set it up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePath

from leap_core.system.dataclass import dataclass

from ..completion.scripts import is_installed, place_of
from ..completion.shell import SHELLS
from ..framework.environment import Environment
from ..framework.error_boundary import outcome_of
from ..framework.interrupts import raising_on_interrupt
from ..framework.options import in_bytes, seconds_of
from ..framework.output import Output
from .machine import Machine, ModelOffer

NONE = "none"
"""The answer that leaves something as it is."""


@dataclass(frozen=True)
class SetupAnswers:
    """``model``: a reference to a model, ``completion``: a shell, ``keep_alive``: a length of time as it was written;
    each may be ``NONE``."""

    model: str
    completion: str
    keep_alive: str


@dataclass(frozen=True)
class SetUp:
    """``model``: the default model, ``completion``: the shells that complete leap, ``keep_alive``: how long models
    stay; None where nothing is set."""

    model: str | None
    completion: tuple[str, ...]
    keep_alive: str | None

    def record(self) -> dict[str, object]:
        """As it is printed."""
        return {"model": self.model, "completion": list(self.completion) or None, "keep_alive": self.keep_alive}


def set_up_already(env: Environment) -> SetUp:
    """What is set. Raises LeapSerializationError for a config.toml that cannot be read."""
    from leap_core.system.configuration import read_configuration

    configured = read_configuration(env.directories.config_file)
    shells = tuple(shell for shell in SHELLS if is_installed(place_of(shell, env)))
    return SetUp(configured.default_model, shells, configured.keep_alive)


def shell_in_use(env: Environment) -> str:
    """The shell that ``$SHELL`` names, if leap completes in it; else ``NONE``, or PowerShell on Windows."""
    named = PurePath(env.variables.get("SHELL", "")).name.removesuffix(".exe")
    known = "powershell" if named == "pwsh" else named
    if not known and env.variables.get("PSModulePath"):
        known = "powershell"
    return known if known in SHELLS else NONE


USUAL_TIME = "10m"
"""How long a model stays warm for who only says yes."""


def ask(
    env: Environment,
    *,
    given: dict[str, str | None],
    suggested: SetupAnswers,
    models: list[ModelOffer],
    machine: Machine,
) -> SetupAnswers:
    """Ask for what is not in ``given``, by the names of SetupAnswers' fields; an empty line takes what is suggested.
    Raises EOFError for Ctrl-D and KeyboardInterrupt for Ctrl-C."""
    answers = dict(given)
    with raising_on_interrupt():
        if answers["model"] is None:
            answers["model"] = _ask_model(env, models, suggested.model)
        if answers["completion"] is None:
            answers["completion"] = _ask_completion(env, suggested.completion)
        if answers["keep_alive"] is None:
            answers["keep_alive"] = _ask_keep_alive(env, suggested.keep_alive)
    return SetupAnswers(**{name: answer or NONE for name, answer in answers.items()})


def describe(env: Environment, machine: Machine, there: SetUp) -> None:
    """Say what the machine has and what is set, a line each."""
    output = Output(env)
    memory = "memory unknown" if machine.memory is None else f"{in_bytes(machine.memory)} of memory"
    disk = "disk unknown" if machine.disk is None else f"{in_bytes(machine.disk)} of disk free"
    output.note(f"this machine: {memory}, {disk}, {machine.cores} {'core' if machine.cores == 1 else 'cores'}")
    known = [
        f"model {there.model}" if there.model else "",
        f"completion in {', '.join(there.completion)}" if there.completion else "",
        f"models stay warm for {there.keep_alive}" if there.keep_alive else "",
    ]
    output.note(f"set up already: {'; '.join(filter(None, known)) or 'nothing'}")
    advice = _engine_advice()
    if advice is not None:
        output.note(advice)


def _engine_advice() -> str | None:
    """Which build of llama.cpp would run models here, or faster; None where one does, and no GPU is seen."""
    from leap_core.errors import LeapError
    from leap_core.inference.llama.engines import chosen_engine
    from leap_core.inference.llama.library import has_gpu_support

    from ..diagnosis.checks import gpu_advice

    engine = outcome_of(chosen_engine)
    if isinstance(engine, LeapError):
        return f"{engine}: {engine.hint}"
    has_gpu = outcome_of(has_gpu_support)
    return None if has_gpu is True else gpu_advice(engine.version.removeprefix("llama-cpp-python "))


def _ask_model(env: Environment, models: list[ModelOffer], suggested: str) -> str:
    rows = [
        {
            "": number,
            "model": offer.name,
            "size": f"~{in_bytes(offer.size)}",
            "memory": f"~{in_bytes(offer.memory)}",
            "fits": "here already" if offer.installed else "no: " + offer.obstacle if offer.obstacle else "yes",
            "about": offer.about,
        }
        for number, offer in enumerate(models, start=1)
    ]
    _aside(env).records(rows, ["", "model", "fits", "size", "memory", "about"], name="model")
    by_number = {str(number): offer.name for number, offer in enumerate(models, start=1)}

    def read(text: str) -> str:
        name = by_number.get(text, text)
        if name.isdecimal():
            raise ValueError(f"there are the numbers 1 to {len(models)}")
        return name

    return _answer(env, "which model answers? A number, a name, or none", "model", suggested, read)


def _ask_completion(env: Environment, suggested: str) -> str:
    def read(text: str) -> str:
        name = text.lower()
        if name in ("n", "no", NONE):
            return NONE
        if name in ("y", "yes") and suggested != NONE:
            return suggested
        if name not in SHELLS:
            raise ValueError(f"answer {', '.join(SHELLS)} or none")
        return name

    question = f"which shell completes leap with TAB? {', '.join(SHELLS)}, or none"
    return _answer(env, question, "shell", suggested, read)


def _ask_keep_alive(env: Environment, suggested: str) -> str:
    def read(text: str) -> str:
        if text.lower() in ("n", "no", NONE):
            return NONE
        if text.lower() in ("y", "yes"):
            return USUAL_TIME
        seconds_of(text)
        return text

    question = "does the model stay in memory between commands? For how long after its last use, such as 10m, or none"
    return _answer(env, question, "time", suggested, read)


def _answer(env: Environment, question: str, word: str, suggested: str, read: Callable[[str], str]) -> str:
    """What ``read`` makes of the line that is typed; asked again while it raises ValueError."""
    Output(env).note(question)
    while True:
        text = env.read_typed_line(f"{word} [{suggested}]: ").strip()
        try:
            return read(text) if text else suggested
        except ValueError as error:
            Output(env).warning(str(error))


def _aside(env: Environment) -> Output:
    """Tables that belong to the questions and not to the result."""
    return Output(replace(env, stdout=env.stderr, stdout_is_terminal=env.stderr_is_terminal))

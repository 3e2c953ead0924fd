"""The three questions of ``leap setup`` at a terminal. Nothing is done before all are answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..completion.shell import SHELLS
from ..framework.durations import seconds_of
from ..framework.environment import Environment
from ..framework.interrupts import raising_on_interrupt
from ..framework.output import Output
from ..framework.sizes import in_bytes
from .machine import Machine
from .offers import Offer
from .state import NONE, Answers, SetUp

USUAL_TIME = "10m"
"""How long a model stays warm for who only says yes."""


def ask(
    env: Environment, *, given: dict[str, str | None], suggested: Answers, models: list[Offer], machine: Machine
) -> Answers:
    """Ask for what is not in ``given``, by the names of Answers' fields; an empty line takes what is suggested. Raises
    EOFError for Ctrl-D and KeyboardInterrupt for Ctrl-C."""
    answers = dict(given)
    with raising_on_interrupt():
        if answers["model"] is None:
            answers["model"] = _ask_model(env, models, machine, suggested.model)
        if answers["completion"] is None:
            answers["completion"] = _ask_completion(env, suggested.completion)
        if answers["keep_alive"] is None:
            answers["keep_alive"] = _ask_keep_alive(env, suggested.keep_alive)
    return Answers(**{name: answer or NONE for name, answer in answers.items()})


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


def _ask_model(env: Environment, models: list[Offer], machine: Machine, suggested: str) -> str:
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

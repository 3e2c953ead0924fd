"""``python: file.py:function``: a function of the user's says whether an answer is good."""

from __future__ import annotations

from ...json_fields import JsonObject
import importlib.util
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import LeapSerializationError
from .expectation import Answer, Expectation, Verdict


def read_program(value: Any, _settings: JsonObject, path: str) -> tuple[str, str]:
    """The file and the function's name. Raises LeapSerializationError."""
    file, colon, name = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise LeapSerializationError("expected file.py:function", path=path)
    return file, name


def check_program(expectation: Expectation, answer: Answer, _number: int) -> Verdict:
    """What the function says of the answer's text: it is called with that and an object of what else is known, and
    gives true or false, a number from 0 to 1, or an object with ``pass``, ``score`` and ``reason``. What it raises is
    a failure."""
    file, name = expectation.value
    about = {
        "prompt": answer.prompt,
        "vars": dict(answer.variables),
        "calls": [{"name": each, "arguments": dict(arguments)} for each, arguments in answer.calls],
        "finish_reason": answer.finish,
        "tokens": answer.tokens,
    }
    try:
        said = _function(answer.directory / file, name)(answer.text, about)
    except Exception as error:  # it is the user's code, and says that the answer cannot be used
        return Verdict(False, 0.0, f"{file}:{name}: {type(error).__name__}: {error}")
    threshold = float(expectation.settings.get("threshold", 0.5))
    if isinstance(said, bool):
        return Verdict.of(None if said else f"{name} says no")
    if isinstance(said, (int, float)):
        return Verdict(said >= threshold, _share(said), "" if said >= threshold else f"{name} gives {said:g}", True)
    if isinstance(said, dict) and "pass" in said:
        passed = bool(said["pass"])
        score = _share(said.get("score", float(passed)))
        return Verdict(passed, score, "" if passed else str(said.get("reason", f"{name} says no")), "score" in said)
    return Verdict(False, 0.0, f"{file}:{name} gives {said!r}: expected a truth, a number, or an object with pass")


def _share(value: float) -> float:
    return min(1.0, max(0.0, float(value)))


@lru_cache(maxsize=64)
def _function(path: Path, name: str) -> Callable[[str, JsonObject], Any]:
    spec = importlib.util.spec_from_file_location(f"leap_evaluation_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[[str, JsonObject], Any] = getattr(module, name)
    return function

"""Trying in a child process whether a model's layers fit on GPUs, where that is not certain.

A backend ends the process when a GPU has no memory left, also later, at the first long prompt. So what comes close to
the memory that is free is loaded and computed by a child before. The verdict holds until less memory is free.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...conversation.options import ModelLoadingOptions
from ...errors import LeapModelLoadingError
from ...system.child import answers_of
from ...system.directories import Directories
from ..gguf.offloading import reserve_of
from .trial_child import SOUND, Limits, Subject, TrialVerdict, Verdicts, assertion
from .verdicts import DIRECTORY, SWITCH, place_key

if TYPE_CHECKING:
    from ..llama.devices import Placement

TASK = "leap_core.inference.trial.trials:try_layers"
SLACK = 256 * 1024**2
"""So much more than its reserve must be free on each GPU beside what was counted, or it is tried."""
SAME = 64 * 1024**2
"""A verdict holds while at most so much less is free."""


def require_room(path: Path, options: ModelLoadingOptions, placement: Placement) -> None:
    """Make sure that the GPUs have space for a model's layers. Raises LeapModelLoadingError where they have not."""
    free = [device.free for device in placement.devices]
    if not placement.n_gpu_layers or not free or os.environ.get(SWITCH) == "0":
        return
    if all(need + reserve_of(each) + SLACK <= each for need, each in zip(placement.needs, free, strict=False)):
        return
    verdicts = Verdicts(Directories.from_environment().cache / DIRECTORY)
    key = _key(path, options, placement)
    kept = verdicts.get(key)
    if kept is not None and all(a >= b - SAME for a, b in zip(free, kept.facts.get("free", ()), strict=True)):
        return
    _try(path, options, placement)
    verdicts.put((key,), TrialVerdict(SOUND, facts={"free": free}))


def _key(path: Path, options: ModelLoadingOptions, placement: Placement) -> str:
    names = [device.name for device in placement.devices]
    text = f"{place_key(Subject(path))} {_wanted(options, placement)} {names}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _wanted(options: ModelLoadingOptions, placement: Placement) -> dict[str, Any]:
    """The options as JSON has them."""
    names = ("context_size", "slots", "cpu_threads")
    wanted = options.details() | {name: getattr(options, name) for name in names}
    devices, split = [device.name for device in placement.devices], list(placement.tensor_split)
    return wanted | {"n_gpu_layers": placement.n_gpu_layers, "devices": devices, "tensor_split": split}


def _try(path: Path, options: ModelLoadingOptions, placement: Placement) -> None:
    """Raises LeapModelLoadingError."""
    request = {"task": TASK, "path": os.path.abspath(path), "options": _wanted(options, placement)}
    try:
        answers, code, words = answers_of(request, Limits.of(path.stat().st_size).seconds)
    except OSError as error:
        raise LeapModelLoadingError(f"cannot try {path}: {error.strerror or error}") from None
    if any("result" in answer for answer in answers):
        return
    errors = [answer["error"]["message"] for answer in answers if "error" in answer]
    why = errors[0] if errors else f"a trial ended with code {code}{assertion(words)}"
    free = ", ".join(f"{each.free / 1e6:.0f} MB free on {each.name}" for each in placement.devices)
    layers = "all layers" if placement.n_gpu_layers < 0 else f"{placement.n_gpu_layers} layers"
    raise LeapModelLoadingError(
        f"{layers} of {path.name} do not fit on the GPU ({free}): {why}",
        hint="--gpu-layers auto takes as many as fit, 0 none; a smaller context takes less",
    )

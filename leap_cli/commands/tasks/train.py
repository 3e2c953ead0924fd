"""``leap train``: a LoRA adapter over a checkpoint, for a model that leap runs."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leap_core.errors import LeapError

from ...exit_codes import ExitCode
from ...framework.click_classes import format_choice, leap_command
from ...framework.environment import Environment
from ...framework.interrupts import stopping_on_interrupt
from ...framework.options import in_bytes
from ...framework.output import Format, Output
from ...options.background import BACKGROUND, Background
from ...options.lora import LORA_TRAINING, LoraTraining

if TYPE_CHECKING:
    from leap_core.evaluation.improvement.lora import Trained


@leap_command("train")
@LORA_TRAINING
@format_choice("Output format: the adapter's path (text and quiet), or a JSON record.")
@BACKGROUND
def command(env: Environment, /, training: LoraTraining, format: str, background: Background) -> ExitCode:
    """Fine-tuning: train a LoRA adapter on DATA for a checkpoint, and write it as GGUF for `--lora`.

    DATA is the output of leap export --for-training, or lines of {"messages": [...]}. Training stops when the loss on a
    held-out tenth no longer improves. Ctrl-C and kill -9 lose nothing that was saved; the same command resumes. Needs
    leap-edge[train].
    """
    from leap_core.evaluation.improvement.lora import check, train

    output, settings = Output(env, format), training.settings
    needed = check(settings, _free_memory())
    output.note(f"training takes about {in_bytes(needed)} of memory")
    if background:
        return background.submit(env, output)
    stop = threading.Event()

    def report(step: int, steps: int, words: str) -> None:
        if words:
            output.note(f"step {step} of {steps}: {words}" if steps else words)
        else:
            output.progress(f"step {step} of {steps}")

    try:
        with stopping_on_interrupt(stop.set):
            trained = train(settings, report, stop)
    except OSError as error:
        raise LeapError(f"cannot write {error.filename or settings.directory}: {error.strerror or error}") from None
    if trained is None:
        output.note("stopped; the same command resumes from here")
        return ExitCode.INTERRUPTED
    _show(output, training.target, trained)
    return ExitCode.DONE


def _show(output: Output, target: str, trained: Trained) -> None:
    from leap_core.evaluation.improvement.lora import TOLERANCE

    before, after = trained.losses
    if output.format in (Format.JSON, Format.JSONL):
        record: dict[str, Any] = {
            "adapter": str(trained.target),
            "examples": trained.examples,
            "steps": trained.steps,
            "loss_before": before,
            "loss_after": after,
            "difference": trained.difference,
        }
        output.record(record, name="adapter")
    else:
        output.text(f"{target}\n")
    output.note(f"{trained.steps} steps; loss on held-back examples {before:.4f} before, {after:.4f} now")
    if trained.difference > TOLERANCE:
        output.warning(f"llama.cpp's logits differ from torch's by {trained.difference:.1%}")


def _free_memory() -> int | None:
    """Bytes that programs can have without swapping; None where the system does not say."""
    if sys.platform == "linux":
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None

"""``leap train``: a LoRA adapter over a checkpoint, for a model that leap runs."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import click

from leap_core.errors import LeapError

from ..completion.value_types import ModelName
from ..exit_codes import ExitCode
from ..framework.click_classes import format_choice, leap_command
from ..framework.environment import Environment
from ..framework.interrupts import stopping_on_interrupt
from ..framework.options import in_bytes
from ..framework.output import Format, Output
from ..options.background import BACKGROUND, Background, check_apart


@leap_command("train")
@click.argument("data", type=click.Path(dir_okay=False))
@click.option(
    "-m",
    "--model",
    "--checkpoint",
    "checkpoint",
    required=True,
    type=ModelName(),
    metavar="MODEL",
    help="Train over this model: the directory of its checkpoint.",
)
@click.option("-o", "--output", "target", required=True, metavar="FILE", help="Write the adapter to this GGUF file.")
@click.option("--rank", type=click.IntRange(1, 256), default=8, show_default=True, help="Give the adapter this rank.")
@click.option(
    "--epochs", type=click.IntRange(1, 1000), default=10, show_default=True, help="See the examples at most this often."
)
@click.option(
    "--learning-rate",
    type=click.FloatRange(0, 1, min_open=True),
    default=1e-3,
    show_default=True,
    help="Begin with steps of this width, which become smaller.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Draw weights and order with this seed.")
@format_choice("Print the adapter's file (text and quiet), or a record: json or jsonl.")
@BACKGROUND
@click.pass_obj
def command(
    env: Environment,
    /,
    data: str,
    checkpoint: str,
    target: str,
    rank: int,
    epochs: int,
    learning_rate: float,
    seed: int,
    format: str,
    background: Background,
) -> ExitCode:
    """Train a LoRA adapter with DATA, over a checkpoint, and write it as GGUF for `--lora`.

    DATA are lines of leap export --for-training, or of {"messages": [...]}. Training ends where a held-back tenth gets
    no better; Ctrl-C and kill -9 keep what was done, and the same command goes on. It needs leap-edge[train].
    """
    from leap_core.evaluation.lora import TOLERANCE, TrainingWish, check, train

    output = Output(env, format)
    check_apart(env, {"DATA": data, "--output": target})
    wish = TrainingWish(
        env.cwd / data, env.cwd / checkpoint, env.cwd / target, rank, 2 * rank, epochs, learning_rate, seed=seed
    )
    for path, name in ((wish.data, data), (wish.checkpoint, checkpoint)):
        if not path.exists():
            raise click.UsageError(f"there is no {name}")
    if not wish.checkpoint.is_dir():
        raise click.UsageError(f"--model {checkpoint} is no checkpoint's directory")
    if not wish.target.parent.is_dir():
        raise click.UsageError(f"--output {target}: there is no directory {wish.target.parent}")
    needed = check(wish, _free_memory())
    output.note(f"training takes about {in_bytes(needed)} of memory")
    if background:
        return background.submit(env, output)
    stop = threading.Event()

    def tell(step: int, steps: int, words: str) -> None:
        if words:
            output.note(f"step {step} of {steps}: {words}" if steps else words)
        else:
            output.progress(f"step {step} of {steps}")

    try:
        with stopping_on_interrupt(stop.set):
            trained = train(wish, tell, stop)
    except OSError as error:
        raise LeapError(f"cannot write {error.filename or wish.directory}: {error.strerror or error}") from None
    if trained is None:
        output.note("stopped; the same command goes on from here")
        return ExitCode.INTERRUPTED
    record: dict[str, Any] = {
        "adapter": str(trained.target),
        "examples": trained.examples,
        "steps": trained.steps,
        "loss_before": trained.losses[0],
        "loss_after": trained.losses[1],
        "difference": trained.difference,
    }
    if output.format in (Format.JSON, Format.JSONL):
        output.record(record, name="adapter")
    else:
        output.text(f"{target}\n")
    before, after = trained.losses
    output.note(f"{trained.steps} steps; loss on held-back examples {before:.4f} before, {after:.4f} now")
    if trained.difference > TOLERANCE:
        output.warning(f"llama.cpp's logits differ from torch's by {trained.difference:.1%}")
    return ExitCode.DONE


def _free_memory() -> int | None:
    """Bytes that programs can have without swapping; None where the system does not say."""
    if sys.platform == "linux":
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None

"""The arguments and options of ``leap train``: what an adapter is trained with, and over which checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from leap_core.system.dataclass import dataclass

from ..completion.value_types import ModelName
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from .background import check_apart

if TYPE_CHECKING:
    from leap_core.evaluation.improvement.lora import TrainingSettings


@dataclass(frozen=True)
class LoraTraining:
    """``target``: the adapter's file as it was typed."""

    settings: TrainingSettings
    target: str


def _build(arguments: Arguments) -> LoraTraining:
    """Raises UsageError for files and directories that are not there."""
    from leap_core.evaluation.improvement.lora import TrainingSettings

    cwd, data, checkpoint, target = arguments.env.cwd, *(arguments[name] for name in ("data", "checkpoint", "target"))
    check_apart(arguments.env, {"DATA": data, "--output": target})
    settings = TrainingSettings(
        cwd / data,
        cwd / checkpoint,
        cwd / target,
        rank=arguments["rank"],
        alpha=2 * arguments["rank"],
        epochs=arguments["epochs"],
        rate=arguments["learning_rate"],
        seed=arguments["seed"],
    )
    for path, name in ((settings.data, data), (settings.checkpoint, checkpoint)):
        if not path.exists():
            raise click.UsageError(f"there is no {name}")
    if not settings.checkpoint.is_dir():
        raise click.UsageError(f"--model {checkpoint} is no checkpoint's directory")
    if not settings.target.parent.is_dir():
        raise click.UsageError(f"--output {target}: there is no directory {settings.target.parent}")
    return LoraTraining(settings, target)


LORA_TRAINING = OptionGroup(
    "training",
    "",
    (
        click.argument("data", type=click.Path(dir_okay=False)),
        option(
            "-m",
            "--model",
            "--checkpoint",
            "checkpoint",
            required=True,
            type=ModelName(),
            help="Base model: the directory of its checkpoint.",
        ),
        option("-o", "--output", "target", required=True, metavar="FILE", help="Write the adapter to this GGUF file."),
        option("--rank", type=click.IntRange(1, 256), default=8, show_default=True, help="Rank of the LoRA adapter."),
        option(
            "--epochs",
            type=click.IntRange(1, 1000),
            default=10,
            show_default=True,
            help="Number of training epochs, at most.",
        ),
        option(
            "--learning-rate",
            type=click.FloatRange(0, 1, min_open=True),
            default=1e-3,
            show_default=True,
            help="Initial learning rate; it decays.",
        ),
        option("--seed", type=int, default=1, show_default=True, help="Random seed of weights and order."),
    ),
    _build,
)

"""The options of ``leap improve``: what is improved, what is tried, and where the result goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from leap_core.system.dataclass import dataclass

from ..completion.value_types import ModelName
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option, seconds_of


@dataclass(frozen=True)
class Improvement:
    """``model``: the one that is asked, None for the default. ``goal``: the share of cases that is enough. ``budget``:
    a number of requests or a length of time, as text. ``checkpoint``: the directory to train an adapter over.
    ``template``: the name under which the result is saved."""

    model: str | None
    directory: str | None
    system: str | None
    goal: float
    budget: str | None
    seed: int
    max_tokens: int | None
    reflect_with: str | None
    escalate_to: str | None
    checkpoint: Path | None
    template: str | None


SHARE, CHECKPOINT = click.FloatRange(0, 1, min_open=True), click.Path(file_okay=False)


class ImprovementBudget(click.ParamType[str]):
    """Requests (``5000``), or a length of time (``2h``)."""

    name = "budget"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            if not str(value).isdecimal():
                seconds_of(str(value))
        except ValueError as error:
            self.fail(f"{value!r} is neither a number of requests nor a time: {error}", param, ctx)
        return str(value)


def _build(arguments: Arguments) -> Improvement:
    checkpoint = None if arguments["checkpoint"] is None else arguments.env.cwd / arguments["checkpoint"]
    if checkpoint is not None and not (checkpoint / "config.json").exists():
        raise click.UsageError(f"--checkpoint {arguments['checkpoint']} is no checkpoint: it has no config.json")
    return Improvement(
        model=arguments["name"],
        checkpoint=checkpoint,
        template=arguments["saved"],
        **arguments.of("goal", "directory", "system", "budget", "seed", "max_tokens", "reflect_with", "escalate_to"),
    )


IMPROVEMENT = OptionGroup(
    "wanted",
    "Improvement",
    (
        option("-m", "--model", "name", type=ModelName(), help="Model whose prompt and settings are optimized."),
        option(
            "-o",
            "--output",
            "directory",
            metavar="DIR",
            help="Write answers and the report to this directory; CASES.improve by default.",
        ),
        option("-s", "--system", help="Initial system prompt of the baseline."),
        option(
            "--to",
            "goal",
            type=SHARE,
            default=0.95,
            show_default=True,
            metavar="RATE",
            help="Stop when this share of cases passes.",
        ),
        option(
            "--budget",
            type=ImprovementBudget(),
            metavar="N|TIME",
            help="Stop after N requests, or after this time (2h).",
        ),
        option("--seed", type=int, default=1, show_default=True, help="Random seed of the split and of sampling."),
        option("--max-tokens", type=int, help="Stop each answer after this many tokens."),
        option(
            "--reflection-model",
            "reflect_with",
            type=ModelName(),
            help="Model that rewrites prompts; by default the same model.",
        ),
        option("--escalate-to", type=ModelName(), help="Larger model for cases that still fail."),
        option("--checkpoint", type=CHECKPOINT, help="Checkpoint of the model to train a LoRA adapter on."),
        option("--save-template", "saved", metavar="NAME", help="Save the result as a template for leap -t."),
    ),
    _build,
)

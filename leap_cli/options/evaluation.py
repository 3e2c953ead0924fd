"""The options of an evaluation: what the cases are put to, and what becomes of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.system.dataclass import dataclass

from ..completion.value_types import ModelName
from ..framework.arguments import FileName
from ..framework.click_classes import format_choice
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from .batch import concurrency_in, concurrency_option
from .loading import ModelChoice
from .prompt import read_system_option
from .sampling import NUMBERS, number_from_text

if TYPE_CHECKING:
    from leap_core.evaluation.running import Column

TEXTS = ("system", "pattern", "lora")
"""What --vary takes beside numbers of sampling."""
NONE = "none"


@dataclass(frozen=True)
class ColumnOptions:
    """The columns that were asked for: every model with every one of ``varied``'s values. ``options``: of all."""

    models: tuple[str, ...]
    options: Mapping[str, Any]
    varied: Mapping[str, Sequence[str]]
    system: str | None = None
    pattern: str | None = None
    repeats: int = 1

    def columns(self, model: ModelChoice, names: Sequence[str], templates: Sequence[str], cwd: Path) -> list[Column]:
        """One for each combination with a model of ``names``. ``templates``: those that the file of cases brings,
        used where none is given. Raises LeapOptionsError for a value outside its range."""
        from leap_core.conversation.options import GenerationOptions
        from leap_core.evaluation.running import Column

        varied = dict(self.varied)
        if self.pattern is None and "pattern" not in varied and templates:
            varied["pattern"] = templates
        columns = []
        for name in names:
            for values in product(*varied.values()):
                chosen = dict(zip(varied, values, strict=True))
                options = dict(self.options)
                options |= dict(number_from_text(key, value) for key, value in chosen.items() if key in NUMBERS)
                if "temperature" not in options and self.repeats == 1:
                    options["temperature"] = 0.0
                loading = dict(model.fields)
                if chosen.get("lora", NONE) != NONE:
                    from leap_core.conversation.loading_options import LoraAdapter

                    adapter = LoraAdapter.parse(chosen["lora"])
                    loading["adapters"] = [{"path": str(cwd / adapter.path), "scale": adapter.scale}]
                columns.append(
                    Column(
                        " ".join([name, *_headings(chosen, varied)]),
                        name,
                        GenerationOptions(**options).to_json(),
                        loading,
                        chosen.get("system", self.system),
                        chosen.get("pattern", self.pattern),
                    )
                )
        return columns


@dataclass(frozen=True)
class Judgement:
    """What is made of the results: where they go, and what counts as bad. ``against``: earlier results; ``least``: the
    lowest pass rate that is good."""

    format: str
    html: Path | None
    junit: Path | None
    against: Path | None
    alpha: float
    least: float | None


@dataclass(frozen=True)
class Asking:
    """How the cases are asked. ``directory``: where answers are kept, None for the one beside the cases."""

    directory: Path | None
    concurrency: int
    judge: str | None
    embedder: str
    allow_python: bool
    overwrite: bool
    quiet: bool
    others: Mapping[str, Any] = field(default_factory=dict)


def _headings(chosen: Mapping[str, str], varied: Mapping[str, Sequence[str]]) -> list[str]:
    """What distinguishes a column from the others of its model."""
    named = {name: value for name, value in chosen.items() if len(varied[name]) > 1}
    return [
        f"{name}={list(varied[name]).index(value) + 1}"
        if name in ("system", "pattern")
        else f"{name}={Path(value).name}"
        for name, value in named.items()
    ]


def _columns(arguments: Arguments) -> ColumnOptions:
    varied: dict[str, tuple[str, ...]] = {}
    for each in arguments["vary"]:
        name, equals, values = each.partition("=")
        name = name.strip().removeprefix("--").replace("_", "-")
        if not equals or (name not in NUMBERS and name not in TEXTS):
            known = ", ".join((*TEXTS, *NUMBERS))
            raise click.UsageError(f"--vary {each}: expected NAME=VALUE,VALUE with one of {known}")
        separate = [values] if name in ("system", "pattern") else [value.strip() for value in values.split(",")]
        if name in NUMBERS:
            _check_numbers(name, separate)
        varied[name] = tuple(dict.fromkeys((*varied.get(name, ()), *separate)))
    sampling = ("temperature", "rng_seed", "max_tokens")
    return ColumnOptions(
        tuple(dict.fromkeys(arguments["models"])),
        {name: arguments[name] for name in sampling if arguments[name] is not None},
        varied,
        read_system_option(arguments),
        arguments["pattern"],
        arguments["repeats"],
    )


def _check_numbers(name: str, values: Sequence[str]) -> None:
    for value in values:
        try:
            NUMBERS[name].kind.value_type(value)
        except ValueError:
            raise click.UsageError(f"--vary {name}: {value!r} is no number") from None


def _judgement(arguments: Arguments) -> Judgement:
    def place(name: str) -> Path | None:
        return None if arguments[name] is None else arguments.env.cwd / arguments[name]

    return Judgement(
        arguments["format"], place("html"), place("junit"), place("against"), arguments["alpha"], arguments["least"]
    )


def _asking(arguments: Arguments) -> Asking:
    directory = arguments["directory"]
    return Asking(
        None if directory is None else arguments.env.cwd / directory,
        concurrency=concurrency_in(arguments),
        **arguments.of("judge", "embedder", "allow_python", "overwrite", "quiet"),
    )


COLUMNS = OptionGroup(
    "wish",
    "Variants",
    (
        option(
            "-m",
            "--model",
            "models",
            type=ModelName(),
            multiple=True,
            help="Evaluate this model; repeat the option to compare several, such as A and A:Q8_0.",
        ),
        option(
            "--vary",
            multiple=True,
            metavar="NAME=A,B",
            help="Compare values of lora, temperature, top-p, ...; one value per option for system and pattern.",
        ),
        option("-s", "--system", help="System prompt to use; @FILE reads it from a file."),
        option("--pattern", help="Prompt template over the variables of each case: 'Translate: {text}'."),
        option(
            "--repeat",
            "repeats",
            type=click.IntRange(1, 1000),
            default=1,
            show_default=True,
            help="Run each case N times with consecutive seeds; the model's own temperature then applies.",
        ),
        option("--temperature", type=float, help="Randomness of sampling; 0 by default without --repeat."),
        option("--seed", "rng_seed", type=int, help="Random seed, the first of --repeat; 1 by default."),
        option("--max-tokens", type=int, help="Stop each answer after this many tokens."),
    ),
    _columns,
)
ASKING = OptionGroup(
    "asking",
    "Sampling and judging",
    (
        option(
            "-o",
            "--output",
            "directory",
            metavar="DIR",
            help="Write answers and results to this directory; CASES.eval by default.",
        ),
        concurrency_option("cases"),
        option("--judge", type=ModelName(), help="Judge model for `judge` expectations."),
        option(
            "--embedding-model",
            "embedder",
            type=ModelName(),
            default="builtin-embed",
            show_default=True,
            help="Embedding model for `similar` expectations.",
        ),
        option("--allow-python", is_flag=True, help="Allow cases to run the Python files they name."),
        option("--replace", "overwrite", is_flag=True, help="Replace earlier answers and run all cases again."),
        option("-q", "--quiet", is_flag=True, help="Print no summary and no notes on stderr."),
    ),
    _asking,
)
JUDGEMENT = OptionGroup(
    "judgement",
    "Results",
    (
        format_choice(
            "Output format: a table, JSON, one JSON line per answer, or Markdown.",
            ["text", "json", "jsonl", "markdown"],
        ),
        option("--html", type=FileName(), help="Write an HTML report with the table and all failed cases."),
        option("--junit", type=FileName(), help="Write a JUnit XML report for CI."),
        option(
            "--baseline",
            "against",
            type=FileName(),
            metavar="RESULTS",
            help="Exit with 8 if a variant is significantly worse than in these earlier results.",
        ),
        option(
            "--alpha",
            type=click.FloatRange(0, 1, min_open=True, max_open=True),
            default=0.05,
            show_default=True,
            metavar="P",
            help="Significance level of comparisons.",
        ),
        option(
            "--min",
            "least",
            type=click.FloatRange(0, 1),
            metavar="RATE",
            help="Exit with 8 if a variant's pass rate is below this, such as 0.9.",
        ),
    ),
    _judgement,
)

"""The options that make an export training data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from leap_core.conversation.sessions import RATINGS
from leap_core.system.dataclass import dataclass

from ..completion.value_types import ModelName
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option

if TYPE_CHECKING:
    from leap_core.batch.training_data import Wanted


@dataclass(frozen=True)
class Training:
    """For which ``model``; ``wanted``: which answers; ``rendered``: as text with spans instead of messages; ``log``: of
    the log of prompts too; ``batch``: the lines of a batch and its results; ``test_share`` of the conversations go to a
    file of their own; ``redact``: without personal data that expressions find."""

    model: str
    wanted: Wanted
    rendered: bool
    log: bool
    batch: tuple[str, str] | None
    tools_files: Sequence[str]
    test_share: float | None
    redact: bool


NAMES = ("model", "rating", "unedited", "rendered", "from_log", "batch_files", "tools_file", "test_share", "redact")


def _build(arguments: Arguments) -> Training | None:
    if not arguments["for_training"]:
        for name in NAMES:
            if arguments.is_typed(name):
                raise click.UsageError(f"{arguments.flag(name)} is for --for-training")
        return None
    if arguments["model"] is None:
        raise click.UsageError("--for-training needs --model: its chat template decides how conversations are written")
    if arguments["test_share"] is not None and arguments["output"] in (None, "-"):
        raise click.UsageError("--test-share writes two files: give the first one's name with -o")
    for name in ("media_dir", "format"):
        if arguments.is_typed(name):
            raise click.UsageError(f"{arguments.flag(name)} cannot be combined with --for-training")
    from leap_core.batch.training_data import Wanted

    return Training(
        arguments["model"],
        Wanted(arguments["rating"], arguments["unedited"]),
        arguments["rendered"],
        arguments["from_log"],
        arguments["batch_files"],
        arguments["tools_file"],
        arguments["test_share"],
        arguments["redact"],
    )


TRAINING = OptionGroup(
    "training",
    "Training data",
    (
        option("--for-training", is_flag=True, help="Write training data: JSONL with one conversation per line."),
        option(
            "-m", "--model", type=ModelName(), help="Format messages and tool calls for this model's chat template."
        ),
        option("--rendered", is_flag=True, help="Write prompt and completion as rendered text with loss spans."),
        option(
            "--log",
            "from_log",
            is_flag=True,
            help="Export first turns of the prompt log, and any sessions that are named.",
        ),
        option(
            "--batch",
            "batch_files",
            nargs=2,
            type=click.Path(dir_okay=False),
            metavar="LINES RESULTS",
            help="Export the answers of a batch: its input file and its results file.",
        ),
        option(
            "--rating",
            type=click.Choice(RATINGS),
            help="Export only answers with this rating; all but bad ones by default.",
        ),
        option("--unedited", is_flag=True, help="Export only answers that are known to be unedited model output."),
        option(
            "--tools-file",
            "--tools",
            "tools_file",
            type=click.Path(dir_okay=False),
            multiple=True,
            help="Declarations of the tools called: a Python file or JSON.",
        ),
        option(
            "--test-share",
            type=click.FloatRange(0, 1, min_open=True, max_open=True),
            metavar="SHARE",
            help="Write this share of conversations, such as 0.1, to NAME.test.jsonl next to -o NAME.jsonl.",
        ),
        option("--redact", is_flag=True, help="Redact emails, phone numbers and similar PII by regular expressions."),
    ),
    _build,
)

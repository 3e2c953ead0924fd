"""The options of an answer's tokens, shared by every command that generates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from leap_core.conversation.option_rows import Number, Whole
from leap_core.conversation.options import GENERATION, PARSERS, GenerationOptions
from leap_core.system.dataclass import dataclass

from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from .constraints import Constraint
from .option_rows import checked, option_of

CALL_PARSERS = (*PARSERS, "none")
ROWS = {name: row for name, row in GENERATION.items() if row.flag}
NUMBERS = {row.flag[2:]: row for row in ROWS.values() if isinstance(row.kind, (Number, Whole))}
"""The rows of options whose values are numbers, by their names without dashes."""
SILENT = ("image_tokens", "image_tiles", "top_logprobs")
"""Options that are only about pictures and JSON; help of a text that is read aloud leaves them out."""
DETAILS = ("think_budget_message", "logit_bias")
"""Options of commands that generate text at length."""


@dataclass(frozen=True)
class Sampling:
    """``fields``: those of GenerationOptions that were given."""

    fields: Mapping[str, Any]

    def options(self, shape: Constraint | None = None, **more: Any) -> GenerationOptions:
        """The options of an answer of this ``shape``, with ``more`` fields. Raises LeapOptionsError for a value outside
        its range."""
        fields = {**self.fields, **({} if shape is None else shape.fields), **more}
        return checked(GenerationOptions, ROWS, fields)


ATTRIBUTES: dict[str, dict[str, Any]] = {"image_tiles": {"is_flag": True}, "logit_bias": {"metavar": "TOKEN=N"}}


def _options(hidden: Sequence[str] = (), details: Sequence[str] = ()) -> tuple[Callable[[Any], Any], ...]:
    return tuple(
        option_of(row, hidden=name in hidden, **ATTRIBUTES.get(name, {}))
        for name, row in ROWS.items()
        if name not in DETAILS or name in details
    )


_PARSER = option(
    "--tool-call-parser",
    "call_parser",
    type=click.Choice(CALL_PARSERS),
    heading="Tools",
    metavar="FORMAT",
    help="Parse tool calls in this format; auto (default) follows the model's template, none leaves them in the "
    f"text. {', '.join(CALL_PARSERS)}.",
)


def _build(arguments: Arguments) -> Sampling:
    given = ((name, row, arguments.get(name)) for name, row in ROWS.items())
    fields = {name: value for name, row, value in given if value not in (None, "") and value != row.default}
    if "logit_bias" in fields:
        fields["logit_bias"] = dict(_bias(value, arguments) for value in arguments["logit_bias"])
    if (parser := arguments.get("call_parser")) is not None:
        fields["function_call_parser"] = None if parser == "none" else parser
    return Sampling(fields)


SAMPLING = OptionGroup("sampling", "Sampling", (*_options(details=DETAILS), _PARSER), _build)
PLAIN_SAMPLING = OptionGroup("sampling", "Sampling", _options(), _build)
"""Without the rarer options."""
SPOKEN_SAMPLING = OptionGroup("sampling", "Sampling", _options(hidden=SILENT), _build)
"""A text that is read aloud has these options."""


def number_from_text(name: str, value: str | None) -> tuple[str, Any]:
    """The option that a name in ``NUMBERS`` means, and the value that a text means for it; None is the default. Raises
    UsageError."""
    row = NUMBERS[name]
    try:
        return row.name, None if value is None else row.kind.value_type(value)
    except ValueError:
        raise click.UsageError(f"{name} takes a number, and {value!r} is none") from None


def options_in_words(options: GenerationOptions) -> list[str]:
    """What is set, a line each: ``temperature 0.3``."""
    values = ((name, getattr(options, row.name)) for name, row in NUMBERS.items())
    return [f"{name} {value}" for name, value in values if value is not None]


def _bias(value: str, arguments: Arguments) -> tuple[int, float]:
    token, _, bias = value.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        message = f"--logit-bias: {value!r} is not TOKEN=NUMBER, such as 42=-5{arguments.origin('logit_bias')}"
        raise click.UsageError(message) from None

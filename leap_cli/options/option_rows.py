"""Options of the command line, made of the rows of leap's options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from leap_core.conversation.option_rows import Biases, Number, OneOf, OptionRow, Switch, Texts, Whole
from leap_core.errors import LeapOptionsError

from ..framework.options import option
from ..framework.rare_names import NAMES


def option_of(row: OptionRow, **attributes: Any) -> Callable[[Any], Any]:
    """The option that a row describes; ``attributes`` win. A switch has two names, unless it ``is_flag``."""
    flag = row.flag
    known: dict[str, Any] = {"help": row.text, "heading": row.heading, "rare": not row.common}
    if isinstance(row.kind, (Number, Whole)):
        known |= {"type": row.kind.value_type, "metavar": "N"}
    elif isinstance(row.kind, OneOf):
        known["type"] = click.Choice(row.kind.names)
    elif isinstance(row.kind, (Texts, Biases)):
        known["multiple"] = True
    elif isinstance(row.kind, Switch) and "is_flag" not in attributes:
        flag, known["default"] = f"{flag}/--no-{flag[2:]}", None
    return option(flag, row.name, **{**known, **attributes})


Options = TypeVar("Options")


def checked(make: Callable[..., Options], rows: Mapping[str, OptionRow], values: Mapping[str, Any]) -> Options:
    """The options with these values. Raises LeapOptionsError by the name on the command line."""
    try:
        return make(**values)
    except LeapOptionsError as error:
        row = rows.get(error.option)
        if row is None or not row.flag:
            raise
        raise LeapOptionsError(NAMES.get(row.flag, row.flag), error.reason) from None

"""The rarer options of an answer. Their values are kept in click's context until the options are made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..framework.text_arguments import text_argument

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

DETAILS = "leap.generation_details"


def generation_details(function: Decorated) -> Decorated:
    """Add the flags; the function receives none of them (see ``generation_fields``)."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def _keep_bias(ctx: click.Context, option: click.Parameter, values: tuple[str, ...]) -> None:
    if values:
        ctx.meta.setdefault(DETAILS, {})["logit_bias"] = dict(_bias(ctx, option, value) for value in values)


def _bias(ctx: click.Context, option: click.Parameter, value: str) -> tuple[int, float]:
    token, _, bias = text_argument(value, option.opts[0]).partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        message = f"{value!r} is not TOKEN=NUMBER, such as 42=-5"
        raise click.BadParameter(message, ctx=ctx, param=option) from None


def _keep_parser(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta.setdefault(DETAILS, {})["function_call_parser"] = None if value == "none" else value


_OPTIONS = (
    click.option(
        "--logit-bias",
        multiple=True,
        metavar="TOKEN=N",
        expose_value=False,
        callback=_keep_bias,
        help="Add this to a token's logit, by its number in the vocabulary.",
    ),
    click.option(
        "--call-parser",
        type=click.Choice(["auto", "lfm", "hermes", "none"]),
        expose_value=False,
        callback=_keep_parser,
        help="Read calls of tools as this kind of model writes them (auto, default: as its template says), or leave "
        "them in the text (none).",
    ),
)


def generation_fields() -> dict[str, Any]:
    """Fields of GenerationOptions that were given."""
    context = click.get_current_context(silent=True)
    return {} if context is None else dict(context.meta.get(DETAILS, {}))

"""The options of an answer, shared by every command that generates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .generation_details import generation_fields

if TYPE_CHECKING:
    from leap_core.options import GenerationOptions

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_FLAGS: tuple[tuple[str, str, type, str], ...] = (
    ("--temperature", "temperature", float, "Randomness, 0 or more; 0 takes the likeliest token."),
    ("--top-p", "top_p", float, "Keep the likeliest tokens up to this probability, 0 to 1."),
    ("--min-p", "min_p", float, "Drop tokens below this share of the likeliest, 0 to 1."),
    ("--top-k", "top_k", int, "Keep this many tokens; 0 keeps all."),
    ("--repetition-penalty", "repetition_penalty", float, "Above 0; 1 is none."),
    ("--frequency-penalty", "frequency_penalty", float, "-2 to 2; 0 is none."),
    ("--presence-penalty", "presence_penalty", float, "-2 to 2; 0 is none."),
    ("--repeat-last-n", "repeat_last_n", int, "Tokens that penalties look back on; -1 is the whole context."),
    ("--seed", "rng_seed", int, "Makes sampling repeatable."),
    ("--audio-temperature", "audio_temperature", float, "Randomness of speech, 0 or more."),
    ("--audio-top-k", "audio_top_k", int, "Keep this many codes of speech; 0 keeps all."),
    (
        "--top-logprobs",
        "top_logprobs",
        int,
        "In JSON: how likely each token and N others were, 0 to 20.",
    ),
    ("--max-tokens", "max_tokens", int, "End the answer after this many tokens."),
    ("--image-tokens", "image_tokens", int, "Most tokens that a picture may cost, 16 to 1024; 256 by default."),
)


def generation_flags(function: Decorated) -> Decorated:
    """Add the flags; the function receives them by the names of GenerationOptions' fields."""
    decorate: Decorated = click.option(
        "--image-tiles",
        is_flag=True,
        help="Cut large pictures into up to ten tiles of 256 tokens, for fine print; else they are made smaller.",
    )(click.option("--stop", multiple=True, metavar="TEXT", help="End the answer before this text.")(function))
    for flag, name, kind, meaning in reversed(_FLAGS):
        decorate = click.option(flag, name, type=kind, metavar="N", help=meaning)(decorate)
    return decorate


NUMBERS = {flag[2:]: (field, kind, meaning) for flag, field, kind, meaning in _FLAGS}
"""Options whose values are numbers: name -> field of GenerationOptions, type, meaning."""


def number_from_text(name: str, value: str | None) -> tuple[str, Any]:
    """The field of GenerationOptions that a name in ``NUMBERS`` means, and the value that a text means for it; None is
    the default. Raises UsageError."""
    field, kind, _meaning = NUMBERS[name]
    try:
        return field, None if value is None else kind(value)
    except ValueError:
        raise click.UsageError(f"{name} takes a number, and {value!r} is none") from None


def options_in_words(options: GenerationOptions) -> list[str]:
    """What is set, a line each: ``temperature 0.3``."""
    values = ((name, getattr(options, field)) for name, (field, *_) in NUMBERS.items())
    return [f"{name} {value}" for name, value in values if value is not None]


def generation_options(flags: dict[str, Any], *, enable_thinking: bool = False) -> GenerationOptions:
    """The flags' values as GenerationOptions; a value outside its range raises LeapOptionsError."""
    from leap_core.options import GenerationOptions

    return GenerationOptions(**{**flags, **generation_fields()}, enable_thinking=enable_thinking)

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
    ("--temperature", "temperature", float, "Randomness of sampling, 0 or more; 0 takes the likeliest token."),
    ("--top-p", "top_p", float, "Keep the likeliest tokens up to this probability, 0 to 1."),
    ("--min-p", "min_p", float, "Drop tokens below this share of the likeliest, 0 to 1."),
    ("--top-k", "top_k", int, "Choose among this many of the likeliest tokens; 0 is all."),
    (
        "--repetition-penalty",
        "repetition_penalty",
        float,
        "Make tokens that came before less likely: above 1 the more so, 1 not at all.",
    ),
    (
        "--frequency-penalty",
        "frequency_penalty",
        float,
        "Make tokens less likely the more often they came, -2 to 2; 0 changes nothing.",
    ),
    (
        "--presence-penalty",
        "presence_penalty",
        float,
        "Make tokens less likely once they came, -2 to 2; 0 changes nothing.",
    ),
    ("--repeat-last-n", "repeat_last_n", int, "Let penalties look back on this many tokens; -1 is the whole context."),
    ("--seed", "rng_seed", int, "Sample with this seed, which makes the answer repeatable."),
    ("--audio-temperature", "audio_temperature", float, "Randomness of spoken sound, 0 or more."),
    ("--audio-top-k", "audio_top_k", int, "Choose among this many codes of spoken sound; 0 is all."),
    (
        "--top-logprobs",
        "top_logprobs",
        int,
        "Tell in JSON how likely each token and N others were, 0 to 20.",
    ),
    ("--max-tokens", "max_tokens", int, "End the answer after this many tokens."),
    ("--image-tokens", "image_tokens", int, "Let a picture cost at most this many tokens, 16 to 1024; 256 by default."),
)


def generation_flags(function: Decorated) -> Decorated:
    """Add the flags; the function receives them by the names of GenerationOptions' fields."""
    return _flags_that_hide()(function)


def spoken_generation_flags(function: Decorated) -> Decorated:
    """The same for a text that is read aloud: what is only about pictures and JSON is not shown."""
    return _flags_that_hide("--image-tokens", "--image-tiles", "--top-logprobs")(function)


def _flags_that_hide(*hidden: str) -> Callable[[Decorated], Decorated]:
    def add(function: Decorated) -> Decorated:
        function = click.option("--stop", multiple=True, metavar="TEXT", help="End the answer before this text.")(
            function
        )
        function = click.option(
            "--image-tiles",
            is_flag=True,
            hidden="--image-tiles" in hidden,
            help="Cut large pictures into up to ten tiles of 256 tokens, for fine print; else they are made smaller.",
        )(function)
        for flag, name, kind, meaning in reversed(_FLAGS):
            function = click.option(flag, name, type=kind, hidden=flag in hidden, metavar="N", help=meaning)(function)
        return function

    return add


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

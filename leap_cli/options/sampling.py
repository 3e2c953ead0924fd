"""The options of an answer's tokens, shared by every command that generates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from leap_core.system.dataclass import dataclass

from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from .constraints import Constraint

if TYPE_CHECKING:
    from leap_core.conversation.options import GenerationOptions

CALL_PARSERS = (
    *("auto", "lfm", "hermes", "gpt_oss", "functionary_v32", "kimi_k2", "deepseek_v3", "deepseek_v31", "mistral"),
    *("granite", "nemotron", "apertus", "command_r7b", "minimax_m2", "seed_oss", "qwen3_coder", "glm45"),
    *("functiongemma", "gemma4", "functionary", "llama3_json", "none"),
)
"""``leap_core.conversation.options.PARSERS``, which a start of a command need not load, and none."""

_FLAGS: tuple[tuple[str, str, type, str], ...] = (
    ("--temperature", "temperature", float, "Randomness of sampling, 0 or more; 0 takes the likeliest token."),
    ("--top-p", "top_p", float, "Sample from the likeliest tokens up to this total probability, 0 to 1."),
    ("--min-p", "min_p", float, "Drop tokens less likely than this fraction of the likeliest, 0 to 1."),
    ("--top-k", "top_k", int, "Sample from this many of the likeliest tokens; 0 is all."),
    (
        "--repetition-penalty",
        "repetition_penalty",
        float,
        "Penalize tokens that already occurred; 1 is off, higher values penalize more.",
    ),
    (
        "--frequency-penalty",
        "frequency_penalty",
        float,
        "Penalize tokens by how often they occurred, -2 to 2; 0 is off.",
    ),
    (
        "--presence-penalty",
        "presence_penalty",
        float,
        "Penalize tokens that occurred at all, -2 to 2; 0 is off.",
    ),
    ("--repeat-last-n", "repeat_last_n", int, "Apply penalties to the last N tokens; -1 is the whole context."),
    ("--seed", "rng_seed", int, "Random seed; the same seed repeats the answer."),
    ("--audio-temperature", "audio_temperature", float, "Randomness of spoken audio, 0 or more."),
    ("--audio-top-k", "audio_top_k", int, "Sample from this many of the likeliest audio codes; 0 is all."),
    (
        "--top-logprobs",
        "top_logprobs",
        int,
        "Return log-probabilities of each token and N alternatives in JSON, 0 to 20.",
    ),
    ("--max-tokens", "max_tokens", int, "Stop after this many tokens."),
    ("--think-budget", "think_budget", int, "Limit reasoning to this many tokens; 0 skips it."),
    ("--image-tokens", "image_tokens", int, "Encode an image as at most this many tokens, 16 to 1024; 256 by default."),
)


NUMBERS = {flag[2:]: (field, kind, meaning) for flag, field, kind, meaning in _FLAGS}
"""Options whose values are numbers: name -> field of GenerationOptions, type, meaning."""
HEADINGS = {"--image-tokens": "Prompt", "--top-logprobs": "Answer", "--think-budget": "Reasoning"}
"""Where help shows options that are no sampling."""
SILENT = ("--image-tokens", "--image-tiles", "--top-logprobs")
"""Options that are only about pictures and JSON; help of a text that is read aloud leaves them out."""


@dataclass(frozen=True)
class Sampling:
    """``fields``: those of GenerationOptions that were given."""

    fields: Mapping[str, Any]

    def options(self, shape: Constraint | None = None, **more: Any) -> GenerationOptions:
        """The options of an answer of this ``shape``, with ``more`` fields. Raises LeapOptionsError for a value outside
        its range."""
        from leap_core.conversation.options import GenerationOptions
        from leap_core.errors import LeapOptionsError

        try:
            return GenerationOptions(**{**self.fields, **({} if shape is None else shape.fields), **more})
        except LeapOptionsError as error:
            flag = next((name for name, (field, *_) in NUMBERS.items() if field == error.option), None)
            if flag is None:
                raise
            raise LeapOptionsError(f"--{flag}", error.reason) from None


def _options(hidden: tuple[str, ...] = ()) -> tuple[Callable[[Any], Any], ...]:
    numbers = (
        option(flag, name, type=kind, hidden=flag in hidden, metavar="N", help=meaning, heading=HEADINGS.get(flag, ""))
        for flag, name, kind, meaning in _FLAGS
    )
    return (
        *numbers,
        option(
            "--image-tiles",
            is_flag=True,
            hidden="--image-tiles" in hidden,
            heading="Prompt",
            help="Split large images into up to ten tiles of 256 tokens, for small text; otherwise they are "
            "scaled down.",
        ),
        option("--stop", multiple=True, help="Stop before this text occurs."),
        option(
            "--repetition-detection/--no-repetition-detection",
            default=None,
            help="Stop an answer that repeats itself (default) or not.",
        ),
    )


_DETAILS = (
    option("--think-budget-message", heading="Reasoning", help="Insert this text when reasoning reaches its budget."),
    option(
        "--logit-bias",
        multiple=True,
        metavar="TOKEN=N",
        help="Add a bias to the logit of a token id.",
    ),
    option(
        "--tool-call-parser",
        "call_parser",
        type=click.Choice(CALL_PARSERS),
        heading="Tools",
        metavar="FORMAT",
        help="Parse tool calls in this format; auto (default) follows the model's template, none leaves them in the "
        f"text. {', '.join(CALL_PARSERS)}.",
    ),
)


def _build(arguments: Arguments) -> Sampling:
    fields = arguments.of(*(name for _, name, *_ in _FLAGS), "image_tiles", "stop")
    if arguments.get("repetition_detection") is False:
        fields["repetition_detection"] = False
    if arguments.get("think_budget_message"):
        fields["think_budget_message"] = arguments["think_budget_message"]
    if arguments.get("logit_bias"):
        fields["logit_bias"] = dict(_bias(value, arguments) for value in arguments["logit_bias"])
    if (parser := arguments.get("call_parser")) is not None:
        fields["function_call_parser"] = None if parser == "none" else parser
    return Sampling(fields)


SAMPLING = OptionGroup("sampling", "Sampling", (*_options(), *_DETAILS), _build)
PLAIN_SAMPLING = OptionGroup("sampling", "Sampling", _options(), _build)
"""Without the rarer options."""
SPOKEN_SAMPLING = OptionGroup("sampling", "Sampling", _options(hidden=SILENT), _build)
"""A text that is read aloud has these options."""


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


def _bias(value: str, arguments: Arguments) -> tuple[int, float]:
    token, _, bias = value.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        message = f"--logit-bias: {value!r} is not TOKEN=NUMBER, such as 42=-5{arguments.origin('logit_bias')}"
        raise click.UsageError(message) from None

"""Options that have no flag of their own: ``--option NAME=VALUE`` sets them, as variables and
config.toml do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

OPTION = "--option"
_NAMES = """
audio-temperature audio-top-k image-tiles repeat-last-n repetition-detection typical-p xtc-probability xtc-threshold
flash-attention mmap n-cpu-moe prompt-cache-size tensor-split
additional-properties any-whitespace repair schema-in-prompt think-budget-message tool-call-parser
pooling prefix too-long
keep-split output-tensor-type pure tensor-type token-embedding-type
allow-host for interrupt max-connections max-models silence-duration sse-ping-interval
about after-any alpha attempt chunk-overlap chunk-tokens embedding-model extract-last grounding installed
keep-reasoning learning-rate max-workers media-dir mode no-wait on-overlap path patterns rank reflection-model retries
stall-timeout svg unedited until-empty verbatim
"""
NAMES = {f"--{name}": f"{OPTION} {name}" for name in _NAMES.split()}
NAMES |= {f"--no-{name}": f"{OPTION} no-{name}" for name in _NAMES.split()}
YES, NO = ("true", "yes", "1", "on"), ("false", "no", "0", "off")


def is_by_name(option: click.Parameter) -> bool:
    """Whether only ``--option`` sets it."""
    return option.opts[0].startswith(f"{OPTION} ")


def by_name(parameters: Sequence[click.Parameter]) -> list[click.Parameter]:
    """The parameters of a command, with ``--option`` where it sets any of them. Help and completion leave those out."""
    for each in parameters:
        if isinstance(each, click.Option) and not each.hidden and each.opts[0] in NAMES:
            each.opts, each.secondary_opts = ([NAMES[name] for name in n] for n in (each.opts, each.secondary_opts))
            each.hidden = True
    if not any(map(is_by_name, parameters)):
        return [*parameters]
    names = ", ".join(sorted(each.opts[0].partition(" ")[2] for each in parameters if is_by_name(each)))
    option = click.Option(
        [OPTION],
        expose_value=False,
        is_eager=True,  # in no file
        multiple=True,
        metavar="NAME=VALUE",
        help=f"Set an option that has no flag of its own; leap help --man COMMAND explains them. Names: {names}.",
    )
    return [*parameters, option]


def named(text: str | None, known: Mapping[str, Any]) -> tuple[str, str | None]:
    """The name of click's parser and the value of ``NAME=VALUE``; a flag takes true or false. ``known``: the parser's
    options. Raises UsageError."""
    name, separator, value = (text or "").partition("=")
    name = name.strip().lower().replace("_", "-")
    if f"{OPTION} {name}" not in known:
        names = sorted(each.removeprefix(f"{OPTION} ") for each in known if each.startswith(f"{OPTION} "))
        raise click.UsageError(f"{OPTION} takes NAME=VALUE, not {text!r}; the names are {', '.join(names)}")
    if not separator or known[f"{OPTION} {name}"].takes_value:
        return f"{OPTION} {name}", value if separator else None
    off = f"{OPTION} no-{name}"
    said = value.lower()
    if said not in (*YES, *NO) or (said in NO and off not in known):
        raise click.UsageError(f"{OPTION} {name} takes true{' or false' if off in known else ''}, not {value!r}")
    return off if said in NO else f"{OPTION} {name}", None

"""Which models a server offers, which of them stay, and how much is loaded at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ...completion.value_types import ModelName
from ...framework.durations import Duration, seconds_of
from ...framework.environment import Environment
from ...framework.option_groups import Arguments, OptionGroup
from ...framework.options import option
from ...framework.sizes import Size
from ...options.opening import model_reference

if TYPE_CHECKING:
    from leap_core.host.server.models.offer import Offer
    from leap_core.host.server.models.room import Bounds

FOR_ONE = {"adapters": "--lora", "mm_proj_path": "--mmproj"}
"""Options of loading that fit a single model."""


@dataclass(frozen=True)
class ServedModels:
    """``staying``: loaded at the start, for good. ``patterns``: loaded on demand; empty where none is. ``default``: the
    one that answers where a request names none. ``keep_alive``: seconds that those stay without use."""

    staying: tuple[str, ...]
    patterns: tuple[str, ...]
    default: str | None
    bounds: Bounds
    keep_alive: float | None

    def offer(self, env: Environment, loading: Mapping[str, Any]) -> Offer | None:
        """What requests may have loaded, each in the way that ``loading`` says; None where nothing is offered."""
        from leap_core.host.server.models.offer import Offer

        if not self.patterns:
            return None
        for name, spelling in FOR_ONE.items():
            if name in loading.get("details", {}):
                raise click.UsageError(
                    f"{spelling} belongs to one model: name that as MODEL, without --models or --pin"
                )
        return Offer(self.patterns, env.cwd, self.default, {**loading, "keep_alive": self.keep_alive})


def _served_models(arguments: Arguments) -> ServedModels:
    from leap_core.configuration import read_configuration
    from leap_core.host.server.models.room import Bounds

    env, named, listed = arguments.env, arguments["models"], arguments["offered"]
    patterns = tuple(part.strip() for part in (listed or "").split(",") if part.strip())
    if listed is not None and not patterns:
        raise click.UsageError("--models needs names or patterns, such as 'LFM2.5*'")
    default = None
    if not named and not patterns:
        default = model_reference(env, None)
        patterns = ("*", default)
    keep_alive = arguments["keep_alive"]
    if keep_alive is None and (text := read_configuration(env.directories.config_file).keep_alive) is not None:
        try:
            keep_alive = seconds_of(text)
        except ValueError as error:
            raise click.UsageError(f"{env.directories.config_file}: keep_alive: {error}") from None
    staying = tuple(dict.fromkeys((*named, *arguments["pin"])))
    if arguments["max_models"] is not None and arguments["max_models"] < len(staying) + bool(patterns):
        more = " and room for one more" if patterns else ""
        raise click.UsageError(
            f"--max-models {arguments['max_models']} is less than the {len(staying)} that stay{more}"
        )
    return ServedModels(
        staying, patterns, default, Bounds(arguments["max_models"], arguments["max_memory"]), keep_alive
    )


SERVED_MODELS = OptionGroup(
    "models",
    "Models on demand",
    (
        click.argument("models", metavar="[MODEL]...", nargs=-1, type=ModelName()),
        option(
            "--models",
            "offered",
            metavar="NAMES",
            help="Offer these too, and load one when it is first asked for: 'NAME,PATTERN', such as 'LFM2.5*'.",
        ),
        option(
            "--pin", type=ModelName(), multiple=True, metavar="MODEL", help="Load this model at the start, and keep it."
        ),
        option(
            "--max-models",
            type=click.IntRange(1),
            metavar="N",
            help="Keep at most N models loaded at once; 2 beside those that stay, when no bound is given.",
        ),
        option(
            "--max-memory",
            type=Size(),
            metavar="SIZE",
            help="Keep models loaded that take at most this much memory together, such as 8GB.",
        ),
        option(
            "--keep-alive",
            type=Duration(),
            metavar="TIME",
            help="Let go of a model that was loaded on demand after this time without use (10m); 0 is never.",
        ),
    ),
    _served_models,
)

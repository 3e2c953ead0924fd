"""How ``leap load`` and ``leap serve`` have a model loaded by a host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..framework.environment import Environment
from .loading import note_missing_gpu
from .loading_details import has_prompt_cache, loading_details, loading_fields, prompt_cache
from .value_types import GpuLayers

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--context-size", type=int, metavar="N", help="Make room for this many tokens of prompt and answer together."
    ),
    click.option("--threads", "cpu_threads", type=int, metavar="N", help="Compute with this many CPU threads."),
    click.option(
        "--gpu-layers",
        "n_gpu_layers",
        type=GpuLayers(),
        metavar="N",
        help="Compute this many layers on a GPU, or auto.",
    ),
    loading_details,
    click.option(
        "--slots", type=click.IntRange(1, 256), metavar="N", help="Make this many answers at once; 8 by default."
    ),
    click.option(
        "--queue", type=click.IntRange(0), metavar="N", help="Let at most this many requests wait; 256 by default."
    ),
)


def host_loading_flags(function: Decorated) -> Decorated:
    """Add the flags; the function receives fields of a LoadRequest, those of ``loading_details`` apart."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def host_loading(env: Environment, wish: dict[str, Any]) -> dict[str, Any]:
    """The command's own options in ``wish`` and those of ``loading_details``, as a LoadRequest has them. Raises
    LeapOptionsError for a value out of its range, before a host is started."""
    from leap_core.options import ModelLoadingOptions

    note_missing_gpu(env, wish.get("n_gpu_layers"))
    request = {name: value for name, value in wish.items() if value not in (None, "auto")}
    fields = loading_fields(env)
    options = ModelLoadingOptions(**{k: v for k, v in request.items() if k != "queue"}, **fields)
    if options.chat_template is not None:
        request["chat_template"] = options.chat_template
    if details := options.details():
        request["details"] = details
    if has_prompt_cache():
        cache = prompt_cache(env)
        request["prompt_cache"] = {"path": str(cache.path), "bytes": cache.max_bytes_disk}
    return request

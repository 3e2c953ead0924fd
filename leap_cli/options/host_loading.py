"""How ``leap load`` and ``leap serve`` have a model loaded by a host."""

from __future__ import annotations

from typing import Any

from ..framework.environment import Environment
from .loading import note_missing_gpu
from .loading_details import has_prompt_cache, loading_fields, prompt_cache


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

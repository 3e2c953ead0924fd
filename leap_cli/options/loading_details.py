"""The rarer options of loading a model. Their values are kept in click's context, where whatever loads finds them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..framework.environment import Environment
from ..framework.sizes import Size
from ..framework.text_arguments import text_argument

if TYPE_CHECKING:
    from leap_core.options import CacheOptions

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

DETAILS = "leap.loading_details"
KV_TYPES = click.Choice(["f32", "f16", "bf16", "q8_0", "q4_0"])
"""leap_core.options.loading has the same names; importing that would make every start slower."""


def _keep(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    if value is None or value == ():
        return
    label = option.opts[0]
    if option.name == "lora":
        value = [text_argument(each, label) for each in value]
    elif option.name == "chat_template":
        value = text_argument(str(value), label)
    ctx.meta.setdefault(DETAILS, {})[option.name] = value


def loading_details(function: Decorated) -> Decorated:
    """Add the flags; the function receives none of them (see ``loading_fields`` and ``prompt_cache``)."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def _option(*names: str, **more: Any) -> Callable[[Decorated], Decorated]:
    return click.option(*names, expose_value=False, callback=_keep, **more)


_OPTIONS = (
    _option(
        "--lora",
        multiple=True,
        metavar="FILE[=SCALE]",
        help="Compute with this LoRA adapter, at this strength (1 by default).",
    ),
    _option(
        "--chat-template",
        metavar="FILE|NAME",
        help="Use this chat template instead of the model's: a file of Jinja, or chatml, llama3 or gemma.",
    ),
    _option("--kv-type-k", type=KV_TYPES, help="Keep keys of the context as this type; f16 by default."),
    _option("--kv-type-v", type=KV_TYPES, help="Keep values of the context as this type; f16 by default."),
    _option("--flash-attention/--no-flash-attention", default=None, help="Use flash attention (default), or not."),
    _option("--mmap/--no-mmap", "use_mmap", default=None, help="Map the model's file (default), or read it."),
    _option(
        "--batch-size", type=int, metavar="N", help="Read at most this many prompt tokens in one step; 512 by default."
    ),
    _option(
        "--lookup/--no-lookup", default=None, help="Answer faster where the answer repeats its prompt; off by default."
    ),
    _option(
        "--mmproj",
        metavar="FILE",
        help="See or hear with this projector; by default the one beside the model.",
    ),
    _option(
        "--prompt-cache/--no-prompt-cache",
        default=None,
        help="Keep the model's state after long prompts on disk, so that the next command begins there.",
    ),
    _option(
        "--prompt-cache-size",
        type=Size(bare="MiB"),
        metavar="SIZE",
        help="Keep at most this much state on disk, such as 500MB; 8GiB by default.",
    ),
)


def loading_fields(env: Environment) -> dict[str, Any]:
    """Fields of ModelLoadingOptions that were given, as JSON keeps them; paths are absolute."""
    fields = dict(_details())
    fields.pop("prompt_cache", None)
    fields.pop("prompt_cache_size", None)
    if "mmproj" in fields:
        fields["mm_proj_path"] = os.path.join(env.cwd, fields.pop("mmproj"))
    if "chat_template" in fields:
        fields["chat_template"] = _read_template(fields["chat_template"], env)
    if adapters := fields.pop("lora", ()):
        from leap_core.options.adapters import LoraAdapter

        parsed = [LoraAdapter.parse(text) for text in adapters]
        fields["adapters"] = [{"path": os.path.join(env.cwd, each.path), "scale": each.scale} for each in parsed]
    return fields


def has_prompt_cache() -> bool:
    """Whether the prompt cache was asked for."""
    return bool(_details().get("prompt_cache"))


def prompt_cache(env: Environment) -> CacheOptions:
    """Where prompts are kept, and how many bytes of them."""
    from leap_core.options import CacheOptions

    size = _details().get("prompt_cache_size")
    directory = prompt_cache_directory(env)
    return CacheOptions.on_disk(directory) if size is None else CacheOptions.on_disk(directory, size)


def prompt_cache_directory(env: Environment) -> Any:
    """The directory of kept prompts."""
    return env.directories.cache / "prompts"


def _details() -> dict[str, Any]:
    context = click.get_current_context(silent=True)
    details: dict[str, Any] = {} if context is None else context.meta.get(DETAILS, {})
    return details


def _read_template(value: str, env: Environment) -> str:
    from leap_core.chat_format.named_templates import NAMED_TEMPLATES

    path = env.cwd / value
    if not path.is_file() and value.lower() in NAMED_TEMPLATES:
        return NAMED_TEMPLATES[value.lower()]
    try:
        return path.read_text("utf-8")
    except OSError as error:
        names = ", ".join(NAMED_TEMPLATES)
        raise click.UsageError(
            f"--chat-template: {value} cannot be read ({error.strerror}); a file, or one of {names}"
        ) from None
    except UnicodeDecodeError:
        raise click.UsageError(f"--chat-template: {value} is no text in UTF-8") from None

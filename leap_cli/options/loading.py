"""The options of loading a model: which it is, how it is loaded, and whether the warm host's is used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..completion.value_types import GpuLayers, ModelName
from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from ..framework.output import Output
from ..framework.sizes import Size
from ..framework.text_arguments import FileName, absolute, absolute_if_file

if TYPE_CHECKING:
    from leap_core.options import CacheOptions

KV_TYPES = click.Choice(["f32", "f16", "bf16", "q8_0", "q4_0"])
"""leap_core.options.loading has the same names; importing that would make every start slower."""
PLAIN = (
    *("context_size", "cpu_threads", "n_gpu_layers", "kv_type_k", "kv_type_v"),
    *("flash_attention", "use_mmap", "batch_size", "lookup"),
)
"""Options that are fields of ModelLoadingOptions as they stand."""


@dataclass(frozen=True)
class ModelChoice:
    """``name``: the model's, None where none was named. ``fields``: those of ModelLoadingOptions that were given, as
    JSON keeps them, with absolute paths. ``host``: whether the warm host's is demanded or forbidden, None where it may
    be used. ``verbose``: whether llama.cpp's log is shown. ``command``: the one that asks, for the log of prompts."""

    name: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    host: bool | None = None
    verbose: bool = False
    prompt_cache: CacheOptions | None = None
    command: str = "leap"

    @property
    def job_may_use_host(self) -> bool:
        """Whether a job may use the warm host's model."""
        return self.host is not False


@dataclass(frozen=True)
class HostLoading:
    """How a host loads a model: ``request`` is what a LoadRequest has beside the model's name."""

    request: Mapping[str, Any]


def _absolute_adapter(text: str, env: Environment) -> str:
    file, equals, scale = text.rpartition("=")
    return f"{absolute(file, env)}={scale}" if equals else absolute(text, env)


MODEL_OPTION = option(
    "-m",
    "--model",
    type=ModelName(),
    metavar="MODEL",
    saved=absolute_if_file,
    help="Use this model: a GGUF file, a model's name, or 'builtin'.",
)
THREADS_OPTION = option("--threads", "cpu_threads", type=int, metavar="N", help="Compute with this many CPU threads.")
HOST_OPTION = option(
    "--host/--no-host",
    default=None,
    wish=True,
    help="Demand the model that `leap load` keeps warm, or load it here; by default it is used where there is one.",
)
_SIZES = (
    option(
        "--context-size", type=int, metavar="N", help="Make room for this many tokens of prompt and answer together."
    ),
    THREADS_OPTION,
    option(
        "--gpu-layers",
        "n_gpu_layers",
        type=GpuLayers(),
        default="auto",
        metavar="N",
        help="Compute this many layers on a GPU; -1 is all, auto (default) as many as fit.",
    ),
)
_DETAILS = (
    option(
        "--lora",
        multiple=True,
        metavar="FILE[=SCALE]",
        saved=_absolute_adapter,
        help="Compute with this LoRA adapter, at this strength (1 by default).",
    ),
    option(
        "--chat-template",
        metavar="FILE|NAME",
        saved=absolute_if_file,
        help="Use this chat template instead of the model's: a file of Jinja, or chatml, llama3 or gemma.",
    ),
    option(
        "--kv-type-k",
        type=KV_TYPES,
        help="Keep keys of the context as this type; bf16 by default, f16 with layers on a GPU.",
    ),
    option("--kv-type-v", type=KV_TYPES, help="Keep values as this type; f16 by default."),
    option("--flash-attention/--no-flash-attention", default=None, help="Use flash attention (default), or not."),
    option("--mmap/--no-mmap", "use_mmap", default=None, help="Map the model's file (default), or read it."),
    option(
        "--batch-size", type=int, metavar="N", help="Read at most this many prompt tokens in one step; 512 by default."
    ),
    option(
        "--lookup/--no-lookup", default=None, help="Answer faster where the answer repeats its prompt; off by default."
    ),
    option(
        "--mmproj",
        type=FileName(),
        saved=absolute,
        metavar="FILE",
        help="See or hear with this projector; by default the one beside the model.",
    ),
    option(
        "--prompt-cache/--no-prompt-cache",
        default=None,
        wish=True,
        help="Keep the model's state after long prompts on disk, so that the next command begins there.",
    ),
    option(
        "--prompt-cache-size",
        type=Size(bare="MiB"),
        metavar="SIZE",
        help="Keep at most this much state on disk, such as 500MB; 8GiB by default.",
    ),
)
_SHARES = (
    option("--slots", type=click.IntRange(1, 256), metavar="N", help="Make this many answers at once; 8 by default."),
    option("--queue", type=click.IntRange(0), metavar="N", help="Let at most this many requests wait; 256 by default."),
)


def _model_choice(arguments: Arguments) -> ModelChoice:
    return ModelChoice(
        arguments.get("model"),
        _fields(arguments),
        arguments["host"],
        arguments["verbose"],
        _prompt_cache(arguments),
        arguments.command,
    )


def _host_loading(arguments: Arguments) -> HostLoading:
    """Raises LeapOptionsError for a value out of its range, before a host is started."""
    from leap_core.options import ModelLoadingOptions

    note_missing_gpu(arguments.env, arguments["n_gpu_layers"])
    fields = {name: value for name, value in _fields(arguments).items() if value != "auto"}
    shares = {name: value for name in ("slots", "queue") if (value := arguments[name]) is not None}
    options = ModelLoadingOptions(**fields, **{name: value for name, value in shares.items() if name != "queue"})
    common = ("context_size", "cpu_threads", "n_gpu_layers", "chat_template")
    request = {**{name: fields[name] for name in common if name in fields}, **shares}
    if details := options.details():
        request["details"] = details
    if (cache := _prompt_cache(arguments)) is not None:
        request["prompt_cache"] = {"path": str(cache.path), "bytes": cache.max_bytes_disk}
    return HostLoading(request)


_OF_EACH = (
    *_SIZES,
    HOST_OPTION,
    option("--verbose", is_flag=True, wish=True, help="Show llama.cpp's log on stderr."),
    *_DETAILS,
)
MODEL = OptionGroup("model", "Model", (MODEL_OPTION, *_OF_EACH), _model_choice)
EACH_MODEL = OptionGroup("model", "Model", _OF_EACH, _model_choice)
"""How each of several models is loaded, which another group names."""
HOST_LOADING = OptionGroup("loading", "Model", (*_SIZES, *_DETAILS, *_SHARES), _host_loading)


def note_missing_gpu(env: Environment, layers: int | str | None) -> None:
    """Say that layers were demanded of a GPU, and this llama.cpp computes on none."""
    if layers in (None, 0, "auto"):
        return
    from leap_core.llama.gpu import has_gpu_support

    if not has_gpu_support():
        Output(env).note(
            f"this llama.cpp is built without a GPU: --gpu-layers {layers} has no effect (see leap doctor)"
        )


def prompt_cache_directory(env: Environment) -> Path:
    """The directory of kept prompts."""
    return env.directories.cache / "prompts"


def _fields(arguments: Arguments) -> dict[str, Any]:
    fields = {name: value for name in PLAIN if (value := arguments[name]) is not None}
    directory = arguments.env.cwd
    if (projector := arguments["mmproj"]) is not None:
        fields["mm_proj_path"] = os.path.join(directory, projector)
    if (template := arguments["chat_template"]) is not None:
        fields["chat_template"] = _read_template(template, arguments.env)
    if arguments["lora"]:
        from leap_core.options.adapters import LoraAdapter

        adapters = map(LoraAdapter.parse, arguments["lora"])
        fields["adapters"] = [{"path": os.path.join(directory, each.path), "scale": each.scale} for each in adapters]
    return fields


def _prompt_cache(arguments: Arguments) -> CacheOptions | None:
    """Where prompts are kept, and how many bytes of them; None where that was not asked for."""
    if not arguments["prompt_cache"]:
        return None
    from leap_core.options import CacheOptions

    size, directory = arguments["prompt_cache_size"], prompt_cache_directory(arguments.env)
    return CacheOptions.on_disk(directory) if size is None else CacheOptions.on_disk(directory, size)


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

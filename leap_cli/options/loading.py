"""The options of loading a model, and opening the one that they name."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.conversation.loading_options import LOADING
from leap_core.conversation.option_rows import Host
from leap_core.conversation.priority import VARIABLE_OF_JOBS
from leap_core.errors import LeapError, LeapModelLoadingError
from leap_core.system.dataclass import dataclass

from ..completion.value_types import CommaList, GpuLayers, ModelName
from ..exit_codes import ExitCode
from ..framework.arguments import FileName, absolute, absolute_if_file
from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import Size, in_bytes, option, seconds_of
from ..framework.output import Output
from .background import Background, open_jobs, print_id
from .first_use import downloading_first
from .option_rows import option_of
from .tools import FOLD_TOOLS

if TYPE_CHECKING:
    from leap_core.conversation.options import CacheOptions, ModelLoadingOptions
    from leap_core.conversation.prompt_progress import Report
    from leap_core.conversation.runner import ModelRunner
    from leap_core.conversation.wrapping import Wrap
    from leap_core.models.store import InstalledModel
    from leap_core.opening import HostUse

ROWS = {name: row for name, row in LOADING.items() if row.flag}
"""Options that are fields of ModelLoadingOptions unchanged."""


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
    """How a host loads a model: ``request`` is what a LoadRequest has beside the model's name; ``engine`` runs it, None
    for the one that is set."""

    request: Mapping[str, Any]
    engine: str | None = None


def _absolute_adapter(text: str, env: Environment) -> str:
    file, equals, scale = text.rpartition("=")
    return f"{absolute(file, env)}={scale}" if equals else absolute(text, env)


MODEL_OPTION = option(
    "-m", "--model", type=ModelName(), saved=absolute_if_file, help="Use this model: a GGUF file, a name, or 'builtin'."
)
THREADS_OPTION = option_of(ROWS["cpu_threads"])
HOST_OPTION = option(
    "--host/--no-host",
    default=None,
    wish=True,
    help="Require the model that `leap load` keeps loaded, or load it in this process; by default a loaded one is "
    "used.",
)
_SIZES = (
    option_of(ROWS["context_size"]),
    THREADS_OPTION,
    option_of(ROWS["n_gpu_layers"], type=GpuLayers(), default="auto"),
)
ENGINE_OPTION = option_of(ROWS["engine"], metavar="ENGINE")
GPU_DEVICES = option(
    "--device",
    "gpu_devices",
    type=CommaList(str),
    metavar="NAME[,NAME...]",
    help="Use these GPUs (names of `leap doctor`); none uses the CPU.",
)
_PLACEMENT = (
    GPU_DEVICES,
    option_of(ROWS["tensor_split"], type=CommaList(float), metavar="N[,N...]"),
    option("--cpu-moe", is_flag=True, default=None, help="Keep the MoE experts of all layers on the CPU."),
    option("--n-cpu-moe", type=click.IntRange(0), help="Keep the MoE experts of the first N layers on the CPU."),
)
_DETAILS = (
    *_PLACEMENT,
    option(
        "--lora",
        multiple=True,
        metavar="FILE[=SCALE]",
        saved=_absolute_adapter,
        help="Apply this LoRA adapter; SCALE is its strength, 1 by default.",
    ),
    option(
        "--chat-template",
        metavar="FILE|NAME",
        saved=absolute_if_file,
        help="Use this chat template instead of the model's: a file of Jinja, or chatml, llama3 or gemma.",
    ),
    *(option_of(row) for row in ROWS.values() if row.host is Host.DETAIL and row.name != "tensor_split"),
    option(
        "--mmproj",
        type=FileName(),
        saved=absolute,
        help="Multimodal projector for images or audio; by default the file next to the model.",
    ),
    option(
        "--prompt-cache/--no-prompt-cache",
        default=None,
        wish=True,
        help="Cache the state of long prompts on disk, so that later commands skip them.",
    ),
    option(
        "--prompt-cache-size",
        type=Size(bare="MiB"),
        help="Limit the prompt cache on disk, such as 500MB; 8GiB by default.",
    ),
)
_OF_SERVERS = ("slots", "queue", "tool_search")
_SHARES = (
    option("--slots", type=click.IntRange(1, 256), help="Number of parallel requests; 8 by default."),
    option("--queue", type=click.IntRange(0), help="Queue at most this many requests; 256 by default."),
    FOLD_TOOLS,
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
    from leap_core.conversation.options import ModelLoadingOptions
    from leap_core.inference.llama.engines import find_engine

    env, engine = arguments.env, arguments["engine"]
    if engine is not None:
        engine = find_engine(engine, env.variables).name
    note_missing_gpu(env, arguments["n_gpu_layers"], engine)
    fields = {name: value for name, value in _fields(arguments).items() if value != "auto" and name != "engine"}
    shares = {name: value for name in _OF_SERVERS if (value := arguments[name]) is not None}
    options = ModelLoadingOptions(**fields, **{name: value for name, value in shares.items() if name == "slots"})
    request = {name: value for name, value in fields.items() if LOADING[name].host is Host.FIELD} | shares
    if details := options.details():
        request["details"] = details
    if (cache := _prompt_cache(arguments)) is not None:
        request["prompt_cache"] = {"path": str(cache.path), "bytes": cache.max_bytes_disk}
    return HostLoading(request, engine)


_OF_EACH = (
    *_SIZES,
    HOST_OPTION,
    option("--verbose", is_flag=True, wish=True, help="Show llama.cpp's log on stderr."),
    ENGINE_OPTION,
    *_DETAILS,
)
MODEL = OptionGroup("model", "Model", (MODEL_OPTION, *_OF_EACH), _model_choice)
_BESIDE_SOUND = tuple(each for each in _OF_EACH if each is not GPU_DEVICES)
MODEL_BESIDE_SOUND = OptionGroup("model", "Model", (MODEL_OPTION, *_BESIDE_SOUND), _model_choice)
"""For a command whose --device is a microphone or loudspeaker."""
EACH_MODEL = OptionGroup("model", "Model", _OF_EACH, _model_choice)
"""How each of several models is loaded, which another group names."""
HOST_LOADING = OptionGroup("loading", "Model", (*_SIZES, ENGINE_OPTION, *_DETAILS, *_SHARES), _host_loading)


def note_missing_gpu(env: Environment, layers: int | str | None, engine: str | None = None) -> None:
    """Say that layers are to be on a GPU, and the engine sees none. Raises LeapError for an engine that is not here."""
    if layers in (None, 0, "auto"):
        return
    from leap_core.inference.llama.library import has_gpu_support, unseen_gpu, use_engine

    use_engine(engine)
    if not has_gpu_support():
        Output(env).note(f"{unseen_gpu()}: --gpu-layers {layers} has no effect (see leap doctor)")


def _note_left_on_cpu(env: Environment, runner: ModelRunner, options: ModelLoadingOptions) -> None:
    """Say that `auto` has put no layer on the GPU that is there."""
    on_gpu = runner.on_gpu
    if on_gpu is None or on_gpu.layers or options.n_gpu_layers != "auto" or tuple(options.devices) == ("none",):
        return
    from leap_core.inference.llama.devices import measured, usable_gpus

    if free := [f"{in_bytes(each.free)} on {each.name}" for each in measured(usable_gpus(options.devices))]:
        Output(env).note(
            f"{runner.model_id} runs on the CPU: no layer fits into the free memory of the GPU ({', '.join(free)})"
        )


def prompt_cache_directory(env: Environment) -> Path:
    """The directory of cached prompts."""
    return env.directories.cache / "prompts"


def _fields(arguments: Arguments) -> dict[str, Any]:
    fields = {name: value for name in ROWS if (value := arguments.get(name)) is not None}
    if (devices := arguments.get("gpu_devices")) is not None:
        fields["devices"] = devices
    arguments.check_apart("cpu_moe", "n_cpu_moe")
    if arguments["cpu_moe"] or arguments["n_cpu_moe"]:
        fields["cpu_moe"] = -1 if arguments["cpu_moe"] else arguments["n_cpu_moe"]
    directory = arguments.env.cwd
    if (projector := arguments["mmproj"]) is not None:
        fields["mm_proj_path"] = os.path.join(directory, projector)
    if (template := arguments["chat_template"]) is not None:
        fields["chat_template"] = _read_template(template, arguments.env)
    if arguments["lora"]:
        from leap_core.conversation.loading_options import LoraAdapter

        adapters = map(LoraAdapter.parse, arguments["lora"])
        fields["adapters"] = [{"path": os.path.join(directory, each.path), "scale": each.scale} for each in adapters]
    return fields


def _prompt_cache(arguments: Arguments) -> CacheOptions | None:
    """Where prompts are kept, and how many bytes of them; None where that was not asked for."""
    if not arguments["prompt_cache"]:
        return None
    from leap_core.conversation.options import CacheOptions

    size, directory = arguments["prompt_cache_size"], prompt_cache_directory(arguments.env)
    return CacheOptions.on_disk(directory) if size is None else CacheOptions.on_disk(directory, size)


def _read_template(value: str, env: Environment) -> str:
    from leap_core.inference.template.chat_template import NAMED_TEMPLATES

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


BUILTIN = "builtin"


def load_model(env: Environment, model: ModelChoice, *, slots: int = 1) -> ModelRunner:
    """Load the model that was named, else the configured default, else the built-in one."""
    reference = model_reference(env, model.name)
    from leap_core.conversation.options import ModelLoadingOptions

    options = ModelLoadingOptions(**{"slots": slots, **model.fields})
    with naming_the_default(env, model.name):
        return warm_or_load(env, reference, options, model)


def warm_or_load(env: Environment, reference: str, options: ModelLoadingOptions, model: ModelChoice) -> ModelRunner:
    """The model host's runner of this model if it holds it so and ``model`` allows that, else one in this process.

    Where llama.cpp's log is to be seen here, the host is left aside unless it is demanded.
    """
    from leap_core.opening import open_runner

    if model.verbose:
        from leap_core.inference.llama.library import set_verbose

        set_verbose(True)
    note_missing_gpu(env, options.n_gpu_layers, options.engine)
    if model.prompt_cache is not None:
        options = replace(options, cache_options=model.prompt_cache)
    began = time.monotonic()
    open_here = partial(
        open_runner,
        reference,
        options,
        host=host_use(model.host, quiet=model.verbose),
        variables=env.variables,
        cwd=env.cwd,
        directories=env.directories,
        on_warning=Output(env).warning,
        load=env.load_model,
    )
    runner = downloading_first(env, reference, open_here)
    note_endpoint(env, reference)
    _note_left_on_cpu(env, runner, options)
    from leap_core.conversation.wrapping import wrapped

    priority = env.variables.get(VARIABLE_OF_JOBS, "")
    return wrapped(
        runner,
        log=_log(env, model.command, time.monotonic() - began),
        priority=int(priority) if priority.removeprefix("-").isdecimal() else None,
        report=_report(env),
    )


def note_endpoint(env: Environment, reference: str) -> None:
    """Say at a terminal where prompts go, when that server is asked for the first time."""
    from leap_core.models.aliases_and_endpoints import find_endpoint

    endpoint = find_endpoint(reference, env.directories) if env.stderr_is_terminal else None
    if endpoint is None:
        return
    from leap_core.system.files import changing, replace_text

    noted = env.directories.data / "endpoints-noted"
    noted.parent.mkdir(parents=True, exist_ok=True)
    with changing(noted):
        hosts = noted.read_text("utf-8").splitlines() if noted.exists() else []
        if endpoint.host not in hosts:
            replace_text(noted, "\n".join([*hosts, endpoint.host]) + "\n")
            Output(env).note(f"prompts go to {endpoint.host} and are answered there; `offline = true` forbids that")


def host_use(demand: bool | None, *, quiet: bool = False) -> HostUse:
    """What ``--host`` and ``--no-host`` say; ``quiet`` leaves the host aside unless it is demanded."""
    from leap_core.opening import HostUse

    return HostUse.DEMAND if demand else HostUse.NEVER if quiet or demand is False else HostUse.USE


@contextmanager
def naming_the_default(env: Environment, name: str | None) -> Iterator[None]:
    """Say where the configured default is named, if no other model was named and it cannot be loaded."""
    try:
        yield
    except LeapModelLoadingError as error:
        if name is None and configured_model(env) is not None:
            variable = env.variables.get("LEAP_MODEL")
            where = "$LEAP_MODEL" if variable else f"default_model in {env.directories.config_file}"
            error.hint = "; ".join(filter(None, [error.hint, f"{where} names this model"]))
        raise


def model_reference(env: Environment, name: str | None) -> str:
    """The model that was named, else the configured default, else an installed one, else the built-in one."""
    if name == "":
        raise click.UsageError("-m needs a model's name or file")
    return name or default_model(env, None) or BUILTIN


def submit(
    env: Environment, output: Output, model: ModelChoice, background: Background, ask: Callable[..., str]
) -> ExitCode:
    """Queue what ``ask`` asks of the jobs' client, or where each run is to be the command that was typed, that; print
    the job's id."""
    if background.repeats_command(env):
        return background.submit(env, output, model_to_pin(env, model, background, output))
    with naming_the_default(env, model.name), open_jobs(env) as jobs:
        id = ask(jobs, **job_request(env, model, background))
    note_builtin(env, model.name, output)
    print_id(output, id)
    return ExitCode.DONE


def job_request(env: Environment, model: ModelChoice, background: Background) -> dict[str, Any]:
    """What every job of a model is asked with."""
    return {
        "model": model_reference(env, model.name),
        "loading": dict(model.fields),
        "host": model.job_may_use_host,
        "policy": background.policy,
        "cwd": env.cwd,
    }


def model_to_pin(env: Environment, model: ModelChoice, background: Background, output: Output) -> str | None:
    """The model that a command is given when it runs later, which is the one that would answer now; None where one was
    named. Raises what Registry.find raises, unless the model may come with jobs before."""
    from leap_core.models.resolving import Registry

    reference, registry = model_reference(env, model.name), Registry(env.variables, env.cwd)
    with naming_the_default(env, model.name):
        (registry.can_answer if background.comes_after_jobs else registry.find)(reference)
    note_builtin(env, model.name, output)
    return None if model.name else reference


def note_builtin(env: Environment, name: str | None, output: Output) -> None:
    """Say once that the built-in model answers where that was not asked for."""
    if name is None and configured_model(env) is None and not installed_models(env):
        output.note(builtin_note())


def builtin_note() -> str:
    """What to say where the built-in model answers because none was named and none is installed."""
    return "no model given, so the built-in demo model answers; `leap download LFM2.5-350M` gets a real one"


def default_model(env: Environment, named: str | None) -> str | None:
    """The configured model, else the only installed one; None where there is none, or where one was ``named``. Of
    several a person is asked which one answers; that a model was tried once decides nothing. Raises UsageError where
    nobody can be asked."""
    if named:
        return None
    configured = configured_model(env)
    if configured is not None:
        return configured
    models = installed_models(env)
    if len(models) < 2:
        return next(iter(models), None)
    listed = ", ".join(models[:6]) + (", …" if models[6:] else "")
    if not (env.stdin_is_terminal and env.stderr_is_terminal):
        raise click.UsageError(
            f"{len(models)} models are installed and none is the default: -m names one for this prompt, "
            f"`leap models default NAME` for all ({listed})"
        )
    if "model" not in env.chosen:
        env.chosen["model"] = _chosen(env, models)
    return env.chosen["model"]


def _chosen(env: Environment, models: list[str]) -> str:
    output = Output(env)
    for number, name in enumerate(models, 1):
        output.note(f"{number}) {name}")
    with suppress(EOFError):
        answer = env.read_typed_line(f"which model answers? [1-{len(models)}] ").strip()
        if answer in models or (answer.isdecimal() and 0 < int(answer) <= len(models)):
            name = answer if answer in models else models[int(answer) - 1]
            output.note(f"`leap models default {name}` makes it the answer to this from now on")
            return name
    raise click.UsageError("no model was chosen: -m names one")


def installed_models(env: Environment) -> list[str]:
    """The installed models that a prompt can be put to, the one used last first: base models, which have no chat
    template, and those that make vectors are left out."""
    from leap_core.models.store import Store

    models = [model for model in Store.of(env.directories).installed() if model.state == "ready"]
    models.sort(key=lambda model: model.used or 0.0, reverse=True)
    answering = _answering(env, models)
    return [model.name for model in models if answering.get(model.name)]


def check_chats(env: Environment, reference: str) -> None:
    """Raises UsageError for a model of this machine that no prompt can be put to, and what finding a model raises."""
    from leap_core.models.aliases_and_endpoints import Endpoint
    from leap_core.models.resolving import Registry

    if reference.lower() == BUILTIN:
        return
    model = Registry(env.variables, env.cwd).find(reference)
    obstacle = (
        "" if isinstance(model, Endpoint) or model.opener is not None else _obstacle(model.path, model.chat_template)
    )
    if obstacle:
        raise click.UsageError(f"{reference} cannot answer where no model is named: {obstacle}")


def _obstacle(path: Path, chat_template: str | None) -> str:
    """Why no prompt can be put to the model of this file; empty where it can. ``chat_template``: its manifest's."""
    from leap_core.inference.gguf.header import GGUFHeader
    from leap_core.models.model_files import header_or_error

    header = header_or_error(path)
    if not isinstance(header, GGUFHeader):
        return header.message
    if header.pooling is not None:
        return "it makes vectors, and no answers"
    if not (chat_template or header.chat_template):
        return "it has no chat template; leap generate --raw completes text with it"
    return ""


def _answering(env: Environment, models: Sequence[InstalledModel]) -> dict[str, bool]:
    """Whether a prompt can be put to each model, by name. A header takes up to 0.2 s to read, so what it says is kept
    for as long as the file is the same."""
    from leap_core.system.files import replace_text

    file = env.directories.cache / "chatting.json"
    kept: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        kept = dict(json.loads(file.read_text("utf-8")))
    found: dict[str, Any] = {}
    for model in models:
        if (path := model.path) is None:
            continue
        with suppress(OSError):
            status, template = path.stat(), model.manifest.chat_template if model.manifest else None
            version = [str(path), status.st_size, status.st_mtime_ns, status.st_ino, bool(template)]
            before = kept.get(model.name)
            if not (isinstance(before, list) and before[:-1] == version):
                before = [*version, not _obstacle(path, template)]
            found[model.name] = before
    if found != kept:
        with suppress(OSError, LeapError):
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_text(file, json.dumps(found))
    return {name: bool(version[-1]) for name, version in found.items()}


def note_default_gone(env: Environment, names: Collection[str], output: Output) -> None:
    """Say so where one of these names, which are no longer defined, is the configured default."""
    configured = configured_model(env)
    if configured is not None and configured.lower() in {name.lower() for name in names}:
        variable = "$LEAP_MODEL" if env.variables.get("LEAP_MODEL") else "default_model"
        output.warning(
            f"{configured} was the model that answers where none is named ({variable}); "
            "`leap models default NAME` names another, `leap config unset default_model` none"
        )


def configured_model(env: Environment) -> str | None:
    """``$LEAP_MODEL``, else ``default_model`` of the configuration file, else None."""
    from leap_core.system.configuration import read_configuration

    named = env.variables.get("LEAP_MODEL")
    return named or read_configuration(env.directories.config_file).default_model


def configured_keep_alive(env: Environment) -> float | None:
    """Seconds without use after which config.toml has models go, 0 never; None where it does not say."""
    from leap_core.system.configuration import read_configuration

    text = read_configuration(env.directories.config_file).keep_alive
    try:
        return None if text is None else seconds_of(text)
    except ValueError as error:
        raise click.UsageError(f"{env.directories.config_file}: keep_alive: {error}") from None


def _report(env: Environment) -> Report | None:
    """Shows at a terminal how far a long prompt is read."""
    output = Output(env)
    if not output.shows_progress:
        return None
    from ..framework.prompt_line import PromptLine

    return PromptLine(output)


def _log(env: Environment, command: str, loading: float) -> Wrap | None:
    """Has what is asked of a runner in the log, where the user wants that."""
    from leap_core.system.configuration import log_is_on

    if not log_is_on(env.directories, env.variables):
        return None
    from leap_core.conversation.logged_runner import logged

    warn = Output(env).warning
    return lambda runner: logged(runner, command, env.directories, env.variables, warn, loading=loading)

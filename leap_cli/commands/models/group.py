"""``leap models``: what is on this machine, and looking after it."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.system.features import own_parts

from ...completion.value_types import ModelName
from ...exit_codes import ExitCode
from ...framework.arguments import reading
from ...framework.click_classes import format_option, leap_group
from ...framework.environment import Environment
from ...framework.error_boundary import outcome_of, outcome_or_warning
from ...framework.options import age, in_bytes
from ...framework.output import Format, Output
from ...setup.machine import CONTEXT, SLOTS, free_on_gpus, layers_on_gpu
from .bench import bench
from .cache import cache
from .fit import fit, needs_of, search
from .maintenance import add_endpoint, alias, check_models, endpoints, gc, import_file, remove, store_of, verify

if TYPE_CHECKING:
    from leap_core.inference.gguf.header import GGUFHeader
    from leap_core.models.catalogue import CatalogueEntry
    from leap_core.models.resolving import LocalModel
    from leap_core.models.store import InstalledModel

FORMAT = format_option("names")


@leap_group("manifest", short_help="Write and check manifests.")
def manifest() -> None:
    """Write and check manifests of the LEAP SDK: the files of a model and its sampling parameters."""


@manifest.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@FORMAT
def check(env: Environment, /, file: Path, format: str) -> ExitCode:
    """Report every error in the manifest FILE, with suggestions for misspelled keys."""
    from leap_core.models.manifest import problems_of

    output = Output(env, format)
    problems = problems_of(_read(env, file), str(file))
    records = [
        {"key": problem.path or None, "level": "error" if problem.is_error else "warning", "message": problem.message}
        for problem in problems
    ]
    output.records(records, ["level", "key", "message"], name="key")
    errors = sum(problem.is_error for problem in problems)
    if errors:
        output.error(f"{file} has {errors} error{'s' if errors > 1 else ''}")
        return ExitCode.USAGE
    if output.format is Format.TEXT:
        output.note(f"{file} is a sound manifest")
    return ExitCode.DONE


@manifest.command("create")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path),
    help="Write the manifest to this file instead of standard output.",
)
@click.option("--temperature", type=float, help="Recommended temperature in the manifest.")
@click.option("--top-p", type=float, help="Recommended top-p in the manifest.")
@click.option("--min-p", type=float, help="Recommended min-p in the manifest.")
@click.option("--top-k", type=int, help="Recommended top-k in the manifest.")
@click.option("--repetition-penalty", type=float, help="Recommended repetition penalty in the manifest.")
@click.option("--chat-template", type=click.Path(path_type=Path), help="Jinja file to record as the chat template.")
@click.option("--threads", type=click.IntRange(1), help="Recommended number of CPU threads.")
def create(
    env: Environment,
    /,
    model: Path,
    target: Path | None,
    chat_template: Path | None,
    threads: int | None,
    **sampling: Any,
) -> None:
    """Write a manifest for the GGUF file MODEL and its companion files."""
    from leap_core.conversation.options import SamplingDefaults
    from leap_core.models.model_files import create_manifest

    template = None if chat_template is None else _read(env, chat_template).decode("utf-8", "replace")
    made = create_manifest(
        env.cwd / os.path.expanduser(model),
        None if target is None else env.cwd / os.path.expanduser(target),
        sampling=SamplingDefaults(**sampling),
        chat_template=template,
        threads=threads,
        variables=env.variables,
    )
    Output(env).text(made.dumps() if target is None else f"{target}\n")


def _read(env: Environment, file: Path) -> bytes:
    with reading(str(file)):
        return (env.cwd / os.path.expanduser(file)).read_bytes()


@leap_group("models")
def command() -> None:
    """The installed models: one directory each, with the files under their own names and a manifest."""


@command.command("list", short_help="List the installed models.")
@click.option(
    "--sort",
    type=click.Choice(["name", "size", "used"]),
    default="name",
    show_default=True,
    help="Sort by name, by size (largest first), or by last use.",
)
@click.option(
    "--all", "everything", is_flag=True, help="List all models, also those of other programs, with their owner."
)
@FORMAT
def list_models(env: Environment, /, sort: str, everything: bool, format: str) -> None:
    """List the installed models, unfinished downloads included. CALLED has the aliases of each, and default for the
    default model; USED is when one was last loaded, or else installed.

    With --all, the models of ollama, LM Studio, llama.cpp, Hugging Face, Jan, GPT4All, Docker Model Runner and RamaLama
    follow: each is used by its name, and stays where it is.
    """
    output = Output(env, format)
    models = store_of(env).installed()
    if sort != "name":
        models.sort(key=lambda model: model.size_bytes if sort == "size" else model.used or 0.0, reverse=True)
    called = _called(env)
    records = [_summary(model) | {"called": called.get(model.name) or None} for model in models]
    if everything:
        records = [{**each, "owner": "leap"} for each in records] + _of_others(env, sort)
    if output.format is Format.TEXT:
        now = time.time()
        records = [each | {"used": each["used"] and f"{age(now - each['used'])} ago"} for each in records]
        records = [each | {"called": each["called"] and ", ".join(each["called"])} for each in records]
    columns = ["name", "called", "size", "quantization", "state", "used", "kind", "context", "architecture", "in_use"]
    columns = ["name", "owner", "size", "quantization", "state", "path"] if everything else columns
    none = "no model is installed; `leap models catalogue` lists those that leap knows by name"
    output.records(records, columns, name="name", none=none)


@command.command("default", short_help="Show or set the default model.")
@click.argument("model", required=False, type=ModelName())
def default(env: Environment, /, model: str | None) -> None:
    """Print the default model, which answers if a command names none; with MODEL, set it."""
    output = Output(env)
    if model is None:
        from ...options.loading import check_chats, model_reference

        reference = model_reference(env, None)
        output.text(f"{reference}\n")
        outcome_or_warning(output, lambda: check_chats(env, reference))
        return
    from ...config.settings import set_value
    from ...options.loading import check_chats

    check_chats(env, model)
    reference = str((env.cwd / model).absolute()) if os.path.exists(env.cwd / model) else model
    set_value(env.directories.config_file, "default_model", reference)
    output.note(f"{reference} answers from now on where no model is named")


@command.command("catalogue", short_help="List the models that leap knows by name.")
@click.argument("words", metavar="[WORD]...", nargs=-1)
@click.option("--installed", "only_installed", is_flag=True, help="List only models that are installed.")
@FORMAT
def catalogue(env: Environment, /, words: tuple[str, ...], only_installed: bool, format: str) -> None:
    """List the models that leap knows by name, your own from catalogue.json included; with WORDs, those that contain
    all of them in name, kind or description.

    SIZE is the approximate size of the file in the default quantization.
    """
    from leap_core.models.catalogue import Catalogue

    installed = [model for model in store_of(env).installed() if model.state == "ready"]
    records, known = [], Catalogue.load(env.directories.config)
    for entry in (*known, *known.families):
        own = [model.name for model in installed if model.model.lower() == entry.name.lower()]
        described = f"{entry.name} {' '.join(entry.also)} {entry.kind} {entry.about}".lower()
        if (only_installed and not own) or not all(word.lower() in described for word in words):
            continue
        size = entry.bytes_in()
        record = entry.to_json() | {"installed": own}
        if format == Format.TEXT.value:
            record |= {
                "size": f"~{in_bytes(size)}" if size else None,
                "installed": ", ".join(name[len(entry.name) :].lstrip("-") or name for name in own) or None,
                "name": entry.short if entry in known.families else entry.name,
                "about": "; ".join(remark for remark in (entry.about, *entry.remarks, _license(entry)) if remark),
            }
        records.append(record)
    columns = ["name", "kind", "size", "installed", "about"]
    Output(env, format).records(records, columns, name="name", none="no model of the catalogue is like that")


@command.command("info", short_help="Show details of a model.")
@click.argument("model", type=ModelName())
@click.option("--quant", metavar="QUANT", help="Quantization, such as Q4_K_M; the same as MODEL:QUANT.")
@FORMAT
def info(env: Environment, /, model: str, quant: str | None, format: str) -> None:
    """Show the details of MODEL from its file's header; any reference to an installed model works."""
    from leap_core.inference.gguf.header import GGUFHeader
    from leap_core.models.importing import files_of
    from leap_core.models.manifest import SAMPLING_KEYS
    from leap_core.models.model_files import header_or_error
    from leap_core.models.resolving import resolve_local

    local = resolve_local(model, quant, variables=env.variables, cwd=env.cwd)
    installed = store_of(env).at(local.path.parent) if local.path.parent.parent == env.directories.models else None
    output = Output(env, format)
    header = header_or_error(local.path)
    if not isinstance(header, GGUFHeader):
        if installed is None or installed.manifest is None:
            raise header
        output.warning(header.message)  # it is what was fetched, so its manifest describes it
        header = GGUFHeader(local.path, 0, local.path.stat().st_size, {}, ())
    sampling = {key: value for key in SAMPLING_KEYS if (value := getattr(local.sampling, key)) is not None}
    files = [str(path) for _, path in files_of(local)]
    record: dict[str, Any] = {"name": local.model_id, "kind": _kind(local.kind, header), **_of_header(header)}
    record |= {
        "parameters": header.parameter_count,
        "vocabulary": header.vocabulary_size,
        "tokenizer": header.tokenizer_pre,
        "chat_template": bool(local.chat_template or header.chat_template),
        "bytes": sum(Path(file).stat().st_size for file in files),
        "path": str(local.path),
        "files": files,
        "manifest": str(local.manifest_path) if local.manifest_path else None,
        "runs": _runs(header),
        "source": installed.source if installed else None,
        "owner": local.owner or "leap",
        "note": local.note,
        "in_use": installed.in_use if installed else False,
        "adapter": _adapter(header),
        "sampling": sampling,
        "parser": local.parser_name,
        "calls": _calls(local.chat_template or header.chat_template, local.parser_name, header),
        "takes": _media_taken(local),
        "gives": _given(header),
        "same_answer": "on a CPU" if header.is_alike else "on a CPU with --deterministic",
        **_needs(header),
    }
    if output.format is Format.TEXT:
        row = record | {
            "parameters": f"{header.parameter_count:,}",
            "bytes": f"{record['bytes']:,} ({in_bytes(record['bytes'])})",
            "sampling": [f"{key} {value}" for key, value in sampling.items()] or None,
            "memory": record["memory"] and in_bytes(record["memory"]),
            "gpu": layers_on_gpu(record["gpu_layers"], record["gpu_memory"]),
        }
        del row["gpu_layers"], row["gpu_memory"]
        output.record(row, name="name")
    else:
        output.record(record, name="name")


@command.command("path", short_help="Print the path of a model's file.")
@click.argument("model", type=ModelName())
@click.option("--quant", metavar="QUANT", help="Quantization, such as Q4_K_M; the same as MODEL:QUANT.")
def path(env: Environment, /, model: str, quant: str | None) -> None:
    """Print the path of MODEL's file; exit code 3 if it is not installed."""
    from leap_core.models.resolving import resolve_local

    local = resolve_local(model, quant, variables=env.variables, cwd=env.cwd)
    Output(env).text(f"{local.path}\n")


FEATURES = {name: f"leap_cli.commands.models.making:{name}" for name in ("convert", "quantize", "merge")}
for each in (verify, check_models, remove, gc, import_file, *own_parts(FEATURES).values()):
    command.add_command(each)
for each in (manifest, alias, fit, search, add_endpoint, endpoints, bench, cache):
    command.add_command(each)


def _license(entry: CatalogueEntry) -> str:
    return f"license {entry.license}" if entry.license else ""


def _calls(template: str | None, parser: str, header: GGUFHeader) -> str | None:
    """The format of the model's calls; None where its template takes no functions."""
    from leap_core.conversation.calls import LFMFunctionCallParser
    from leap_core.inference.template.learning import name_of_format

    own = [LFMFunctionCallParser().start_marker] if (header.architecture or "").startswith("lfm2") else []
    return parser if parser != "auto" else name_of_format(template or "", own)


def _needs(header: GGUFHeader) -> dict[str, int | None]:
    """What it takes of the machine's memory and on its GPUs, with the context and answers at once of `models fit`."""
    if not header.tensors:
        return {"memory": None, "gpu_layers": 0, "gpu_memory": 0}
    context = min(header.context_length or CONTEXT, CONTEXT)
    takes, on_gpu = needs_of(header, free_on_gpus(), context, SLOTS)
    return {"memory": takes.needed, "gpu_layers": on_gpu.layers, "gpu_memory": on_gpu.total}


def _runs(header: GGUFHeader) -> str:
    """Whether this llama.cpp knows the model's architecture, and if not, which one does."""
    from leap_core.models.model_files import architecture_error

    error = architecture_error(header)
    return "yes" if error is None else f"no: {error.hint or error.message}"


def _called(env: Environment) -> dict[str, list[str]]:
    """The aliases of installed models, and ``default``, by the model's name."""
    from leap_core.models.aliases_and_endpoints import read_aliases
    from leap_core.models.resolving import Registry

    from ...options.loading import configured_model

    named = read_aliases(env.directories.config_file)
    default = outcome_of(partial(configured_model, env))
    if isinstance(default, str):
        named = {"default": default, **named}
    called: dict[str, list[str]] = {}
    models = Registry(env.variables, env.cwd)
    for name, reference in named.items():
        local = outcome_of(partial(models.get, reference))
        path = getattr(local, "path", None)
        if path is not None and path.parent.parent == env.directories.models:
            called.setdefault(path.parent.name, []).append(name)
    return called


def _of_others(env: Environment, sort: str) -> list[dict[str, Any]]:
    """The models of other programs, without what only the header of a file says."""
    from leap_core.models.resolving import Registry

    models = [(model, model.size) for model in Registry(env.variables, env.cwd).others.models]
    models.sort(key=lambda each: -each[1] if sort == "size" else 0)
    unknown = dict.fromkeys(("called", "used", "kind", "context", "architecture", "in_use"))
    return [
        {
            "name": model.name,
            "owner": model.program,
            "size": in_bytes(size),
            "bytes": size,
            "quantization": model.quantization or None,
            "state": "ready",
            "path": str(model.path),
            **unknown,
        }
        for model, size in models
    ]


def _summary(model: InstalledModel) -> dict[str, Any]:
    from leap_core.inference.gguf.header import GGUFHeader
    from leap_core.models.model_files import header_or_error

    state, kind = model.state, model.manifest.kind if model.manifest else "text"
    described: dict[str, Any] = {"architecture": None, "quantization": model.quantization or None, "context": None}
    if state == "ready" and model.path is not None:
        header = header_or_error(model.path)
        if isinstance(header, GGUFHeader):
            described, kind = _of_header(header), _kind(kind, header)
        else:
            state = "unreadable"
    return {
        "name": model.name,
        "model": model.model,
        "kind": kind,
        **described,
        "size": in_bytes(model.size_bytes),
        "bytes": model.size_bytes,
        "state": state,
        "used": model.used,
        "in_use": model.in_use,
        "source": model.source,
        "path": str(model.path) if model.path else None,
    }


def _kind(kind: str, header: GGUFHeader) -> str:
    """What a model is for: what its manifest says, but embedding where its file was made for that."""
    return kind if header.pooling is None else "embedding"


def _given(header: GGUFHeader) -> str:
    """What comes of what a model takes."""
    given = {None: "text", "none": "a vector for each token (late interaction)", "rank": "scores of pairs of texts"}
    return given.get(header.pooling, f"a vector for each text ({header.pooling})")


def _adapter(header: GGUFHeader) -> dict[str, Any] | None:
    """Base, rank and alpha of a LoRA adapter; None for a model."""
    if header.metadata.get("general.type") != "adapter":
        return None
    ranks = sorted({tensor.shape[0] for tensor in header.tensors if tensor.name.endswith(".lora_b")})
    rank = ranks[0] if len(ranks) == 1 else ranks
    base = header.metadata.get("general.base_model.0.name")
    return {"base": base, "rank": rank, "alpha": header.metadata.get("adapter.lora.alpha")}


def _of_header(header: GGUFHeader) -> dict[str, Any]:
    return {
        "architecture": header.architecture or None,
        "quantization": header.quantization if header.tensors else None,
        "context": header.context_length,
    }


def _media_taken(model: LocalModel) -> list[str]:
    """What can be given to a model beside text, by its projector's header."""
    if model.mm_proj_path is None:
        return ["text"]
    from leap_core.conversation.media.audio import MOST_SECONDS
    from leap_core.errors import LeapModelLoadingError
    from leap_core.models.model_files import projector_or_error

    projector = projector_or_error(model.mm_proj_path)
    if isinstance(projector, LeapModelLoadingError):
        return ["text", f"nothing else: {projector.message}"]
    seconds = min(projector.longest_seconds, MOST_SECONDS)
    sound = [f"sound of up to {seconds:g} s"] if projector.hears else []
    return ["text", *(["pictures"] if projector.sees else []), *sound]

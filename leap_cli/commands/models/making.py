"""``leap models convert`` and ``quantize``: models made from checkpoints and from other models."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leap_core.system.dataclass import dataclass

from ...completion.value_types import ModelName
from ...exit_codes import ExitCode
from ...framework.click_classes import format_option, leap_command
from ...framework.environment import Environment
from ...framework.interrupts import stopping_on_interrupt
from ...framework.option_groups import Arguments, OptionGroup
from ...framework.options import in_bytes, option
from ...framework.output import Format, Output
from ...options.background import BACKGROUND, Background, open_jobs, print_id

if TYPE_CHECKING:
    from leap_core.inference.gguf.quantize_request import QuantizeRequest
    from leap_core.models.conversion.quantizing import Making, Quantized


def _quantizing(arguments: Arguments) -> list[QuantizeRequest]:
    """One request for each type."""
    from leap_core.inference.gguf.quantize_request import QuantizeRequest

    imatrix = arguments["imatrix"]
    first = QuantizeRequest(
        "F16",
        imatrix=(arguments.env.cwd / imatrix).absolute() if imatrix else None,
        tensor_types=tuple(_pair(each) for each in arguments["tensor_type"]),
        output_type=arguments["output_tensor_type"],
        embedding_type=arguments["token_embedding_type"],
        threads=arguments["threads"] or 0,
        **arguments.of("requantize", "pure", "keep_split"),
    )
    names = [name.strip() for each in arguments["to"] for name in each.split(",")]
    return [replace(first, to=name) for name in dict.fromkeys(names)]


def _pair(text: str) -> tuple[str, str]:
    pattern, separator, kind = text.rpartition("=")
    if not separator or not pattern:
        raise click.UsageError(f"--option tensor-type takes PATTERN=TYPE, such as attn_v=Q8_0, not {text!r}")
    return pattern, kind


QUANTIZING = OptionGroup(
    "requests",
    "Quantizing",
    (
        option(
            "--to",
            multiple=True,
            required=True,
            metavar="TYPE[,TYPE...]",
            help="Target types, such as Q4_K_M,Q8_0: all types of llama.cpp, F16, BF16 and F32.",
        ),
        option("--imatrix", type=click.Path(path_type=Path), help="Importance matrix: a file of llama-imatrix."),
        option(
            "--tensor-type",
            multiple=True,
            metavar="PATTERN=TYPE",
            help="Type for tensors whose name matches a regular expression, such as attn_v=Q8_0.",
        ),
        option("--output-tensor-type", metavar="TYPE", help="Type of the output matrix."),
        option("--token-embedding-type", metavar="TYPE", help="Type of the token embeddings."),
        option("--pure", is_flag=True, help="Use one type for all matrices instead of llama.cpp's mixture."),
        option("--keep-split", is_flag=True, help="Keep the number of parts of the source."),
        option(
            "--allow-requantize", "requantize", is_flag=True, help="Allow a quantized source, which loses more quality."
        ),
        option("--threads", type=click.IntRange(1, 512), help="Number of CPU threads; all processors by default."),
    ),
    _quantizing,
)


@dataclass(frozen=True)
class Destination:
    """Where results go: under ``name`` in the store, or to ``output``."""

    name: str | None
    output: Path | None
    replace: bool


def _destination(arguments: Arguments) -> Destination:
    name, output = arguments["name"], arguments["output"]
    if output is not None and output.suffix.lower() != ".gguf" and output.parent == Path():
        if name is not None:
            raise click.UsageError("-o NAME is the same as --name; a file is called FILE.gguf")
        name, output = str(output), None
    return Destination(name, arguments.env.cwd / output if output else None, arguments["replace"])


DESTINATION = OptionGroup(
    "destination",
    "Result",
    (
        option("--name", help="Name of the result, NAME:TYPE; the model's own name by default."),
        option(
            "-o",
            "--output",
            type=click.Path(path_type=Path),
            metavar="FILE.gguf|NAME",
            help="Write one GGUF file outside the store; without .gguf, the same as --name.",
        ),
        option("--replace", is_flag=True, help="Replace an installed model of that name, or the file."),
    ),
    _destination,
)


@leap_command("quantize")
@click.argument("model", type=ModelName())
@QUANTIZING
@DESTINATION
@option(
    "--measure",
    "text",
    type=click.Path(path_type=Path),
    heading="Result",
    help="Compare source and results on this text: perplexity, KL divergence and top-1 agreement.",
)
@format_option("names")
@BACKGROUND
def quantize(
    env: Environment,
    /,
    model: str,
    requests: list[QuantizeRequest],
    destination: Destination,
    text: Path | None,
    format: str,
    background: Background,
) -> ExitCode:
    """Quantize MODEL to one or more types, and install the results with their companion files.

    Impossible requests are refused before any work: a file that is quantized already, a name in use, a type that needs
    an importance matrix. Disk space is checked before each type. Ctrl-C leaves no partial files. A projector
    (mmproj-*.gguf) needs -o.
    """
    from leap_core.models.conversion.conversion_child import Stopped
    from leap_core.models.conversion.quantizing import Making, QuantizeWork

    output = Output(env, format)
    if destination.output is not None and len(requests) > 1:
        raise click.UsageError("-o takes one type; leave it out for several")
    text = None if text is None else env.cwd / text
    work = QuantizeWork(model, tuple(requests), env.cwd, **vars(destination), text=text)
    if background.repeats_command(env):
        return background.submit(env, output)
    work.check(env.variables)
    if background:
        label = f"{Path(model).name} -> {', '.join(each.to for each in requests)}"
        with open_jobs(env) as jobs:
            arguments = work.anywhere(env.variables).to_json()
            print_id(output, jobs.function("quantize", arguments, label=label, policy=background.policy))
        return ExitCode.DONE
    stop = threading.Event()
    count = 0

    def on_made(made: Quantized) -> None:
        nonlocal count
        count += 1
        _note(output, made)

    def on_step(what: str, unit: str, done: int, total: int) -> None:
        output.progress(f"{what}: {done} of {total} {unit}")

    with stopping_on_interrupt(stop.set):
        try:
            records = work.run(Making(stop=stop, variables=env.variables), on_step, on_made)
        except Stopped:
            output.note(f"stopped; {count} of {len(requests)} are made, and nothing half is left")
            return ExitCode.INTERRUPTED
    columns = ["name", "quantization", "before", "after"]
    columns += ["perplexity", "source_perplexity", "kl_divergence", "top1_agreement"] if text is not None else []
    if output.format is Format.TEXT:
        records = [each | {key: in_bytes(each[key]) for key in ("before", "after")} for each in records]
    output.records(records, columns, name="name")
    return ExitCode.DONE


def _note(output: Output, made: Quantized) -> None:
    share = made.after / made.before if made.before else 0.0
    output.note(f"{made.name}: {in_bytes(made.before)} -> {in_bytes(made.after)} ({share:.0%})")
    if made.fallbacks:
        tensors = "1 tensor has" if made.fallbacks == 1 else f"{made.fallbacks} tensors have"
        output.note(f"{tensors} another type, since the rows are no multiple of its blocks")
    if made.problem:
        output.warning(made.problem)


@leap_command("convert")
@click.argument("directory", type=click.Path(path_type=Path))
@option(
    "--to",
    default="BF16",
    show_default=True,
    metavar="TYPE[,TYPE...]",
    help="Types to create: F32, F16, BF16 and Q8_0 directly, others by quantization.",
)
@option("--base", metavar="MODEL", help="Convert an adapter for this installed model.")
@DESTINATION
def convert(env: Environment, /, directory: Path, to: str, base: str | None, destination: Destination) -> ExitCode:
    """Convert a Hugging Face DIRECTORY (config.json, *.safetensors, tokenizer.json) to GGUF, without torch.

    LFM2 and LFM2.5 (dense, MoE, VL with its projector, embedding, ColBERT), plain Llama and BERT embedding models are
    supported. The result is NAME:TYPE in the store, or with -o FILE.gguf a file, with a projector next to it. Ctrl-C
    leaves no partial files.

    A PEFT directory (adapter_config.json) becomes a LoRA adapter for the model of --base: a file next to it, or the one
    of -o.
    """
    from leap_core.models.conversion.adapters import is_adapter
    from leap_core.models.conversion.conversion_child import Stopped
    from leap_core.models.conversion.quantizing import Making

    output = Output(env)
    place = env.cwd / os.path.expanduser(directory)
    if is_adapter(place):
        return _convert_adapter(env, place, base, destination, output)
    if base is not None:
        raise click.UsageError("--base is for adapters")
    types = [each for each in to.split(",") if each]
    if len(types) > 1 and destination.output is not None:
        raise click.UsageError("-o names one file: give one type, or --name for a model of several in the store")
    stop = threading.Event()
    making = Making(lambda done, total, name: output.progress(f"tensor {done} of {total}, {name}"), stop, env.variables)
    with stopping_on_interrupt(stop.set):
        try:
            for each in types or [to]:
                _convert(env, place, each, destination, making, output)
        except Stopped:
            output.note("stopped; nothing half is left")
            return ExitCode.INTERRUPTED
    return ExitCode.DONE


def _convert(
    env: Environment, directory: Path, to: str, destination: Destination, making: Making, output: Output
) -> None:
    from leap_core.models.conversion.converting import convert_into_store, convert_to_files
    from leap_core.models.store import Store

    if destination.output is not None:
        for path in convert_to_files(directory, destination.output, to, making, replace=destination.replace):
            output.text(f"{path}\n")
        return
    store = Store.of(env.directories)
    made = convert_into_store(directory, destination.name, to, store, making, replace=destination.replace)
    output.text(f"{made.path}\n")
    output.note(f"{made.name}: {in_bytes(made.before)} of checkpoint -> {in_bytes(made.after)}")


def _convert_adapter(
    env: Environment, directory: Path, base: str | None, destination: Destination, output: Output
) -> ExitCode:
    from leap_core.models.conversion.adapters import convert_adapter
    from leap_core.models.conversion.quantizing import check_target
    from leap_core.models.resolving import resolve_local

    if base is None:
        raise click.UsageError(f"{directory.name} is an adapter: name its model with --base")
    model = resolve_local(base, variables=env.variables, cwd=env.cwd)
    name = destination.name or directory.resolve().name
    target = destination.output or directory.resolve().parent / f"{name}-lora.gguf"
    check_target(target, (model.path, *directory.iterdir()), replace=destination.replace)
    convert_adapter(directory, model.path, target)
    output.text(f"{target}\n")
    output.note(f"`leap -m {base} --lora {target.name}` answers with it")
    return ExitCode.DONE


@leap_command("merge")
@click.argument("model", type=ModelName())
@option("--lora", multiple=True, required=True, metavar="FILE[=SCALE]", help="LoRA adapter to merge, with its scale.")
@DESTINATION
def merge(env: Environment, /, model: str, lora: tuple[str, ...], destination: Destination) -> ExitCode:
    """Merge LoRA adapters into MODEL: the result, NAME:F16, needs no --lora."""
    from leap_core.models.conversion import adapters as merging
    from leap_core.models.conversion.conversion_child import Stopped
    from leap_core.models.conversion.quantizing import Making, check_target, own_name
    from leap_core.models.resolving import resolve_local
    from leap_core.models.store import Store

    output, stop = Output(env), threading.Event()
    local = resolve_local(model, variables=env.variables, cwd=env.cwd)
    adapters = [_scaled(env, each) for each in lora]
    making = Making(lambda done, total, name: output.progress(f"tensor {done} of {total}, {name}"), stop, env.variables)
    if destination.name is not None and destination.output is not None:
        raise click.UsageError("-o FILE.gguf and --name are two places: give one of them")
    if destination.output is not None:
        sources = (local.path, *(path for path, _ in adapters))
        check_target(destination.output, sources, replace=destination.replace)
    with stopping_on_interrupt(stop.set):
        try:
            if destination.output is not None:
                merging.merge(local.path, adapters, destination.output, making)
                output.text(f"{destination.output}\n")
                return ExitCode.DONE
            store = Store.of(env.directories)
            name = destination.name or own_name(local, store)
            replace = destination.replace
            made = merging.merge_into_store(local, name, adapters, store, making, replace=replace)
        except Stopped:
            output.note("stopped; nothing half is left")
            return ExitCode.INTERRUPTED
    output.text(f"{made.path}\n")
    return ExitCode.DONE


def _scaled(env: Environment, text: str) -> tuple[Path, float]:
    file, separator, scale = text.rpartition("=")
    try:
        return env.cwd / os.path.expanduser(file if separator else text), float(scale) if separator else 1.0
    except ValueError:
        raise click.UsageError(f"--lora takes FILE or FILE=SCALE, not {text!r}") from None

"""``leap models convert``: a checkpoint as training leaves it, made a model."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...completion.value_types import ModelName
from ...exit_codes import ExitCode
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.interrupts import stopping_on_interrupt
from ...framework.options import option
from ...framework.output import Output
from ...framework.sizes import in_bytes
from .quantize import DESTINATION, Destination

if TYPE_CHECKING:
    from leap_core.conversion.quantizing import Making


@leap_command("convert")
@click.argument("directory", type=click.Path(path_type=Path))
@option(
    "--to",
    default="BF16",
    show_default=True,
    metavar="TYPE",
    help="Make this type: F32, F16, BF16 and Q8_0 directly, any other by quantizing afterwards.",
)
@option("--base", metavar="MODEL", help="Convert an adapter for this model of this machine.")
@DESTINATION
@click.pass_obj
def convert(env: Environment, /, directory: Path, to: str, base: str | None, destination: Destination) -> ExitCode:
    """Make a model of a Hugging Face DIRECTORY (config.json, *.safetensors, tokenizer.json), without torch.

    LFM2 and LFM2.5 (dense, MoE, VL with its projector, embedding, ColBERT) and the plain Llama shape are converted. The
    result is NAME:TYPE in the store, or with -o FILE.gguf a file, a projector beside it. Ctrl-C leaves nothing behind.

    A directory of PEFT's (adapter_config.json) becomes a LoRA adapter for the model that --base names: a file
    beside it, or the one of -o.
    """
    from leap_core.conversion.adapters import is_adapter
    from leap_core.conversion.child import Stopped
    from leap_core.conversion.quantizing import Making

    output = Output(env)
    place = env.cwd / os.path.expanduser(directory)
    if is_adapter(place):
        return _convert_adapter(env, place, base, destination, output)
    if base is not None:
        raise click.UsageError("--base is for adapters")
    stop = threading.Event()
    making = Making(lambda done, total, name: output.progress(f"tensor {done} of {total}, {name}"), stop, env.variables)
    with stopping_on_interrupt(stop.set):
        try:
            _convert(env, place, to, destination, making, output)
        except Stopped:
            output.note("stopped; nothing half is left")
            return ExitCode.INTERRUPTED
    return ExitCode.DONE


def _convert(
    env: Environment, directory: Path, to: str, destination: Destination, making: Making, output: Output
) -> None:
    from leap_core.conversion.storing import convert_into_store, convert_to_files
    from leap_core.models.installed.model_store import Store

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
    from leap_core.conversion.adapters import convert_adapter
    from leap_core.conversion.quantizing import check_target
    from leap_core.models.references.resolving import resolve_local

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
@option("--lora", multiple=True, required=True, metavar="FILE[=SCALE]", help="Fold in this LoRA adapter, so strongly.")
@DESTINATION
@click.pass_obj
def merge(env: Environment, /, model: str, lora: tuple[str, ...], destination: Destination) -> ExitCode:
    """Fold LoRA adapters into MODEL: the result, NAME:F16, answers like both and needs no --lora."""
    from leap_core.conversion import merging
    from leap_core.conversion.child import Stopped
    from leap_core.conversion.quantizing import Making, check_target
    from leap_core.models.installed.model_store import Store
    from leap_core.models.references.resolving import resolve_local

    output, stop = Output(env), threading.Event()
    local = resolve_local(model, variables=env.variables, cwd=env.cwd)
    adapters = [_scaled(env, each) for each in lora]
    making = Making(lambda done, total, name: output.progress(f"tensor {done} of {total}, {name}"), stop, env.variables)
    if (destination.name is None) == (destination.output is None):
        raise click.UsageError("name the result with -o: NAME, or FILE.gguf for a file")
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
            name, replace = str(destination.name), destination.replace
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

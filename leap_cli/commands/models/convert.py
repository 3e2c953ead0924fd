"""``leap models convert``: a checkpoint as training leaves it, made a model."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

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
@DESTINATION
@click.pass_obj
def convert(env: Environment, /, directory: Path, to: str, destination: Destination) -> ExitCode:
    """Make a model of a Hugging Face DIRECTORY (config.json, *.safetensors, tokenizer.json), without torch.

    LFM2 and LFM2.5 (dense, MoE, VL with its projector, embedding, ColBERT) and the plain Llama shape are converted. The
    result is NAME:TYPE in the store, or one file with -o. Ctrl-C leaves nothing behind.
    """
    from leap_core.conversion.child import Stopped
    from leap_core.conversion.quantizing import Making

    output = Output(env)
    stop = threading.Event()
    making = Making(lambda done, total, name: output.progress(f"tensor {done} of {total}, {name}"), stop, env.variables)
    with stopping_on_interrupt(stop.set):
        try:
            _convert(env, env.cwd / os.path.expanduser(directory), to, destination, making, output)
        except Stopped:
            output.note("stopped; nothing half is left")
            return ExitCode.INTERRUPTED
    return ExitCode.DONE


def _convert(
    env: Environment, directory: Path, to: str, destination: Destination, making: Making, output: Output
) -> None:
    from leap_core.conversion.storing import convert_into_store, convert_to_file
    from leap_core.models.installed.model_store import Store

    if destination.output is not None:
        convert_to_file(directory, destination.output, to, making)
        output.text(f"{destination.output}\n")
        return
    store = Store.of(env.directories)
    made = convert_into_store(directory, destination.name, to, store, making, replace=destination.replace)
    output.text(f"{made.path}\n")
    output.note(f"{made.name}: {in_bytes(made.before)} of checkpoint -> {in_bytes(made.after)}")

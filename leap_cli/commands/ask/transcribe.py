"""``leap transcribe``: speech to text, of any length."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.system.dataclass import dataclass

from ...exit_codes import ExitCode
from ...framework.arguments import FileName
from ...framework.click_classes import format_choice, leap_command
from ...framework.environment import Environment
from ...framework.options import Duration, option
from ...framework.output import Output
from ...input.files import STDIN, read_bytes, source_name
from ...input.prompt import read_system
from ...options.background import BACKGROUND, Background, open_jobs, print_id
from ...options.loading import MODEL, ModelChoice, job_request, load_model, model_to_pin, naming_the_default

if TYPE_CHECKING:
    from leap_core.conversation.runner import ModelRunner
    from leap_core.tasks.transcription import Recording, Transcribed

SUFFIXES = {"text": ".txt", "json": ".json", "srt": ".srt", "vtt": ".vtt"}


@dataclass(frozen=True)
class TranscribeArguments:
    """What is typed after ``leap transcribe``."""

    files: tuple[str, ...]
    model: ModelChoice
    format: str
    target: str | None
    system: str
    piece_length: float
    max_tokens: int
    background: Background


@leap_command("transcribe", into=TranscribeArguments)
@click.argument("files", type=FileName(), metavar="FILE...", nargs=-1, required=True)
@format_choice("Output format: text, json with timestamps, or subtitles (srt, vtt).", list(SUFFIXES), show_default=True)
@click.option(
    "-o",
    "--output",
    "target",
    type=FileName(),
    metavar="PATH",
    help="Write the text to this file; for several FILEs, to this directory.",
)
@option("-s", "--system", default="Perform ASR.", show_default=True, help="System prompt; @FILE reads it from a file.")
@click.option(
    "--chunk-length",
    "piece_length",
    type=Duration(1.0, 60.0),
    default="30s",
    show_default=True,
    help="Split long audio at silences into chunks of at most this length, 1s to 60s.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    help="Stop the text of a chunk after this many tokens.",
)
@MODEL
@BACKGROUND
def command(env: Environment, /, args: TranscribeArguments) -> ExitCode:
    """Speech-to-text: transcribe audio FILEs (WAV, FLAC, OGG, MP3, ...), or standard input with -.

    Needs a model with audio input, such as LFM2.5-Audio-1.5B. Text is printed chunk by chunk; conversions of the input
    are reported on stderr.
    """
    if args.files.count(STDIN) > 1:
        raise click.UsageError("'-' means standard input and can be given only once")
    output = Output(env)
    places = _places(env, args.files, args.target, args.format)
    request = {
        "prompt": read_system(args.system, env),
        "longest": args.piece_length,
        "max_tokens": args.max_tokens,
        "format": args.format,
    }
    if args.background.repeats_command(env):
        return args.background.submit(env, output, model_to_pin(env, args.model, args.background, output))
    if args.background:
        _submit(env, output, args.files, places, args.model, request | job_request(env, args.model, args.background))
        return ExitCode.DONE
    from leap_core.tasks.transcription import AT_ONCE, TIMED

    recordings = [_read(name, env, output, args.piece_length, args.format in TIMED) for name in args.files]
    with load_model(env, args.model, slots=AT_ONCE) as runner:
        for name, recording, place in zip(args.files, recordings, places, strict=True):
            _transcribe(runner, recording, request, output, place, heading=name if len(args.files) > 1 else None)
    return ExitCode.DONE


def _places(env: Environment, files: tuple[str, ...], target: str | None, format: str) -> list[Path | None]:
    """Where each transcript goes; None is standard output. Raises UsageError."""
    if target is None:
        if len(files) > 1 and format != "text":
            raise click.UsageError(f"{format} of several files needs -o DIRECTORY")
        return [None] * len(files)
    path = env.cwd / target
    if len(files) == 1 and not path.is_dir():
        if not path.parent.is_dir():
            raise click.UsageError(f"--output {target}: there is no directory {path.parent}")
        return [path]
    if not path.is_dir():
        raise click.UsageError(f"--output {target} must be a directory for several files")
    names = ["standard input" if name == STDIN else Path(name).stem for name in files]
    if len(set(names)) < len(names):
        raise click.UsageError("two of the files have the same name: transcribe them one by one")
    return [path / f"{name}{SUFFIXES[format]}" for name in names]


def _read(name: str, env: Environment, output: Output, longest: float, phrases: bool) -> Recording:
    from leap_core.conversation.media.audio import as_wav, naming_source
    from leap_core.tasks.transcription import read_recording

    data = read_bytes(name, env)
    with naming_source(source_name(name)):
        converted = as_wav(data)
        recording = read_recording(converted.data, longest=longest, phrases=phrases)
    if converted.changes:
        output.note(f"{source_name(name)}: {converted.changes}")
    return recording


def _transcribe(
    runner: ModelRunner,
    recording: Recording,
    request: dict[str, Any],
    output: Output,
    place: Path | None,
    *,
    heading: str | None,
) -> None:
    from leap_core.conversation.options import GenerationOptions
    from leap_core.tasks.transcription import transcribe

    options = GenerationOptions(max_tokens=request["max_tokens"])
    as_it_comes = place is None and request["format"] == "text"
    if heading is not None and as_it_comes:
        output.note(f"{source_name(heading)}, {recording.seconds:.0f} s")
    done: list[Transcribed] = []
    with closing(transcribe(runner, recording, prompt=request["prompt"], options=options)) as pieces:
        for piece in pieces:
            done.append(piece)
            if as_it_comes and piece.text:
                output.text(f"{piece.text}\n")
    if not as_it_comes:
        _write(output, place, done, request["format"], recording.seconds, runner.model_id)


def _write(
    output: Output, place: Path | None, pieces: list[Transcribed], format: str, seconds: float, model: str
) -> None:
    from leap_core.system.files import replace_text
    from leap_core.tasks.transcription import write

    text = write(pieces, format, seconds=seconds, model=model)
    if place is None:
        output.text(text)
    else:
        replace_text(place, text)


def _submit(
    env: Environment,
    output: Output,
    files: tuple[str, ...],
    places: list[Path | None],
    model: ModelChoice,
    request: dict[str, Any],
) -> None:
    """A job for each file; its sound is kept with it."""
    with naming_the_default(env, model.name), open_jobs(env) as jobs:
        for name, place in zip(files, places, strict=True):
            id = jobs.transcribe(
                read_bytes(name, env),
                name="standard input" if name == STDIN else Path(name).name,
                output=None if place is None else str(place),
                **request,
            )
            print_id(output, id)

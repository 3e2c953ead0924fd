"""``leap say``: a text, read aloud."""

from __future__ import annotations

import click

from leap_core.inference.speech.voices import DEFAULT_VOICE, VOICES, voice_prompt
from leap_core.system.dataclass import dataclass

from ...exit_codes import ExitCode
from ...framework.arguments import FileName
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Output
from ...input.prompt import read_prompt
from ...options.answer import STATS_OPTION, SpeechTarget, check_target
from ...options.background import BACKGROUND, Background
from ...options.loading import MODEL, ModelChoice, load_model, note_builtin, submit
from ...options.sampling import SPOKEN_SAMPLING, Sampling


@dataclass(frozen=True)
class SayArguments:
    """What is typed after ``leap say``."""

    text: tuple[str, ...]
    voice: str
    file: str | None
    play: bool
    model: ModelChoice
    sampling: Sampling
    stats: bool
    background: Background


@leap_command("say", into=SayArguments)
@click.argument("text", nargs=-1)
@click.option(
    "--voice",
    type=click.Choice(list(VOICES), case_sensitive=False),
    default=DEFAULT_VOICE,
    show_default=True,
    help="Speak with this voice of the model.",
)
@click.option(
    "-o",
    "--output",
    "file",
    type=FileName(),
    help="Write this WAV file; - is standard output, FILE.pcm gets raw samples.",
)
@click.option("--play", is_flag=True, help="Play the audio while it is generated. Needs leap-edge[play].")
@SPOKEN_SAMPLING
@STATS_OPTION
@MODEL
@BACKGROUND
def command(env: Environment, /, args: SayArguments) -> ExitCode:
    """Text-to-speech: read TEXT aloud, from the arguments and standard input. Needs a model with speech output.

    Ctrl-C stops and keeps the audio generated so far.
    """
    from ...answers.show import Display, show_answer
    from ...answers.sound import SpokenOutput

    output = Output(env)
    target = SpeechTarget(args.file, args.play or args.file is None)
    check_target(target, env, "-o")
    options = args.sampling.options()
    system = voice_prompt(args.voice)
    words = read_prompt(args.text, env, output)
    if args.background:
        if target.play or target.is_stdout or args.file is None:
            raise click.UsageError("--background speaks into a file only: give -o a file's name")
        asked = {"system": system, "options": options, "speech": args.file, "logged": ("stats",) * args.stats}
        return submit(
            env, output, args.model, args.background, lambda jobs, **more: jobs.generate(words, **asked, **more)
        )
    with SpokenOutput(target, env, output) as spoken, load_model(env, args.model) as runner:
        spoken.check(runner)
        conversation = runner.create_conversation(system)
        complete = show_answer(
            spoken.hearing(conversation.generate_response(words, options), runner),
            Output(spoken.text_place(env)),
            model=runner.model_id,
            display=Display(stats=args.stats),
            before_first=lambda: note_builtin(env, args.model.name, output),
        )
        if complete.finish_reason.value == "interrupted":
            raise click.exceptions.Exit(ExitCode.INTERRUPTED)
    return ExitCode.DONE

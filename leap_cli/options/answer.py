"""Where answers go and how: their form, their number, their reasoning, their sound."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import click

from leap_core.system.dataclass import dataclass
from leap_core.system.files import descriptor_of

from ..framework.arguments import FileName
from ..framework.click_classes import format_choice
from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from ..framework.output import Format

if TYPE_CHECKING:
    from leap_core.conversation.answer_forms import AnswerForm

    from .tools import Tools

STANDARD = "-"
MOST_SLOTS = 8
"""Answers that are made at once; the others wait for their turn."""


class Thinking(str, Enum):
    """``show`` on stderr, ``hide``, or ``only``: the reasoning takes the place of the answer."""

    SHOW = "show"
    HIDE = "hide"
    ONLY = "only"


@dataclass(frozen=True)
class SpeechTarget:
    """``file``: a name, or ``-`` for standard output. ``play``: through the loudspeaker."""

    file: str | None = None
    play: bool = False

    def __bool__(self) -> bool:
        return self.file is not None or self.play

    @property
    def is_stdout(self) -> bool:
        """Whether the sound takes standard output, which text cannot share."""
        return self.file is not None and (self.file == STANDARD or descriptor_of(self.file) == 1)


@dataclass(frozen=True)
class AnswerOutput:
    """``target``: the file that the text goes to. ``count``: how many answers. ``extract``, ``extract_last``: the
    fenced block that is printed alone. ``thinking``: None where the model is not asked to reason."""

    speech: SpeechTarget
    thinking: Thinking | None = None
    format: str = Format.TEXT.value
    stream: bool = True
    stats: bool = False
    target: str | None = None
    count: int = 1
    extract: bool = False
    extract_last: bool = False

    @property
    def slots(self) -> int:
        """Space for the answers that are made at once."""
        return min(self.count, MOST_SLOTS)

    @property
    def form(self) -> AnswerForm:
        """How many answers are wanted, and which part of each."""
        from leap_core.conversation.answer_forms import AnswerForm

        fenced = "last" if self.extract_last else "first" if self.extract else None
        return AnswerForm(self.count, fenced, self.thinking is Thinking.ONLY)

    @property
    def logged(self) -> tuple[str, ...]:
        """What a job says of its answers in its log."""
        return ("reasoning",) * (self.thinking is Thinking.SHOW) + ("stats",) * self.stats

    def check_tools(self, tools: Tools) -> None:
        """Refuse several answers that might all ask whether a tool may run. Raises UsageError."""
        if self.count > 1 and any(function.call is not None for function in tools.functions):
            raise click.UsageError("--count cannot be combined with tools that run; declare them without code")


SPEECH_OPTIONS = (
    option(
        "--speak",
        metavar="FILE",
        help="Write the spoken answer to this WAV file; - is standard output, a .pcm file gets raw samples.",
    ),
    option("--play", is_flag=True, help="Play the spoken answer. Needs leap-edge[play]."),
)
THINKING_OPTIONS = (
    option(
        "--think",
        type=click.Choice([kind.value for kind in Thinking]),
        heading="Reasoning",
        help="Enable reasoning: show it on stderr, hide it, or print only it.",
    ),
)
STREAM_OPTION = option("--stream/--no-stream", default=True, help="Stream the answer (default) or print it at its end.")
EVENT_FORMAT_OPTION = format_choice(
    "Output format: text, one JSON document, or one JSON event per line.",
    [Format.TEXT.value, Format.JSON.value, Format.JSONL.value],
)
STATS_OPTION = option("--stats", is_flag=True, help="Show token counts and speed on stderr.")
_OPTIONS = (
    option("-o", "--output", "target", type=FileName(), saved=None, help="Write the complete answer to this file."),
    option(
        "-n",
        "--count",
        type=click.IntRange(1, 256),
        default=1,
        help="Generate N answers in parallel; with --seed S their seeds are S, S+1, ...",
    ),
    option("-x", "--extract", is_flag=True, help="Print only the first fenced code block."),
    option("--extract-last", is_flag=True, help="Print only the last fenced code block."),
    *SPEECH_OPTIONS,
    STREAM_OPTION,
    EVENT_FORMAT_OPTION,
    STATS_OPTION,
    *THINKING_OPTIONS,
)


def _answer(arguments: Arguments) -> AnswerOutput:
    thinking = _thinking(arguments)
    if thinking is Thinking.ONLY and arguments["format"] != Format.TEXT.value:
        origin = arguments.origin("think", "format")
        raise click.UsageError(f"--think only is for text; json and jsonl have the reasoning beside the answer{origin}")
    plain = arguments.of("format", "stream", "stats", "target", "count", "extract", "extract_last")
    return AnswerOutput(read_speech(arguments), thinking, **plain)


def _chat_answer(arguments: Arguments) -> AnswerOutput:
    thinking = _thinking(arguments)
    if arguments["jsonl"] and thinking is Thinking.ONLY:
        raise click.UsageError("--think only is for text; --jsonl has the reasoning beside the answer")
    return AnswerOutput(read_speech(arguments), thinking, **arguments.of("stream", "stats"))


def _thinking(arguments: Arguments) -> Thinking | None:
    return None if arguments["think"] is None else Thinking(arguments["think"])


def read_speech(arguments: Arguments) -> SpeechTarget:
    """What SPEECH_OPTIONS ask for. Raises UsageError for a place where there can be no file."""
    target = SpeechTarget(arguments["speak"], arguments["play"])
    check_target(target, arguments.env, "--speak")
    return target


def check_target(target: SpeechTarget, env: Environment, flag: str) -> None:
    """Refuse a place where there can be no file, before anything is generated. Raises UsageError."""
    if target.file is None or target.is_stdout:
        return
    path = env.cwd / target.file
    if not target.file or path.is_dir():
        raise click.UsageError(f"{flag} {target.file} is a directory" if target.file else f"{flag} needs a file's name")
    if not path.parent.is_dir():
        raise click.UsageError(f"{flag} {target.file}: there is no directory {path.parent}")


ANSWER = OptionGroup(
    "answer",
    "Answer",
    _OPTIONS,
    _answer,
    {"extract": ("extract_last",), "count": ("continue_last", "session", "save", "speak", "play")},
)
CHAT_ANSWERS = OptionGroup(
    "answers",
    "Answer",
    (
        *SPEECH_OPTIONS,
        option("--stream/--no-stream", default=True, help="Stream answers (default) or print each at its end."),
        option("--stats", is_flag=True, help="Show token counts and speed after each answer."),
        *THINKING_OPTIONS,
    ),
    _chat_answer,
)

"""Measure `builtin-vl` or `builtin-audio` through leap itself: `python scripts/builtin/evaluate_builtin_media.py vl`.

Draws pictures, or plays clips, that training never saw, asks one question of every kind about each, lets the model
answer greedily and counts exact matches. Pictures go in as JPEG and clips as WAV of 16 bits, as `leap generate` sends
them. Extraction is by a JSON schema that is shown and enforced.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from evaluate_builtin import print_row

from leap_core import ChatMessage, GenerationOptions, Leap, LeapConstraintError, ModelLoadingOptions, ModelRunner
from leap_core.conversation.messages import Audio, ChatMessageContent, Image, Text
from leap_core.conversation.responses import Complete
from leap_core.testing.sounds import RATE, random_clip
from tests.support import picture_questions, sound_questions
from tests.support.picture_questions import Question
from tests.support.random_scenes import random_scene

SEED = "evaluation"
"""Training seeds its lessons with numbers."""


class Item(NamedTuple):
    """A medium and what is asked about it."""

    medium: ChatMessageContent
    question: Question


def pictures(count: int, size: tuple[int, int]) -> Iterator[Item]:
    for number in range(count):
        rng = random.Random(f"{SEED}/{number}")
        scene = random_scene(rng)
        medium = Image.from_pil_image(scene.draw(*size, rng))
        yield from (Item(medium, question) for question in picture_questions.ask_all(scene, rng))


def clips(count: int, seconds: float | None) -> Iterator[Item]:
    for number in range(count):
        rng = random.Random(f"{SEED}/{number}")
        clip = random_clip(rng, seconds)
        samples = clip.play(10 ** rng.uniform(-4.5, -2) if rng.random() < 0.5 else 0.0, number)
        medium = Audio.from_float_samples(samples.tolist(), RATE)
        yield from (Item(medium, question) for question in sound_questions.ask_all(clip, rng))


def answer(runner: ModelRunner, item: Item) -> str:
    """The model's greedy answer."""
    options = GenerationOptions(temperature=0.0, max_tokens=200, json_schema_constraint=item.question.schema)
    message = ChatMessage("user", (item.medium, Text(item.question.text)))
    try:
        for response in runner.create_conversation().generate_response(message, options):
            if isinstance(response, Complete):
                return response.full_message.text
    except LeapConstraintError as error:  # a document that does not end
        return error.text
    raise RuntimeError("the generation ended without Complete")


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    return int(width), int(height)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["vl", "audio"])
    parser.add_argument("--count", type=int, default=100, help="pictures or clips")
    parser.add_argument("--size", type=_size, default=(256, 256), metavar="WxH", help="of pictures, in pixels")
    parser.add_argument("--seconds", type=float, help="of clips; else 1 to 3")
    parser.add_argument("--show", type=int, default=0, help="print so many wrong answers")
    parser.add_argument("--slots", type=int, default=4, help="questions at once")
    options = parser.parse_args(arguments)
    if options.model == "vl":
        items = list(pictures(options.count, options.size))
    else:
        items = list(clips(options.count, options.seconds))
    runner = Leap.load(f"builtin-{options.model}", ModelLoadingOptions(slots=options.slots))
    with ThreadPoolExecutor(options.slots) as pool:
        answers = list(pool.map(lambda item: answer(runner, item), items))
    runner.unload()
    right: dict[str, list[bool]] = defaultdict(list)
    for (_, question), said in zip(items, answers, strict=True):
        right[question.kind].append(said == question.answer)
        if said != question.answer and options.show > 0:
            options.show -= 1
            print(f"  asked    {question.text!r}\n  expected {question.answer!r}\n  answered {said!r}")
    print("| question | right | of | percent |\n|---|---|---|---|")
    for kind, exact in right.items():
        print_row(kind, exact)
    print_row("all", [exact for each in right.values() for exact in each])


if __name__ == "__main__":
    main()

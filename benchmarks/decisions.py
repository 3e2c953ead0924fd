"""Accuracy and calibration of decisions: 200 labelled cases, both readouts, before and after temperatures are fitted.

    python benchmarks/decisions.py [MODEL...]

The cases are made here from short phrases: half ask whether a writer is content, half which of four topics a message is
about. Half of each are held back; the figures are of those.
"""

from __future__ import annotations

import random
import sys

from harness import SHORT

from leap_core import Decision, Leap, Question
from leap_core.conversation.runner import ModelRunner
from leap_core.tasks.decisions.answer_probabilities import READOUTS
from leap_core.tasks.decisions.calibration import fit
from leap_core.tasks.decisions.deciding import Settings, cases_of

CASES = 40 if SHORT else 200
GOOD = ("works well", "arrived early", "is better than I hoped", "looks wonderful", "was easy to set up")
BAD = ("broke on the first day", "never arrived", "is a disappointment", "looks cheap", "cannot be repaired")
THINGS = ("lamp", "kettle", "jacket", "printer", "bicycle", "chair", "radio", "tent", "clock", "blender")
TOPICS = {
    "delivery": ("Where is the parcel with my {}?", "The courier left my {} at the wrong door."),
    "payment": ("I was charged twice for the {}.", "Please send me the invoice for the {}."),
    "repair": ("The {} makes a noise, can you fix it?", "A part of my {} is broken and needs to be replaced."),
    "opening hours": ("When is your shop open? I want to see a {}.", "Are you open on Sunday, to try the {}?"),
}


def cases() -> list[tuple[str, Question, int]]:
    """Texts, what is asked, and the number of the right answer."""
    draw = random.Random(37)
    content = Question.predicate("Is the writer content with the product?")
    topic = Question.choice("What is the message about?", list(TOPICS))
    made: list[tuple[str, Question, int]] = []
    for n in range(CASES // 2):
        good = n % 2 == 0
        text = (
            f"I bought a {draw.choice(THINGS)} {draw.randint(2, 9)} weeks ago. It {draw.choice(GOOD if good else BAD)}."
        )
        made.append((text, content, 0 if good else 1))
    for n in range(CASES // 2):
        number = n % len(TOPICS)
        phrase = draw.choice(TOPICS[list(TOPICS)[number]])
        made.append((phrase.format(draw.choice(THINGS)), topic, number))
    return made


def measure(runner: ModelRunner, readout: str) -> None:
    """Print the figures of one readout."""
    asked = []
    for text, question, right in cases():
        asked += cases_of(runner, Decision(text, (question,)), [right], Settings(readout))
    for name, some in (("content", asked[: CASES // 2]), ("topic", asked[CASES // 2 :]), ("all", asked)):
        found = fit(some)
        before, after = found.before, found.after
        print(
            f"{runner.model_id:24} {readout:7} {name:8} accuracy {after.accuracy:5.1%}  ECE {before.ece:.3f} ->"
            f" {after.ece:.3f}  log loss {before.log_loss:.3f} -> {after.log_loss:.3f}",
            flush=True,
        )


def main() -> None:
    """Measure each model."""
    for name in sys.argv[1:] or ["builtin"]:
        with Leap.load(name, host="never") as runner:
            for readout in READOUTS:
                measure(runner, readout)


if __name__ == "__main__":
    main()

"""What the patterns of `leap redact` leave readable, and what they mask without need, without a model.

    python benchmarks/redaction.py [--texts FILE] [--verbose]

The file (benchmarks/redaction.jsonl by default) has a text a line with the identifiers that were put into it: national
numbers, accounts, cards, passports and telephone numbers of twenty countries. An identifier is readable where four of
its letters and digits in a row are left. An ordinary word is a run of letters or digits outside the identifiers.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for a tree that is not installed

from leap_core.tasks.personal_patterns import found_by_pattern
from leap_core.tasks.redaction import mask

TEXTS = Path(__file__).with_suffix(".jsonl")
MASK = re.compile(r"\[[A-Z_]+_\d+\]")


def measure(text: str, identifiers: list[str]) -> tuple[list[str], list[str], int]:
    """The identifiers that are still readable, the ordinary words that are gone, and how many there were."""
    masked = MASK.sub("\0", mask(text, found_by_pattern(text))[0])
    plain = re.sub(r"[\W_]", "", masked)
    readable = []
    for each in identifiers:
        letters = re.sub(r"[\W_]", "", each)
        if any(letters[n : n + 4] in plain for n in range(len(letters) - 3)):
            readable.append(each)
    rest = text
    for each in sorted(identifiers, key=len, reverse=True):
        rest = rest.replace(each, "\0")
    words, left = re.findall(r"\w+", rest), re.findall(r"\w+", masked)
    for word in left:
        if word in words:
            words.remove(word)
    return readable, words, len(re.findall(r"\w+", rest))


def main() -> None:
    """Measure every text, and print the sums."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=Path, default=TEXTS)
    parser.add_argument("--verbose", action="store_true", help="print each identifier and word that is wrong")
    given = parser.parse_args()
    cases = [json.loads(line) for line in given.texts.read_text("utf-8").splitlines()]
    readable, gone, words = 0, 0, 0
    for case in cases:
        left, lost, count = measure(case["text"], case["identifiers"])
        readable, gone, words = readable + len(left), gone + len(lost), words + count
        if given.verbose and (left or lost):
            print(f"{case['country']}: readable {left}, masked without need {lost}")
    planted = sum(len(case["identifiers"]) for case in cases)
    countries = len({case["country"] for case in cases})
    print(f"{len(cases)} texts of {countries} countries: {readable} of {planted} identifiers readable,")
    print(f"{gone} of {words} ordinary words masked")


if __name__ == "__main__":
    main()

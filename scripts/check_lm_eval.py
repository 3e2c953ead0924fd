"""Whether lm-evaluation-harness gets from ``leap serve`` the numbers that the model gives in process.

    python scripts/check_lm_eval.py --harness PYTHON_WITH_LM_EVAL [MODEL]

It serves MODEL (the built-in one by default) and asks ten questions of its own making, without a network:

- multiple choice as ``gguf``, as ``local-completions`` with token ids (eight prompts a request), and as
  ``local-completions`` with text; each continuation's log-probability is compared with ``leap_core``'s;
- generation as ``gguf``, ``local-completions`` and ``local-chat-completions``; the texts are compared.

The harness's tokenizer is the server's own (``tokenizer_backend=remote``). The exit code is 1 where any number or text
differs. Installed to write this: lm_eval 0.4.13 with its extra ``api``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from leap_core import Leap
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.runner import ModelRunner
from leap_core.conversation.streams import last_of

QUESTIONS = [
    {"question": f"The capital of {country} is", "choices": ["Rome", "Paris!", "Oslo", "Vienna"], "answer": answer}
    for country, answer in [("Italy", 0), ("France", 1), ("Norway", 2), ("Austria", 3)]
] + [
    {"question": question, "choices": choices, "answer": answer}
    for question, choices, answer in [
        ("Two and two are", ["three", "four", "a dozen"], 1),
        ("The colour of a clear sky is", ["green", "blue"], 1),
        ("A baby dog is called a", ["puppy", "kitten", "Küken 🐣"], 0),
        ("Water freezes at", ["0 °C", "50 °C", "100 °C"], 0),
        ("The opposite of hot is", ["cold", "warm"], 0),
        ("One hour has", ["60 minutes.", "100 minutes."], 0),
    ]
]
CHOICE = """task: leap_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list: [{{metric: acc}}]
"""
TEXT = """task: leap_text
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{choices[answer]}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 12, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""
CLOSE = 2e-2
"""Most by which a sum of log-probabilities may differ: prompts that are computed together differ in rounding."""


@contextlib.contextmanager
def server(model: str) -> Iterator[str]:
    """The base URL of a server, without /v1."""
    command = [sys.executable, "-m", "leap_cli", "serve", model, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            url = process.stdout.readline().strip()
            process.stderr.readline()  # it is ready
            yield url.removesuffix("/v1")
        finally:
            process.terminate()


def harness(python: str, folder: Path, kind: str, arguments: str, task: str, *more: str) -> list[dict[str, Any]]:
    """The samples of a run, in the order of the questions."""
    output = folder / f"{kind}-{abs(hash(arguments))}-{task}"
    command = [python, "-m", "lm_eval", "run", "--model", kind, "--model_args", arguments, "--tasks", task]
    command += ["--include_path", str(folder), "--log_samples", "--output_path", str(output), *more]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "cache"), "NO_PROXY": "*"}
    done = subprocess.run(command, env={**os.environ, **offline}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"lm_eval as {kind} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    (samples,) = output.rglob("samples_*.jsonl")
    return sorted((json.loads(line) for line in samples.open()), key=lambda sample: int(sample["doc_id"]))


def score(runner: ModelRunner, context: str, continuation: str, *, ids: bool) -> tuple[float, bool]:
    """The log-probability of a continuation and whether it is the likeliest, computed in process."""
    whole = runner.tokenize(context + continuation, parse_special=True)
    begun = len(runner.tokenize(context, parse_special=True))
    if not ids:  # the harness knows texts alone: those tokens count that begin behind the context
        before = len(context.encode())
        begun = next(n for n in range(len(whole)) if len(runner.detokenize(whole[:n]).encode()) >= before)
    options = GenerationOptions(
        temperature=0.0, max_tokens=1, logprobs=True, prompt_logprobs=True, top_logprobs=1, repetition_penalty=1.0
    )
    complete = last_of(runner.start_text(whole if ids else context + continuation, options))
    scores = complete.prompt_logprobs[begun - len(whole) :]
    return sum(each.logprob for each in scores), all(each.top[0][1] <= each.logprob for each in scores)


def compare_choices(runner: ModelRunner, samples: list[dict[str, Any]], name: str, *, ids: bool) -> bool:
    """Print and give whether every continuation's number is that computed in process."""
    worst, greedy, count, values = 0.0, 0, 0, set()
    for sample, question in zip(samples, QUESTIONS, strict=True):
        for choice, response in zip(question["choices"], sample["filtered_resps"], strict=True):
            value, is_greedy = float(response[0]), str(response[1]) == "True"
            expected, likeliest = score(runner, question["question"], f" {choice}", ids=ids)
            worst, count = max(worst, abs(value - expected)), count + 1
            greedy += is_greedy != likeliest
            values.add(round(value, 6))
    accuracy = sum(sample["acc"] for sample in samples) / len(samples)
    print(
        f"{name}: accuracy {accuracy:.2f}, {count} continuations, greatest difference {worst:.2e}, "
        f"{greedy} differ in being likeliest, {len(values)} different values"
    )
    return worst < CLOSE and not math.isnan(worst) and greedy == 0 and len(values) > count // 2


def compare_texts(expected: list[str], samples: list[dict[str, Any]], name: str) -> bool:
    """Print and give whether every text is that generated in process."""
    texts = [str(sample["filtered_resps"][0]).strip() for sample in samples]
    same = sum(one == other.strip() for one, other in zip(texts, expected, strict=True))
    print(f"{name}: {same} of {len(texts)} texts are those generated in process")
    return same == len(texts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="builtin")
    parser.add_argument("--harness", default=sys.executable, help="the Python that has lm_eval")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, server(given.model) as url:
        folder = Path(directory)
        questions = folder / "questions.jsonl"
        questions.write_text("".join(json.dumps(each) + "\n" for each in QUESTIONS))
        (folder / "choice.yaml").write_text(CHOICE.format(file=questions))
        (folder / "text.yaml").write_text(TEXT.format(file=questions))
        with Leap.load(given.model) as runner:
            return int(not all(checks(given.harness, folder, url, runner)))


def checks(python: str, folder: Path, url: str, runner: ModelRunner) -> list[bool]:
    """Whether each way gave what the runner gives."""
    with urllib.request.urlopen(f"{url}/v1/models") as answer:
        name = json.load(answer)["data"][0]["id"]
    text_url = f"base_url={url}/v1/completions,model={name},tokenizer_backend=remote,max_retries=1"
    chat_url = f"base_url={url}/v1/chat/completions,model={name},max_retries=1"
    once, many, plain = ("--batch_size", "1"), ("--batch_size", "8"), ",tokenized_requests=False"

    def samples(kind: str, arguments: str, task: str, *more: str) -> list[dict[str, Any]]:
        return harness(python, folder, kind, arguments, task, *more)

    begun = [runner.tokenize(each["question"], parse_special=True) for each in QUESTIONS]
    short = GenerationOptions(temperature=0.0, max_tokens=12, stop=("\n",), repetition_penalty=1.0)
    by_text = [last_of(runner.start_text(each["question"], short)).full_message.text for each in QUESTIONS]
    by_ids = [last_of(runner.start_text(each, short)).full_message.text for each in begun]
    chats = [[ChatMessage("user", each["question"])] for each in QUESTIONS]
    by_chat = [last_of(runner.start(each, [], short)).full_message.text for each in chats]
    gguf = f"base_url={url}"
    return [
        compare_choices(runner, samples("gguf", gguf, "leap_choice"), "gguf", ids=False),
        compare_choices(
            runner, samples("local-completions", text_url, "leap_choice", *many), "local-completions, ids", ids=True
        ),
        compare_choices(
            runner,
            samples("local-completions", text_url + plain, "leap_choice", *once),
            "local-completions, text",
            ids=False,
        ),
        compare_texts(
            by_ids, samples("local-completions", text_url, "leap_text", *once), "local-completions, ids, generation"
        ),
        compare_texts(
            by_text,
            samples("local-completions", text_url + plain, "leap_text", *once),
            "local-completions, text, generation",
        ),
        compare_texts(
            by_chat,
            samples("local-chat-completions", chat_url, "leap_text", "--apply_chat_template", *once),
            "local-chat-completions, generation",
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())

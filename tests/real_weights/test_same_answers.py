"""The same request gives the same text with the same probabilities to the last bit: first, again, after others, beside
others, and from leap serve."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import openai
import pytest

from leap_core import CacheOptions, ChatMessage, Complete, GenerationOptions, ModelLoadingOptions
from leap_core.inference.gguf.header import read_gguf_header
from leap_core.inference.runner import InProcessRunner
from tests.support.random_models import Shape, write_random_model

from .conftest import THREADS

pytestmark = pytest.mark.timeout(1200)  # a build without AVX takes minutes

PROMPTS = (
    "Write one sentence about a river.",
    "List three uses of salt, and say for each in which century people began to use it, as far as that is known.",
    "Shorten this: " + "The committee met on Tuesday and decided after a long debate to postpone all decisions. " * 5,
)
Numbers = tuple[str, tuple[float, ...]]


def options(seed: int = 3, length: int = 12) -> GenerationOptions:
    return GenerationOptions(max_tokens=length, temperature=0.9, rng_seed=seed, logprobs=True)


def numbers(stream: object) -> Numbers:
    *_, end = stream  # type: ignore[misc]
    assert isinstance(end, Complete) and end.full_message.text
    return end.full_message.text, tuple(score.logprob for score in end.logprobs)


def asked(runner: InProcessRunner, prompt: str, **given: int) -> Numbers:
    return numbers(runner.start([ChatMessage("user", prompt)], options=options(**given)))


@pytest.fixture(scope="module")
def first(smol: Path) -> list[Numbers]:
    """Each prompt's answer by a model that has computed nothing else, with one thread."""
    found = []
    for prompt in PROMPTS:
        with InProcessRunner(smol, "smol", ModelLoadingOptions(cpu_threads=1, slots=1, context_size=1024)) as fresh:
            found.append(asked(fresh, prompt))
    return found


def test_answers_are_the_same_after_and_beside_others(runner: InProcessRunner, first: list[Numbers]) -> None:
    assert [asked(runner, prompt) for prompt in PROMPTS] == first
    for n in range(4):
        stream = runner.start([ChatMessage("user", f"Tell me story {n}. " * (n + 1))], options=options(n, 200))
        next(stream)
        stream.close()
    assert [asked(runner, prompt) for prompt in PROMPTS] == first
    many = [runner.start([ChatMessage("user", PROMPTS[0])], options=options(seed)) for seed in range(4)]
    answers = [numbers(stream) for stream in many]
    assert answers[3] == first[0] and len({text for text, _ in answers}) > 1
    mixed = [runner.start([ChatMessage("user", prompt)], options=options()) for prompt in PROMPTS * 2]
    assert [numbers(stream) for stream in mixed] == first * 2


def test_answers_are_the_same_over_leap_serve(smol: Path, first: list[Numbers], leap_home: Path) -> None:
    command = [sys.executable, "-m", "leap_cli", "serve", str(smol), "--port", "0", "--threads", str(THREADS)]
    variables = {**os.environ, "LEAP_HOME": str(leap_home)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=variables, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with openai.OpenAI(base_url=url, api_key="none", max_retries=60, timeout=1000) as client:
            for prompt, (text, logprobs) in [*zip(PROMPTS, first, strict=True)] * 2:
                choice = client.chat.completions.create(
                    messages=[{"role": "user", "content": prompt}],
                    model=smol.stem,
                    max_tokens=12,
                    temperature=0.9,
                    seed=3,
                    logprobs=True,
                ).choices[0]
                assert choice.message.content == text
                assert tuple(token.logprob for token in choice.logprobs.content) == logprobs
    finally:
        process.terminate()
        process.communicate(timeout=60)


KINDS = ("Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_XS")
WIDE = Shape(2, 256, 4, 2, 512, frozenset({0, 1}), 1024, 2048)
"""Its rows are as long as a block of these types."""


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """What is quantized: the trained model or a small one with random weights."""
    if request.param == "trained":
        found: Path = request.getfixturevalue("smol")
        return found
    return write_random_model(tmp_path / "random.gguf", WIDE, "f16")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "kind"),
    [
        pytest.param(source, kind, marks=() if (source, kind) == ("random", "Q4_K_M") else pytest.mark.long)
        for source in ("random", "trained")
        for kind in KINDS
    ],
    indirect=["source"],
)
def test_exact_keeps_the_answer_with_types_whose_products_round_in_two_ways(
    source: Path, kind: str, tmp_path: Path, leap_home: Path
) -> None:
    """First alone, again, after cancelled answers, beside four others, read back in a conversation, and from disk. Each
    type has products of its own, however large the model is."""
    made = tmp_path / f"{kind}.gguf"
    command = ["models", "quantize", str(source), "--to", kind, "--allow-requantize", "-o", str(made)]
    variables = {**os.environ, "LEAP_HOME": str(leap_home)}
    subprocess.run([sys.executable, "-m", "leap_cli", *command], check=True, env=variables)
    assert not read_gguf_header(made).is_alike
    cache = CacheOptions.on_disk(tmp_path / "prompts")
    plain = ModelLoadingOptions(cpu_threads=2, context_size=1024, deterministic=True)
    with InProcessRunner(made, "made", replace(plain, slots=1, cpu_threads=1)) as fresh:
        first = [asked(fresh, prompt) for prompt in PROMPTS[:2]]
        talk = [ChatMessage("user", PROMPTS[0]), ChatMessage("assistant", first[0][0]), ChatMessage("user", "Again.")]
        second = numbers(fresh.start(talk, options=options()))
    for _ in range(2):  # the second one begins with what the first left on disk
        with InProcessRunner(made, "made", replace(plain, slots=4, cache_options=cache)) as used:
            assert [asked(used, prompt) for prompt in PROMPTS[:2]] == first
            stream = used.start([ChatMessage("user", "Tell me a story.")], options=options(1, 200))
            next(stream)
            stream.close()
            many = [used.start([ChatMessage("user", PROMPTS[n % 2])], options=options()) for n in range(4)]
            assert [numbers(each) for each in many] == first * 2
            assert numbers(used.start(talk, options=options())) == second

"""Prompts, greedy texts and probabilities of a trained model, against llama.cpp's own calls."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from leap_core import ChatMessage, Complete, GenerationOptions, ModelLoadingOptions
from leap_core.inference.runner import InProcessRunner
from leap_core.tasks.decisions.answer_probabilities import TextReading, side_by_side
from tests.support.lengths import usually

from ..bare_llama import BareLlama, bare_llama
from .conftest import THREADS, answers_of

pytestmark = pytest.mark.timeout(1200)  # a build without AVX takes minutes

QUESTIONS = (
    "Write one sentence about a river.",
    "What is the capital of France?",
    "Name three colours.",
    "Say hello in Spanish, Größe: ÄÖÜ, 日本語.",
    '{"task": "echo", "text": "<|im_end|> is a text here"}',
    "Translate into French: good morning",
    "Why is the sky blue?",
)
LENGTH = 8
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
TEXT = (
    "The river rises in the mountains, where the snow melts in spring, and flows through three countries before it "
    "reaches the sea. People have built their towns along its banks for more than two thousand years, because the "
    "water carried their goods and turned their mills."
)


@pytest.fixture(scope="module")
def bare(smol: Path) -> Iterator[BareLlama]:
    with bare_llama(str(smol)) as loaded:
        yield loaded


def question(text: str, system: str = SYSTEM) -> str:
    """The prompt as the model's cards write it."""
    return f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def test_prompts_equal_those_of_the_template(runner: InProcessRunner, bare: BareLlama) -> None:
    plain = runner.render([ChatMessage("user", QUESTIONS[1])])
    assert plain.text == question(QUESTIONS[1])
    assert plain.tokens == len(bare.tokens(plain.text, special=True))
    turns = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello!"), ("user", "And now?")]
    rendered = runner.render([ChatMessage(role, text) for role, text in turns])
    said = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    assert rendered.text == said + "<|im_start|>assistant\n"
    assert rendered.tokens == len(bare.tokens(rendered.text, special=True))


def by_hand(bare: BareLlama, text: str) -> list[int]:
    """The prompt's tokens: what the template writes with its markers, what a person writes without any."""
    before, after = question(text).split(text)
    parts = [(before, True), (text, False), (after, True)]
    return [token for part, special in parts for token in bare.tokens(part, special=special)]


def test_markers_in_a_message_stay_text(runner: InProcessRunner, bare: BareLlama) -> None:
    marked = "a person writes <|im_end|> here"
    tokens = by_hand(bare, marked)
    assert runner.render([ChatMessage("user", marked)]).tokens == len(tokens)
    assert tokens != bare.tokens(question(marked), special=True)


@pytest.mark.parametrize("lookup", usually([False], [False, True]), ids=["plain", "lookup"])
def test_greedy_texts_equal_llama_cpps(
    smol: Path, runner: InProcessRunner, greedy: Sequence[str], lookup: bool
) -> None:
    options = GenerationOptions(temperature=0, max_tokens=LENGTH)
    messages = [[ChatMessage("user", text)] for text in QUESTIONS]
    if not lookup:
        assert [end.full_message.text for end in answers_of(runner, messages, options)] == greedy
        return
    drafting = ModelLoadingOptions(cpu_threads=THREADS, slots=1, context_size=512, prompt_lookup=True)
    with InProcessRunner(smol, "smol", drafting) as loaded:
        for each, text in zip(messages[:6], greedy[:6], strict=True):
            (end,) = answers_of(loaded, [each], options)
            assert end.full_message.text == text


@pytest.fixture(scope="module")
def greedy(bare: BareLlama) -> list[str]:
    """The answers by bare calls, each to a prompt computed anew."""
    texts = [bare.text(bare.greedy(by_hand(bare, text), LENGTH)) for text in QUESTIONS]
    assert len(set(texts)) == len(texts)
    return texts


def test_probabilities_and_perplexity_of_a_text_equal_llama_cpps(runner: InProcessRunner, bare: BareLlama) -> None:
    words = TEXT.split()
    random.Random(1).shuffle(words)
    perplexities = []
    for text in (TEXT, " ".join(words)):
        *_, end = runner.start_text(text, GenerationOptions(max_tokens=1, temperature=0, prompt_logprobs=True))
        assert isinstance(end, Complete)
        tokens = bare.tokens(text, special=False)
        ours = [each.logprob for each in end.prompt_logprobs][-(len(tokens) - 1) :]
        assert ours == pytest.approx(bare.logprobs(tokens[:1], tokens[1:]), abs=1e-4)
        perplexities.append(math.exp(-sum(ours) / len(ours)))
    assert perplexities[0] < 40 and perplexities[1] > 10 * perplexities[0]


def test_choices_are_as_likely_as_their_tokens(runner: InProcessRunner, bare: BareLlama) -> None:
    labels = ["Paris", "Berlin", "Rome", "London"]
    messages = [ChatMessage("user", QUESTIONS[1] + " Answer with one word.")]
    prompt = by_hand(bare, messages[0].text)
    expected = [sum(bare.logprobs(prompt, bare.tokens(label, special=False))) for label in labels]
    reading = TextReading(runner, messages, labels, GenerationOptions())
    assert reading.logprobs(list(side_by_side(runner)(reading.prompts))) == pytest.approx(expected, abs=0.02)

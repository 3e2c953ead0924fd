"""The trial of a model: load, read its vocabulary, cut text into tokens, decode, render its chat template."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..chat_format.chat_template import ChatTemplate
from ..errors import LeapError, LeapGenerationError
from ..llama.context import LlamaContext
from ..llama.model import LlamaModel
from ..messages import ChatMessage
from ..options import ModelLoadingOptions
from .trial_child import TEMPLATE_STAGE

CELLS = 1024
THREADS = 1
"""Several wait for each other by spinning, for seconds where other processes compute too."""
PROMPT_TOKENS = 24
"""So many that matrices are multiplied in blocks, as with a prompt, and then one at a time, as with an answer."""
EVERY_KIND_OF_TEXT = "Hello, world! 12345 + 67.8 = ?\n\n\tif (x) { y[0]; }  été Straße Привет 你好 こんにちは 한국어 🙂"
CONVERSATION = [ChatMessage("system", "Be brief."), ChatMessage("user", "Hello!"), ChatMessage("assistant", "Hello.")]
QUESTION = ChatMessage("user", "What is 1 + 1?")


def try_model(path: Path, beside: Mapping[str, Path], stage: Callable[..., None]) -> dict[str, Any]:
    """Do with a model what leap does with it. Returns what was seen; raises LeapError for a model that llama.cpp
    refuses."""
    stage("loading")
    start = time.monotonic()
    model = LlamaModel(path)
    loaded = time.monotonic()
    stage("reading its vocabulary", load_seconds=round(loaded - start, 3))
    for token in range(model.n_tokens):
        model.piece(token)
    stage("cutting text into tokens")
    tokens = short_prompt(model)
    model.tokenize("".join(model.special_tokens)[:10_000], parse_special=True)
    options = ModelLoadingOptions()
    stage("making room for a conversation")
    context = LlamaContext(
        model, cells=CELLS, slots=1, batch_size=options.batch_size, threads=THREADS, flash_attention=True
    )
    stage("computing")
    start = time.monotonic()
    finite = decode_shortly(context, tokens)
    facts = {
        "prompt_tokens": len(tokens),
        "compute_seconds": round(time.monotonic() - start, 3),
        "memory_bytes": _peak_memory(),
        "answers_numbers": finite,
        "has_template": model.chat_template is not None,
        "can_generate": model.can_generate,
    }
    stage(TEMPLATE_STAGE, **facts, template_ends_process=True)
    return {"template_problem": _render(model), "template_ends_process": False}


def short_prompt(model: LlamaModel) -> list[int]:
    """A prompt of ordinary text, with the vocabulary's first and last token in it."""
    tokens = model.tokenize(EVERY_KIND_OF_TEXT, parse_special=True)
    tokens += [0, model.n_tokens - 1]
    return (tokens * PROMPT_TOKENS)[:PROMPT_TOKENS]


def decode_shortly(context: LlamaContext, tokens: list[int]) -> bool:
    """A prompt, then two tokens one after the other; whether the last logits are numbers."""
    import numpy as np

    context.clear()
    index = context.add(0, 0, tokens, output=True)
    _run(context)
    for position in (len(tokens), len(tokens) + 1):
        token = int(np.argmax(context.logits(index)))
        context.clear()
        index = context.add(0, position, [token], output=True)
        _run(context)
    return bool(np.isfinite(context.logits(index)).all())


def _run(context: LlamaContext) -> None:
    code = context.decode()
    if code != 0:
        raise LeapGenerationError(f"llama.cpp cannot decode a short prompt (code {code})")


def _render(model: LlamaModel) -> str | None:
    """What is wrong with the chat template, or None."""
    source = model.chat_template
    if source is None:
        return None
    try:
        template = ChatTemplate(
            source, bos_text=model.bos_text, eos_text=model.eos_text, special_texts=model.special_tokens
        )
        for messages in ([QUESTION], [*CONVERSATION, QUESTION]):
            pieces = template.render(messages)
            model.tokenize("".join(piece for piece in pieces if isinstance(piece, str)), parse_special=True)
    except LeapError as error:
        return error.message
    return None


def _peak_memory() -> int | None:
    """Bytes; None where the system does not say."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

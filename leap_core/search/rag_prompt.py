"""A question and the passages that were found for it, as a prompt of the form that LFM2-1.2B-RAG was trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..messages import ChatMessage
from .searching import Hit

OPENING = "The following documents may provide you additional information to answer questions:"
CITE = "Answer from the documents alone, and name the documents that you used as [1], [2] and so on."
STRICT = "If the documents do not hold the answer, say only: The documents do not say."
RAG_MODEL = "lfm2-1.2b-rag"
"""Was trained without instructions beside the documents."""


@dataclass(frozen=True)
class Source:
    """A passage that the prompt holds; ``number`` from 1."""

    number: int
    hit: Hit


def prompt_of(
    question: str,
    hits: Sequence[Hit],
    fits: Callable[[Sequence[ChatMessage]], bool],
    *,
    model_id: str = "",
    strict: bool = False,
) -> tuple[list[ChatMessage], list[Source]]:
    """The messages, and the passages in them: as many of the best ones as ``fits`` lets in. With none there is no
    system message about documents."""
    count = len(hits)
    while count:
        sources = [Source(number, hit) for number, hit in enumerate(hits[:count], 1)]
        messages = [ChatMessage("system", _system(sources, model_id, strict)), ChatMessage("user", question)]
        if fits(messages):
            return messages, sources
        count -= 1
    return [ChatMessage("user", question)], []


def _system(sources: Sequence[Source], model_id: str, strict: bool) -> str:
    documents = "\n\n".join(
        f"<document{source.number}>\n{_text(source.hit)}\n</document{source.number}>" for source in sources
    )
    instructions = [] if model_id.lower().startswith(RAG_MODEL) else [CITE]
    return "\n\n".join([f"{OPENING}\n\n{documents}", *instructions, *([STRICT] if strict else [])])


def _text(hit: Hit) -> str:
    passage = hit.passage
    return f"{passage.heading}\n{passage.text}" if passage.heading else passage.text

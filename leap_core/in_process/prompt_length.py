"""Texts that cannot fit a context are refused before a template is rendered over them and before they are tokenized."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import LeapGenerationPromptExceedContextLengthError
from ..llama.model import LlamaModel
from ..runner.giving_up import check_wanted

USUAL_BYTES = 6
"""Texts of more bytes for each token of the context are counted before anything else; languages have three to five."""
PIECE = 32 * 1024
"""Characters that are tokenized in one call: some hundredths of a second, then the client may have left."""
SURELY_LONGER = 2
"""Tokens of pieces are more than those of the whole text, by a few a cut: so many contexts of them never fit."""


def check_length(model: LlamaModel, texts: Sequence[str], context_size: int) -> None:
    """Raises LeapGenerationPromptExceedContextLengthError for texts that together are much longer than the context.

    The work is bounded by the context, whatever the length of the texts: it ends with the piece that shows it."""
    characters = sum(map(len, texts))
    if characters <= context_size * USUAL_BYTES:
        return
    tokens = 0
    for text in texts:
        for start in range(0, len(text), PIECE):
            check_wanted()
            tokens += len(model.tokenize(text[start : start + PIECE], parse_special=True))
            if tokens > SURELY_LONGER * context_size:
                raise LeapGenerationPromptExceedContextLengthError(tokens, context_size, at_least=True)

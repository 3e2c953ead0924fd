"""How likely the tokens of a completion were, as OpenAI's completions say it: lists with an entry for each token."""

from __future__ import annotations

from ..json_fields import JsonObject
import codecs
from collections.abc import Sequence
from typing import Any

from ..responses import Complete, TokenLogprob

Scored = tuple[bytes, "TokenLogprob | None"]


def text_logprobs(complete: Complete, prompt: str | None = None, first_token: str | None = None) -> JsonObject | None:
    """The lists, None where nothing was asked for: an entry for each token that was made, also for one that adds no
    text. ``prompt``: with its tokens before those of the answer; the first of them has no probability. ``first_token``:
    its text, where the prompt was given as tokens. ``top_logprobs`` have the token itself too. What a stop string cut
    off is left out."""
    if not complete.logprobs and not complete.prompt_logprobs:
        return None
    tokens = _of_prompt(prompt, complete.prompt_logprobs, first_token) if prompt is not None else []
    answer = complete.logprobs
    if complete.stop_string is not None:
        answer = _within(answer, complete.full_message.text)
    texts, offsets = [], []
    decoder, length = codecs.getincrementaldecoder("utf-8")("replace"), 0
    scored: list[Scored] = [*tokens, *((each.token, each) for each in answer)]
    for token, _ in scored:
        texts.append(_text(token))
        offsets.append(length)
        length += len(decoder.decode(token))
    scores = [score for _, score in scored]
    return {
        "tokens": texts,
        "token_logprobs": [None if score is None else score.logprob for score in scores],
        "top_logprobs": [None if score is None else _likeliest(score) for score in scores],
        "text_offset": offsets,
    }


def _of_prompt(prompt: str, scores: Sequence[TokenLogprob], first_token: str | None) -> list[Scored]:
    """The tokens of a prompt. Scores are of those after its first, which may be one that opens every text and that no
    prompt spells; OpenAI's first token has no score either."""
    text = prompt.encode("utf-8", "surrogatepass")
    rest = b"".join(each.token for each in scores)
    first = text.removesuffix(rest) if first_token is None else first_token.encode("utf-8", "surrogatepass")
    if first_token is not None or not scores or (first and first != text):
        return [(first, None), *((each.token, each) for each in scores)]
    return [(each.token, each if n else None) for n, each in enumerate(scores)]


def _within(scores: Sequence[TokenLogprob], text: str) -> tuple[TokenLogprob, ...]:
    """Those tokens that begin within the text."""
    room = len(text.encode("utf-8", "surrogatepass"))
    kept = []
    for score in scores:
        if room <= 0:
            break
        kept.append(score)
        room -= len(score.token)
    return tuple(kept)


def _likeliest(score: TokenLogprob) -> dict[str, float]:
    return {**{_text(token): logprob for token, logprob in score.top}, _text(score.token): score.logprob}


def _text(token: bytes) -> str:
    """A token's text; a part of a character is spelled as OpenAI spells it."""
    try:
        return token.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)

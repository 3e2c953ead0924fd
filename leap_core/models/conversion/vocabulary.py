"""A checkpoint's tokenizer.json as GGUF has it: tokens, their types, and how text is cut before the merges."""

from __future__ import annotations

from typing import Any

from ...errors import LeapModelLoadingError
from ...system.dataclass import dataclass
from .checkpoint import LLAMA, Family, damaged, read_json

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LOOKS_SPECIAL = ("<pad>", "<mask>", "<2mass>", "[@BOS@]")


@dataclass(frozen=True)
class CheckpointVocabulary:
    """``pre``: llama.cpp's name of how text is cut before merging."""

    tokens: list[str]
    types: list[int]
    pre: str


def read_vocabulary(family: Family) -> CheckpointVocabulary:
    """Raises LeapModelLoadingError for a tokenizer that is damaged, or that is no byte-level BPE of a known cut."""
    path = family.directory / "tokenizer.json"
    if not path.exists():
        raise family.refused(f"there is no tokenizer.json in {family.directory}")
    value = read_json(path)
    model = value.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE" or not isinstance(vocabulary, dict):
        raise family.refused(f"{path} is no byte-level BPE")
    size = family.number("vocab_size", most=4_000_000)
    by_id: dict[int, str] = {}
    for token, number in vocabulary.items():
        if type(number) is not int or not 0 <= number < size:
            raise damaged(path, f"the token {token[:40]!r} has the number {str(number)[:40]}, of {size}")
        by_id[number] = token
    added = _added(family, value, size)
    tokens, types = [], []
    for number in range(size):
        token = added[number]["content"] if number in added else by_id.get(number)
        if token is None:
            tokens.append(f"[PAD{number}]")
            types.append(UNUSED)
            continue
        special = number in added and (added[number].get("special") is True or _looks_special(token))
        if number in added and not special:
            token = token.replace("\u2581", " ")
        tokens.append(token)
        types.append(CONTROL if special else USER_DEFINED if number in added else NORMAL)
    return CheckpointVocabulary(tokens, types, _cut(family, value))


def _added(family: Family, value: dict[str, Any], size: int) -> dict[int, dict[str, Any]]:
    """Added tokens by number, those of tokenizer_config.json too."""
    entries = value.get("added_tokens") or []
    found = {}
    settings = family.directory / "tokenizer_config.json"
    beside = read_json(settings).get("added_tokens_decoder") if settings.exists() else None
    if isinstance(beside, dict):
        entries = [
            *(
                {**entry, "id": int(key)}
                for key, entry in beside.items()
                if isinstance(entry, dict) and key.isdecimal()
            ),
            *entries,
        ]
    for entry in entries:
        number = entry.get("id") if isinstance(entry, dict) else None
        if type(number) is not int or not 0 <= number < size or not isinstance(entry.get("content"), str):
            raise damaged(family.directory / "tokenizer.json", f"an added token is {str(entry)[:80]}, of {size}")
        found[number] = entry
    return found


def _looks_special(token: str) -> bool:
    pairs = (("<|", "|>"), ("<｜", "｜>"), ("<unused", ">"))
    return token in LOOKS_SPECIAL or any(token.startswith(begin) and token.endswith(end) for begin, end in pairs)


def _cut(family: Family, value: dict[str, Any]) -> str:
    """llama.cpp's name of the tokenizer's pre-tokenizer."""
    first = value.get("pre_tokenizer")
    steps: list[dict[str, Any]] = [first or {}]
    if isinstance(first, dict) and first.get("type") == "Sequence":
        steps = first["pretokenizers"]
    kinds = [step.get("type") for step in steps]
    lfm2 = family.architecture != LLAMA
    if value.get("normalizer") is None or not lfm2:
        if kinds == ["Split", "ByteLevel"] and steps[0].get("pattern") == {"Regex": LLAMA3}:
            return "lfm2" if lfm2 else "llama-bpe"
        if kinds == ["Digits", "ByteLevel"] and steps[0].get("individual_digits") is True and not lfm2:
            return "smollm"
        if kinds == ["ByteLevel"] and not lfm2:
            return "gpt-2"
    where = family.directory / "tokenizer.json"
    raise family.refused(f"{where} cuts text in a way that leap does not know for a {family.hf_name}")


def check_special(family: Family, vocabulary: CheckpointVocabulary, numbers: dict[str, int]) -> None:
    """Raises LeapModelLoadingError for special tokens beyond the vocabulary."""
    for kind, number in numbers.items():
        if not 0 <= number < len(vocabulary.tokens):
            raise LeapModelLoadingError(
                f"{family.directory}: the {kind} token is {number}, of {len(vocabulary.tokens)}"
            )

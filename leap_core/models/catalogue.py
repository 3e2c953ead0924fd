"""The models that leap knows by name: Liquid's LFM2 and LFM2.5, and what the user adds in ``catalogue.json`` in the
configuration directory, in the same form. An entry of the user's replaces one of the same name. ``families.json`` has
models of other makers by the short names that people give them, such as qwen3:0.6b.

    {"models": [{"name": "My-Model", "repo": "me/My-Model-GGUF", "quantizations": ["Q4_K_M"]}]}

Only ``name`` and ``repo`` are needed. Fields: see ``CatalogueEntry``. The shipped data follow Liquid's model cards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from ..conversation.options import AUTO, PARSERS, SamplingDefaults
from ..errors import LeapModelLoadingError, LeapModelNotFoundError, LeapOptionsError, LeapSerializationError
from ..inference.gguf.file_names import QUANTIZATION, REPOSITORY
from ..inference.llama.architectures import needs_of, runs_from
from ..inference.llama.library import current_engine
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from .manifest import INFERENCE_TYPES, SAMPLING_KEYS, likely_key

KEYS = (
    *("name", "repo", "kind", "parameters", "context", "quantizations", "default", "sampling", "parser", "about"),
    *("replaced_by", "needs", "obstacle", "also", "license"),
)
KINDS = (*INFERENCE_TYPES, "embedding")
BITS = {"Q4_0": 4.95, "Q4_K_M": 5.15, "Q5_K_M": 5.85, "Q6_K": 6.6, "Q8_0": 8.55}
BITS |= {"MXFP4": 4.6, "F16": 16.1, "BF16": 16.1}
"""A parameter takes this many bits in a file, all tensors together: measured on LFM2.5-350M's files."""
MOST_SUGGESTIONS = 4
_TAGGED = re.compile(rf"(?P<name>.+?)[:@._ -](?P<quantization>(?:UD-)?{QUANTIZATION}|FP16)", re.IGNORECASE)
_SIZE = re.compile(r"(?:^|[^\w.]|_)(\d+(?:\.\d+)?[bm])(?![^\W_])")
_OMITTED = re.compile(r"(?<=[^\W_])[-_ :.](?:gguf|instruct|it|chat|latest)(?=[-_ :.]|$)", re.IGNORECASE)


def plain(name: str) -> str:
    """A model's name as it is compared: without case, punctuation, and words that say that it is tuned for chat."""
    return folded(_OMITTED.sub("", name))


def folded(name: str) -> str:
    """A name without case and punctuation."""
    return re.sub(r"[\W_]+", "", name).lower()


def same_size(one: str, other: str) -> bool:
    """Whether two names may be of models of one size: qwen3:17b is not Qwen3-1.7B, though their letters are the
    same."""
    sizes = [set(_SIZE.findall(name.lower())) for name in (one, other)]
    return not all(sizes) or not sizes[0].isdisjoint(sizes[1])


def with_quantization(name: str) -> tuple[str, str] | None:
    """The name and the quantization of ``1b-instruct-q4_K_M``, ``repo:Q8_0`` or ``name@q8_0``."""
    match = _TAGGED.fullmatch(name)
    return None if match is None else (match["name"], match["quantization"].upper().replace("FP16", "F16"))


@dataclass(frozen=True)
class CatalogueEntry:
    """``repo`` is owner/name on the hub; ``kind`` text, vision, audio or embedding; ``parameters`` in millions, without
    those of companions; ``context`` in tokens; ``default`` the quantization that is taken when none is named;
    ``parser`` how the model writes calls (auto, lfm, hermes); ``replaced_by`` the model that its maker recommends
    instead; ``needs`` the first llama.cpp that runs it, where leap's does not; ``obstacle`` why leap cannot run
    it, where no newer llama.cpp helps; ``also`` its other names, the short one first; ``license`` its name."""

    name: str
    repo: str
    kind: str = "text"
    parameters: int | None = None
    context: int | None = None
    quantizations: tuple[str, ...] = ()
    default: str | None = None
    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)
    parser: str = AUTO
    about: str = ""
    replaced_by: str | None = None
    needs: str | None = None
    obstacle: str | None = None
    also: tuple[str, ...] = ()
    license: str | None = None

    @property
    def short(self) -> str:
        """The name that is quickest to type."""
        return self.also[0] if self.also else self.name

    @property
    def runs(self) -> bool:
        """Whether leap can run it."""
        return (self.needs is None or runs_from(self.needs)) and self.obstacle is None

    @property
    def remarks(self) -> list[str]:
        """What there is to say against it."""
        values = (("replaced by", self.replaced_by), ("needs llama.cpp", self.needs), ("cannot run:", self.obstacle))
        return [f"{words} {value}" for words, value in values if value]

    def bytes_in(self, quantization: str | None = None) -> int | None:
        """About how large the model's file is, in this quantization or the default one; None where it is not known."""
        bits = BITS.get(quantization or self.default or "")
        return None if bits is None or self.parameters is None else int(self.parameters * 10**6 * bits / 8)

    def check_runs(self) -> None:
        """Raises LeapModelLoadingError for a model that this llama.cpp cannot run."""
        if self.needs is not None and not runs_from(self.needs):
            raise LeapModelLoadingError(
                f"{self.name} needs llama.cpp {self.needs} or newer", hint=needs_of(None, current_engine())
            )
        if self.obstacle is not None:
            raise LeapModelLoadingError(
                f"{self.name} cannot run: {self.obstacle}", hint="`leap models catalogue` lists what does"
            )

    def to_json(self) -> JsonObject:
        sampling = {key: value for key in SAMPLING_KEYS if (value := getattr(self.sampling, key)) is not None}
        values = {key: getattr(self, key) for key in KEYS if key != "sampling"}
        sizes = {name: size for name in self.quantizations if (size := self.bytes_in(name)) is not None}
        lists = {"quantizations": list(self.quantizations), "also": list(self.also)}
        return values | lists | {"sampling": sampling, "sizes": sizes}


class Catalogue:
    """Entries by name; names are found without case and punctuation, and by unique prefix. To iterate gives Liquid's
    and the user's."""

    def __init__(self, entries: Iterable[CatalogueEntry]) -> None:
        self._entries = {entry.name.lower(): entry for entry in entries}

    @cached_property
    def families(self) -> list[CatalogueEntry]:
        """Models of other makers."""
        return parse_catalogue(Path(__file__).with_name("families.json").read_bytes(), "families.json")

    @cached_property
    def _called(self) -> dict[str, CatalogueEntry]:
        """All entries by each of their names, as those are compared."""
        called: dict[str, CatalogueEntry] = {}
        for entry in (*self._entries.values(), *self.families):
            for name in (entry.name, entry.repo, entry.repo.partition("/")[2], *entry.also):
                called.setdefault(folded(name), entry)
        for entry in self.families:
            for name in (entry.name, entry.repo, *entry.also):
                called.setdefault(plain(name), entry)
        return called

    def called(self, name: str) -> tuple[CatalogueEntry, str | None] | None:
        """The entry that goes by this name, and the quantization in it; None for any other name."""
        for part, quantization in filter(None, ((name, None), with_quantization(name))):
            for key in (folded(part), *(() if "/" in part else (plain(part),))):  # a repository is one only
                entry = self._called.get(key)
                if entry is not None and same_size(part, " ".join((entry.name, entry.repo, *entry.also))):
                    return entry, quantization
        return None

    @staticmethod
    def load(config: Path | None = None) -> Catalogue:
        """The shipped catalogue and the user's, ``config/catalogue.json``. Raises LeapSerializationError for that."""
        shipped = Path(__file__).with_name("catalogue.json").read_bytes()
        entries = parse_catalogue(shipped, "catalogue.json")
        own = config / "catalogue.json" if config else None
        if own is not None and own.is_file():
            entries += parse_catalogue(own.read_bytes(), str(own))
        return Catalogue(entries)

    def __iter__(self) -> Any:
        return iter(self._entries.values())

    def exact(self, name: str) -> CatalogueEntry | None:
        """The entry of this name; ``-GGUF`` at its end and ``LiquidAI/`` before it are not needed."""
        key = name.lower().removeprefix("liquidai/")
        return self._entries.get(key) or self._entries.get(key.removesuffix("-gguf"))

    def of_repository(self, repo: str) -> CatalogueEntry | None:
        """The entry whose files lie in this repository."""
        entries = (*self._entries.values(), *self.families)
        return next((entry for entry in entries if entry.repo.lower() == repo.lower()), None)

    def find(self, name: str) -> CatalogueEntry:
        """The entry of this name, or the only one that begins with it; of several the one with which all others begin.

        Raises LeapModelNotFoundError with what was probably meant.
        """
        same_name = self.called(name)
        if same_name is not None:
            return same_name[0]
        names = [entry.name for key, entry in self._entries.items() if key.startswith(name.lower())]
        shortest = min(names, key=len, default="")
        if names and all(other.startswith(shortest) for other in names):
            return self._entries[shortest.lower()]
        start = folded(name)
        near = {
            each.short: each
            for each in self.families
            if len(start) > 2 and folded(each.short).startswith(start) and same_size(name, each.short)
        }
        if len(near) == 1 and not names:
            return next(iter(near.values()))
        if names or near:
            raise LeapModelNotFoundError(f"{name!r} could be {_some([*names, *near])}", hint="write the whole name")
        near_names = self.suggestions(name)
        known = "`leap models catalogue` lists the names that leap knows"
        hint = f"did you mean {_some(near_names)}?" if near_names else known
        raise LeapModelNotFoundError(f"there is no model {name!r}", hint=f"{hint}; {OTHERS}")

    def suggestions(self, name: str) -> list[str]:
        """The names most like ``name``, best first."""
        names = {key: entry.name for key, entry in self._entries.items()}
        for entry in self.families:
            names |= {each.lower(): each if "/" not in each else entry.short for each in (entry.name, *entry.also)}
        near = get_close_matches(name.lower(), names, MOST_SUGGESTIONS, 0.6)
        inside = [key for key in names if name and name.lower() in key]
        return list(dict.fromkeys(names[key] for key in near + inside))[:MOST_SUGGESTIONS]


OTHERS = "OWNER/REPO is a repository of GGUF files on Hugging Face, and `leap models search WORDS` finds one"
"""What else a name may be."""


def parse_catalogue(text: bytes, source: str) -> list[CatalogueEntry]:
    """Read a catalogue's JSON. Raises LeapSerializationError naming file, entry and key."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LeapSerializationError(f"not JSON: {error}", path=source) from None
    models = value.get("models") if isinstance(value, dict) else None
    if not isinstance(models, list):
        raise LeapSerializationError('expected an object with a list "models"', path=source)
    return [_entry(model, f"{source}: models[{number}]") for number, model in enumerate(models)]


def _entry(value: Any, at: str) -> CatalogueEntry:
    if not isinstance(value, dict):
        raise LeapSerializationError("expected an object", path=at)
    for key in value:
        if key not in KEYS:
            likely = likely_key(key, KEYS)
            advice = f"; did you mean {likely!r}?" if likely else f"; there are {', '.join(KEYS)}"
            raise LeapSerializationError(f"there is no such key{advice}", path=f"{at}.{key}")
    for key, kinds in _TYPES.items():
        if key in value and (not isinstance(value[key], kinds) or isinstance(value[key], bool)):
            raise LeapSerializationError(f"{value[key]!r} has the wrong type", path=f"{at}.{key}")
    if not value.get("name"):
        raise LeapSerializationError("is missing", path=f"{at}.name")
    if not REPOSITORY.fullmatch(value.get("repo", "")):
        raise LeapSerializationError("must be owner/name", path=f"{at}.repo")
    if value.get("kind", "text") not in KINDS:
        raise LeapSerializationError(f"is not one of {', '.join(KINDS)}", path=f"{at}.kind")
    if value.get("parser", AUTO) not in PARSERS:
        raise LeapSerializationError(f"is not one of {', '.join(PARSERS)}", path=f"{at}.parser")
    sampling = value.get("sampling", {})
    try:
        defaults = SamplingDefaults(**sampling)
    except (TypeError, LeapOptionsError) as error:
        raise LeapSerializationError(str(error), path=f"{at}.sampling") from None
    quantizations = tuple(str(name).upper() for name in value.get("quantizations", ()))
    also = tuple(map(str, value.get("also", ())))
    return CatalogueEntry(**{**value, "quantizations": quantizations, "sampling": defaults, "also": also})


_TYPES: dict[str, type] = {
    "name": str,
    "repo": str,
    "kind": str,
    "context": int,
    "quantizations": list,
    "default": str,
    "sampling": dict,
    "parser": str,
    "about": str,
    "parameters": int,
    "replaced_by": str,
    "needs": str,
    "obstacle": str,
    "also": list,
    "license": str,
}


def _some(names: list[str]) -> str:
    first = names[:MOST_SUGGESTIONS]
    rest = len(names) - len(first)
    listed = ", ".join(first[:-1]) + (" or " if len(first) > 1 else "") + first[-1]
    return f"{', '.join(first)} and {rest} more" if rest else listed

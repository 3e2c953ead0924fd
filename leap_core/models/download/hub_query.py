"""Models on the hub that run here: GGUF files of architectures that this llama.cpp knows, with their sizes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from ...errors import LeapModelDownloadError
from ...inference.gguf.file_names import REPOSITORY, by_quantization, parts_of, preferred_quantization
from ...inference.llama.architectures import DRAFTS, KNOWN
from ...system.dataclass import dataclass
from ..catalogue import Catalogue
from ..http import RetryPolicy, Web
from ..hub import Hub, HubSearchResult
from ..hub_settings import HubSettings

RETRIES = 2
AT_ONCE = 4
NO_MODELS = frozenset({"clip", "wavtokenizer-dec"}) | DRAFTS
"""Architectures of companions and drafts, which answer nothing alone."""


@dataclass(frozen=True)
class FoundModel(HubSearchResult):
    """A repository with GGUF models. ``sizes``: bytes of the model's file, all parts of a split one, by quantization,
    "" where a name has none; ``default``: the quantization that is fetched when none is named."""

    sizes: dict[str, int]
    default: str


@dataclass(frozen=True)
class HubSearch:
    """``models`` that run here, the most downloaded first; ``others``: how many more were found that do not, or of
    which the hub does not say what they are."""

    models: list[FoundModel]
    others: int


def search_hub(words: str, variables: Mapping[str, str], catalogue: Catalogue, most: int = 10) -> HubSearch:
    """Ask the hub for up to ``most`` models. Raises LeapModelDownloadError when it cannot be asked."""
    settings = HubSettings.from_environment(variables)
    if settings.offline:
        raise LeapModelDownloadError("HF_HUB_OFFLINE is set, so no hub can be searched", hint="unset it to search")
    policy = RetryPolicy(threading.Event(), retries=RETRIES, hint="run the same command again later")
    with Web(settings) as web:
        hub = Hub(web, policy.run)
        found = hub.search(words)
        fitting = [each for each in found if _runs(each, catalogue)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            described = pool.map(lambda each: _described(hub, each, catalogue), islice(fitting, most))
            models = [model for model in described if model is not None]
    return HubSearch(models, len(found) - len(fitting))


def _runs(found: HubSearchResult, catalogue: Catalogue) -> bool:
    if not REPOSITORY.fullmatch(found.repo):
        return False
    entry = catalogue.of_repository(found.repo)
    return found.architecture in KNOWN - NO_MODELS and (entry is None or entry.runs)


def _described(hub: Hub, found: HubSearchResult, catalogue: Catalogue) -> FoundModel | None:
    """None for a repository that has no model, or that is gone by now."""
    try:
        files = hub.listing(found.repo).files
    except LeapModelDownloadError as error:
        if error.status in (401, 403, 404):
            return None
        raise
    models = by_quantization(path for path in files if "/" not in path) or by_quantization(files)
    sizes = {name: sum(files[part].size for part in parts_of(path, files)) for name, path in models.items()}
    entry = catalogue.of_repository(found.repo)
    default = preferred_quantization(sizes, entry.default if entry else None)
    if default is None:
        return None
    return FoundModel(**vars(found), sizes=sizes, default=default)

"""Downloads: the plan, the transfer of each file, what is said meanwhile, and the SDK's downloader over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .downloading import download_model as download_model


def __getattr__(name: str) -> object:
    if name != "download_model":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .downloading import download_model

    return download_model

"""What the environment says about hubs: where they are, the token for them, whether they may be asked at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...addresses import masked
from ...errors import LeapModelDownloadError
from .foreign_caches import ForeignCaches, hugging_face_home

HUGGING_FACE = "https://huggingface.co"
REGISTRY = "https://leap.liquid.ai"
STALL_SECONDS = 20.0
CERTIFICATE_FILES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
TRUE = ("1", "on", "yes", "true")


@dataclass(frozen=True)
class HubSettings:
    """``endpoint``: the hub. ``token``: sent to that origin only. ``offline``: send nothing. ``registry``: the LEAP
    registry. ``stall_seconds``: how long a connection may be silent. ``ca_file``: certificates to trust instead."""

    endpoint: str = HUGGING_FACE
    token: str | None = field(default=None, repr=False)
    offline: bool = False
    registry: str = REGISTRY
    stall_seconds: float = STALL_SECONDS
    ca_file: str | None = None
    caches: ForeignCaches = field(default_factory=lambda: ForeignCaches.from_environment({}))

    @staticmethod
    def from_environment(variables: Mapping[str, str]) -> HubSettings:
        """Read HF_ENDPOINT, HF_TOKEN (or the token file), HF_HOME, HF_HUB_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT,
        LEAP_REGISTRY, and the first of CERTIFICATE_FILES. Proxies are httpx's own business.

        Raises LeapModelDownloadError for a value that cannot be used.
        """
        return HubSettings(
            endpoint=endpoint_of(variables),
            token=_token(variables),
            offline=variables.get("HF_HUB_OFFLINE", "").lower() in TRUE,
            registry=_base(variables.get("LEAP_REGISTRY") or REGISTRY, "LEAP_REGISTRY"),
            stall_seconds=_seconds(variables.get("HF_HUB_DOWNLOAD_TIMEOUT")),
            ca_file=next((variables[name] for name in CERTIFICATE_FILES if variables.get(name)), None),
            caches=ForeignCaches.from_environment(variables),
        )

    def with_stall(self, seconds: float) -> HubSettings:
        """A copy with another patience for silent connections."""
        return replace(self, stall_seconds=seconds)


def endpoint_of(variables: Mapping[str, str]) -> str:
    """The hub's base URL, without a slash at its end."""
    return _base(variables.get("HF_ENDPOINT") or HUGGING_FACE, "HF_ENDPOINT")


def _base(url: str, name: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise LeapModelDownloadError(f"{name} is {masked(url)!r}, which is not a http(s) URL")
    return url.rstrip("/")


def _seconds(text: str | None) -> float:
    if not text:
        return STALL_SECONDS
    with suppress(ValueError):
        if 0 < (value := float(text)) < 86_400:
            return value
    raise LeapModelDownloadError(f"HF_HUB_DOWNLOAD_TIMEOUT is {text!r}, which is not a number of seconds")


def _token(variables: Mapping[str, str]) -> str | None:
    token = variables.get("HF_TOKEN") or variables.get("HUGGING_FACE_HUB_TOKEN") or ""
    where = "HF_TOKEN"
    if not token and variables.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").lower() not in TRUE:
        path = variables.get("HF_TOKEN_PATH")
        file = Path(os.path.expanduser(path)) if path else hugging_face_home(variables) / "token"
        where = str(file)
        with suppress(OSError):
            token = file.read_text(encoding="utf-8", errors="replace")
    token = token.strip()
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise LeapModelDownloadError(f"the token in {where} holds characters that no token has")
    return token or None

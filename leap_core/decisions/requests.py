"""What both protocols' requests become, and what they share: how to ask (``leap``), pictures, and what is known of an
answer beyond the protocol (``x_…``)."""

from __future__ import annotations

from ..json_fields import JsonObject
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import LeapSerializationError
from ..json_fields import object_at
from ..media.fetching import UrlAccess
from ..messages import ChatMessageContent, Image
from .answers import Answer, how_sure
from .deciding import Settings
from .questions import Decision

MOST_PICTURES = 8


@dataclass(frozen=True)
class DecisionRequest:
    """A request of either protocol."""

    model: str | None
    decision: Decision
    settings: Settings


def model_of(body: JsonObject) -> str | None:
    """The model's name. Raises LeapSerializationError."""
    name = body.get("model")
    if name is not None and not isinstance(name, str):
        raise LeapSerializationError("expected a model's name", path="model")
    return name


def settings_of(body: JsonObject) -> Settings:
    """How to ask: ``"leap": {"readout": "labels", "orders": 4}``. Raises LeapSerializationError, LeapOptionsError."""
    asked = object_at(body.get("leap") or {}, "leap")
    for name in asked:
        if name not in ("readout", "orders"):
            raise LeapSerializationError("there is no such field", path=f"leap.{name}")
    orders = asked.get("orders", 1)
    if type(orders) is not int:
        raise LeapSerializationError("expected a whole number", path="leap.orders")
    return Settings(asked.get("readout"), orders)


def picture_at(url: object, path: str, urls: UrlAccess) -> Image:
    """The picture that a URL leads to. Raises LeapSerializationError."""
    part = ChatMessageContent.from_json({"type": "image_url", "image_url": {"url": url}}, path, urls=urls)
    assert isinstance(part, Image)
    return part


def check_pictures(count: int) -> None:
    """Raises LeapSerializationError for more than a request may have."""
    if count > MOST_PICTURES:
        raise LeapSerializationError(f"{count} pictures are more than {MOST_PICTURES}", path="input")


def extras_of(answer: Answer) -> Mapping[str, Any]:
    """What clients that do not know leap pass over."""
    return {f"x_{name}": value for name, value in how_sure(answer).items() if name != "confidence"}

"""Which models an endpoint has."""

from __future__ import annotations

from ..errors import LeapModelNotFoundError
from .connection import Connection


def only_model(connection: Connection) -> str:
    """The name of the endpoint's only model. Raises LeapModelNotFoundError where it has none, or several."""
    endpoint = connection.endpoint
    value = connection.ask("GET", f"{endpoint.url}/models")
    listed = value.get("data") if isinstance(value, dict) else None
    names = [str(each["id"]) for each in listed or () if isinstance(each, dict) and "id" in each]
    if len(names) == 1:
        return names[0]
    has = f"several models: {', '.join(names[:5])}" if names else "no model that it names"
    raise LeapModelNotFoundError(f"{endpoint.host} has {has}", hint=f"name one: {endpoint.name or endpoint.url}#MODEL")

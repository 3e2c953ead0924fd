"""A random name for a data directory, by which a server tells its worker from that of a copied directory or machine."""

from __future__ import annotations

import json
import secrets
import uuid
from contextlib import suppress
from pathlib import Path

from leap_core.storage.atomic_files import replacing
from leap_core.storage.directories import private_directory

FILE = "worker-id.json"
MULTICAST = 1 << 40
"""The bit of a hardware address that stands for none: Python draws a random one in each process then."""


def identity_of(data: Path) -> str:
    """The name, made when it is asked for first. A copy gets another one: the file says which directory on which
    machine it was made for."""
    path = private_directory(data) / FILE
    place = [str(data.resolve()), data.stat().st_ino, _hardware()]
    with suppress(OSError, ValueError, KeyError, TypeError):
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["place"] == place:
            return str(value["id"])
    id = secrets.token_hex(8)
    with replacing(path, mode=0o600) as file:
        file.write(json.dumps({"id": id, "place": place}).encode())
    return id


def _hardware() -> int | None:
    node = uuid.getnode()
    return None if node & MULTICAST else node

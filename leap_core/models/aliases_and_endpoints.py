"""Names that the user gave models in config.toml: aliases, and endpoints, remote models (``https://host/v1#name``).

[aliases]
coder = "LFM2.5-1.2B-Instruct:Q8_0"

[endpoints.far]
url = "https://host/v1"
model = "name"
key_variable = "FAR_KEY"
path = "/api/chat"                      # where chats are asked for, instead of /chat/completions
headers = { HTTP-Referer = "https://…" }  # sent with every request
body = { provider = { order = ["one"] } }  # fields of every request, also such as leap does not know

A key itself is never in the file: ``key_variable`` names the variable that has it, ``key_file`` the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..errors import LeapEndpointError, LeapOptionsError, LeapSerializationError
from ..system.configuration import offline, read_table, table_or_error
from ..system.dataclass import dataclass
from ..system.directories import Directories

NAME = re.compile(r"[^\W_][\w+-]*(\.[\w+-]+)*")
MODEL_ENDINGS = (".gguf", ".json", ".bundle")
BUILTINS = ("builtin", "builtin-vl", "builtin-audio", "builtin-embed")
"""The models that leap brings along: one that reads, one that sees, one that hears, one that embeds."""


def read_aliases(file: Path) -> dict[str, str]:
    """The aliases in config.toml, by their names in lower case. What is no alias, or no file, gives none: those who
    change the file are shown what is wrong with it."""
    with suppress(LeapSerializationError):
        table = read_table(file).get("aliases")
        if isinstance(table, dict):
            return {name.lower(): model for name, model in table.items() if isinstance(model, str) and model}
    return {}


def check_alias(name: str, model: str) -> None:
    """Raises LeapOptionsError for a name that would be read as a path or a reference, and for an empty model."""
    if not NAME.fullmatch(name) or name.lower().endswith(MODEL_ENDINGS) or name.lower() in BUILTINS:
        raise LeapOptionsError("alias", f"{name!r} cannot be a model's name: letters, digits and .+-_ only")
    if not model.strip():
        raise LeapOptionsError("alias", f"{name!r} must name a model")


def expand(reference: str, quantization: str | None, aliases: Mapping[str, str]) -> tuple[str, str | None]:
    """The reference that an alias means, and the quantization that was asked for beside it. Anything else is
    returned as it is; an alias of an alias is not looked up."""
    name, colon, after = reference.strip().partition(":")
    model = aliases.get(name.lower())
    if model is None or (colon and "/" in after):
        return reference, quantization
    return model, after if colon and quantization is None and after.lower() != "latest" else quantization


TABLE = "endpoints"
TEXTS = ("url", "model", "key_variable", "key_file", "path")
TABLES = ("headers", "body")


@dataclass(frozen=True)
class Endpoint:
    """Where a remote model is. ``url``: the base of its protocol, such as ``https://host/v1``. ``model``: None asks
    the endpoint which it has. ``name``: in config.toml. ``key``: where it was handed over. ``path``: behind ``url``,
    where chats are asked for. ``headers`` go with every request, ``body`` are fields of it that override leap's."""

    url: str
    model: str | None = None
    name: str | None = None
    key_variable: str | None = None
    key_file: str | None = None
    key: str | None = field(default=None, repr=False)
    path: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and not re.fullmatch(r"/[!-~]*", self.path):
            raise LeapOptionsError("path", f"{self.path!r} is no path: it begins with / and has no spaces")
        for name, value in self.headers.items():
            if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
                raise LeapOptionsError("headers", f"{name!r} cannot be a header's name")
            if not isinstance(value, str) or not (value.isascii() and value.isprintable()):
                raise LeapOptionsError("headers", f"the value of {name} is no line of ASCII text")

    @property
    def host(self) -> str:
        """The server, for people."""
        return urlsplit(self.url).netloc

    @property
    def label(self) -> str:
        """What records call the model."""
        return self.model or self.name or self.host

    def read_key(self, variables: Mapping[str, str]) -> str | None:
        """The key, None where there is none. Raises LeapEndpointError where it is not where it should be."""
        if self.key is not None:
            return _checked_key(self.key, "api_key")
        if self.key_variable is not None:
            key = variables.get(self.key_variable, "").strip()
            if not key:
                raise LeapEndpointError(
                    f"${self.key_variable}, which has the key of {self.name or self.host}, is not set",
                    hint=f"export {self.key_variable}=…, or keep the key in a file (--key-file)",
                )
            return _checked_key(key, f"${self.key_variable}")
        if self.key_file is not None:
            try:
                return _checked_key(Path(self.key_file).expanduser().read_text("utf-8").strip(), self.key_file)
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "no text in UTF-8"
                raise LeapEndpointError(f"cannot read the key in {self.key_file}: {reason}") from None
        return None


def _checked_key(key: str, where: str) -> str:
    if not key or not (key.isascii() and key.isprintable() and " " not in key):
        raise LeapEndpointError(f"{where} holds no key: it is empty, or has characters that no key has")
    return key


def find_endpoint(reference: str, directories: Directories) -> Endpoint | None:
    """The endpoint that a reference means; None where it means something else. Raises LeapOptionsError for an address
    that cannot be used, LeapSerializationError for an entry of config.toml that is none."""
    file = directories.config_file
    text = expand(reference.strip(), None, read_aliases(file))[0]
    if "://" in text:
        if not is_endpoint_url(text):
            return None
        url, _, model = text.partition("#")
        asked = Endpoint(base_url(url), model or None)
        of_url = (each for each in _known(file).values() if each.url == asked.url)
        return replace(next(of_url, asked), model=asked.model, name=None)
    name, _, model = text.partition("#")
    found = _known(file).get(name.lower()) if name else None
    return found if found is None or not model else replace(found, model=model)


def is_endpoint_url(text: str) -> bool:
    """Whether a URL is an endpoint's: of its protocol's base, or with a model's name behind ``#``."""
    scheme, _, rest = text.partition("://")
    path, mark, _ = rest.partition("#")
    if scheme.lower() not in ("http", "https") or path.partition("?")[0].lower().endswith(MODEL_ENDINGS):
        return False
    return bool(mark) or path.rstrip("/").endswith("/v1")


def base_url(url: str) -> str:
    """The URL without a slash at its end. Raises LeapOptionsError for one that cannot be an endpoint's."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise LeapOptionsError("url", "it is no address of a server") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise LeapOptionsError("url", "an endpoint is http(s)://host/v1")
    if parts.username or parts.password or parts.query:
        raise LeapOptionsError(
            "url", "put the key into a variable or a file, not into the URL (--key-variable, --key-file)"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/").removesuffix("/chat/completions")


def known_endpoints(file: Path) -> dict[str, Endpoint]:
    """The endpoints in config.toml by their names. Raises LeapSerializationError for an entry that is none."""
    table = read_table(file).get(TABLE, {})
    if not isinstance(table, dict):
        raise LeapSerializationError(f"{TABLE} must be a table", path=str(file))
    return {name: _read(name, entry, file) for name, entry in table.items()}


def check_endpoint_name(name: str) -> None:
    """Raises LeapOptionsError for a name that would be read as something else."""
    if not NAME.fullmatch(name) or "." in name or name.lower() in BUILTINS:
        raise LeapOptionsError("name", f"{name!r} cannot be an endpoint's name: letters, digits and +-_ only")


def refuse_offline(variables: Mapping[str, str] | None = None) -> None:
    """Raises LeapEndpointError where the user wants nothing to leave the machine."""
    variables = os.environ if variables is None else variables
    where = offline(Directories.from_environment(variables).config_file, variables)
    if where is not None:
        raise LeapEndpointError(f"{where} refuses remote models", hint="use a local model, such as -m builtin")


def _known(file: Path) -> dict[str, Endpoint]:
    """By names in lower case; none where the file cannot be read, which those say who change it."""
    if isinstance(table_or_error(file), LeapSerializationError):
        return {}
    return {name.lower(): each for name, each in known_endpoints(file).items()}


def _read(name: str, entry: Any, file: Path) -> Endpoint:
    where = f"{TABLE}.{name}"
    if not isinstance(entry, dict) or not isinstance(entry.get("url"), str):
        raise LeapSerializationError(f"{where} needs a url", path=str(file))
    for key, value in entry.items():
        if not isinstance(value, str if key in TEXTS else dict if key in TABLES else ()):
            raise LeapSerializationError(
                f"{where} knows {', '.join(TEXTS)}: texts, and {' and '.join(TABLES)}: tables", path=str(file)
            )
    return Endpoint(**{**entry, "url": base_url(entry["url"]), "name": name})

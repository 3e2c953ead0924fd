"""How a model is named: the grammar of references.

builtin  builtin-vl  builtin-audio  …        the small models that leap brings along
    ./model.gguf  models/mine.json  ~/mine/      a GGUF file, a manifest, a directory
    LFM2.5-1.2B-Instruct[:Q4_K_M]                a name of the catalogue (any case, a unique beginning is enough)
    LFM2.5-1.2B-Instruct-Q4_K_M                  the same, or the directory of an installed model
    qwen3:0.6b  llama3.2:1b-instruct-q8_0        a short name of a model of another maker
    ollama/NAME  NAME:latest  NAME@q8_0          the same names as other programs write them
    my-model[:Q8_0]                              an installed model without its quantization, or an alias
    owner/repo[:Q4_K_M]                          a repository on the hub, or its page's address
    hf:owner/repo[@revision]/[folder/]file.gguf  a file in it (a manifest's .json too)
    https://… or file://…                        a GGUF or a manifest by URL

Knows names only; whether they exist is asked elsewhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import LeapModelLoadingError, LeapModelNotFoundError, LeapSerializationError
from ..inference.gguf.file_names import QUANTIZATION, REPOSITORY, NameParts, preferred_quantization, split_name
from ..system.dataclass import dataclass
from .aliases_and_endpoints import BUILTINS, MODEL_ENDINGS, expand
from .catalogue import OTHERS, Catalogue, CatalogueEntry, with_quantization
from .manifest import path_of_file_url
from .store import InstalledModel

BUILTIN = "builtin"
MOST_NAMED = 5
_QUANTIZATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_HUB_FILE = re.compile(rf"(?P<repo>{REPOSITORY.pattern})(?:@(?P<revision>[^/@]+))?/(?P<path>.+)")
_HUB_PAGE = re.compile(rf"/(?P<repo>{REPOSITORY.pattern})/(?:resolve|blob)/(?P<revision>[^/]+)/(?P<path>.+)")


@dataclass(frozen=True)
class Builtin:
    """A model that leap brings along: one of BUILTINS."""

    name: str = BUILTIN


@dataclass(frozen=True)
class LocalPath:
    """A GGUF file, a manifest or a directory on this machine; it may not exist."""

    path: Path


@dataclass(frozen=True)
class InstalledName:
    """The name of a directory in the store."""

    name: str


@dataclass(frozen=True)
class CatalogueName:
    """An entry of the catalogue, and the quantization that was asked for."""

    entry: CatalogueEntry
    quantization: str | None


@dataclass(frozen=True)
class Repository:
    """A repository on the hub, and the quantization that was asked for."""

    repo: str
    quantization: str | None
    revision: str | None = None


@dataclass(frozen=True)
class HubFile:
    """One file of a repository on the hub: a GGUF or a manifest."""

    repo: str
    path: str
    revision: str | None = None


@dataclass(frozen=True)
class Url:
    """A GGUF or a manifest on some other server."""

    url: str


Reference = Builtin | LocalPath | InstalledName | CatalogueName | Repository | HubFile | Url


def parse_reference(
    text: str,
    catalogue: Catalogue,
    *,
    quantization: str | None = None,
    installed: Iterable[str] = (),
    aliases: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    endpoint: str = "https://huggingface.co",
) -> Reference:
    """What ``text`` names. ``installed``: names of the store's directories. ``aliases``: references by the names that
    the user gave them, in lower case. ``endpoint``: the hub, whose own URLs
    become HubFiles. ``quantization`` replaces the part after a colon.

    Raises LeapModelNotFoundError for a name that nothing answers to, with likely ones, and LeapModelLoadingError for
    what leap cannot run.
    """
    installed, aliases = list(installed), aliases or {}
    first: LeapModelNotFoundError | None = None
    is_alias = text.strip().partition(":")[0].lower() in aliases
    for spelling in [text] if is_alias else spellings(text, cwd):
        try:
            named = expand(spelling, quantization, aliases)
            return _parse(*named, catalogue, installed=installed, cwd=cwd, endpoint=endpoint)
        except LeapModelNotFoundError as error:
            first = first or error
    assert first is not None
    raise first


LONGEST_NAME = 4096
_PROVIDER = re.compile(
    r"(?:https?://)?(?:(?:registry|www)\.)?ollama\.(?:com|ai)/"
    r"|(?:ollama|ollama_chat|lm[_-]?studio|llama[._-]?cpp|jan|gpt4all|(?:index\.)?docker(?:\.io)?|ramalama|huggingface|library)"
    r"(?:://|:|/)",
    re.IGNORECASE,
)
"""What other programs and routers write before a model's name."""
_MAYBE_OWNER = re.compile(r"(?:openai|ai|leap)/", re.IGNORECASE)
"""The same, where it may also be the owner of a repository."""
_AT = re.compile(rf"@(?={QUANTIZATION}$)", re.IGNORECASE)


def spellings(text: str, cwd: Path | None = None) -> list[str]:
    """A name without what other programs put around it; then as it is, where that can be a name too. Raises
    LeapModelNotFoundError for what is no name."""
    text = text.strip()
    if not text:
        raise LeapModelNotFoundError("the model's name is empty")
    if len(text) > LONGEST_NAME:
        raise LeapModelNotFoundError(f"there is no model {text[:80] + '…'!r}", hint=OTHERS)
    if _looks_like_path(text) or ("/" in text and os.path.exists(_absolute(text, cwd))):
        return [text]
    while (match := _PROVIDER.match(text)) is not None and match.end() < len(text):
        text = text[match.end() :]
    if text.lower().endswith(":latest") and len(text) > len(":latest"):
        text = text[: -len(":latest")]
    text = _AT.sub(":", text)
    maybe = _MAYBE_OWNER.match(text)
    return [text] if maybe is None or maybe.end() == len(text) else [text[maybe.end() :], text]


def _parse(
    text: str,
    quantization: str | None,
    catalogue: Catalogue,
    *,
    installed: Sequence[str],
    cwd: Path | None,
    endpoint: str,
) -> Reference:
    """``parse_reference`` for one spelling of a name that is no alias."""
    if text.lower() in BUILTINS:
        return Builtin(text.lower())
    if (page := _page(text, endpoint)) is not None and not os.path.exists(_absolute(text, cwd)):
        if _HUB_FILE_ADDRESS.match(page):
            return _url(f"{endpoint}/{page}", "https", endpoint)
        return _hub_page(page, text, quantization)
    if text.lower().startswith("hf:"):
        return _hub_file(text[3:].removeprefix("//"), text, catalogue, quantization)
    scheme, rest, _ = text.partition("://")
    if rest:
        return _url(text, scheme.lower(), endpoint)
    if _looks_like_path(text):
        return _local(text, cwd, catalogue)
    if (entry := catalogue.exact(text)) is not None:
        return CatalogueName(entry, quantization)
    if quantization is None and (here := _here(text, installed, cwd) or _installed_as(text, installed, None)):
        return here
    return _name(text, quantization, catalogue, installed)


def _name(text: str, quantization: str | None, catalogue: Catalogue, installed: Sequence[str]) -> Reference:
    """A name, perhaps with a quantization: of the catalogue, of an installed model, or of a repository."""
    known = catalogue.called(text)
    name, colon, after = text.rpartition(":")
    if colon and (known is None or known[1] is not None):  # else the tag is part of the name
        if quantization is not None and quantization.upper() != after.upper():
            raise LeapModelNotFoundError(f"{text!r} names one quantization and --quant another, {quantization!r}")
        text, quantization = name, after
    if quantization is not None and not _QUANTIZATION.fullmatch(quantization):
        raise LeapModelNotFoundError(f"{quantization!r} is not a quantization", hint="write one such as Q4_K_M")
    entry = catalogue.exact(text)
    if entry is not None:
        return CatalogueName(entry, quantization)
    if (here := _installed_as(text, installed, quantization)) is not None:
        return here
    if known is not None:
        return CatalogueName(known[0], known[1] or quantization)
    if REPOSITORY.fullmatch(text):
        return Repository(text, quantization)
    if "/" in text or "\\" in text:
        raise LeapModelNotFoundError(f"there is no file or directory {text!r}, and it is no owner/repo", hint=OTHERS)
    return _likely(text, quantization, catalogue, installed)


def _here(text: str, installed: Sequence[str], cwd: Path | None) -> LocalPath | InstalledName | None:
    """A file of this name, or the installed directory of this name."""
    path = _absolute(text, cwd)
    if os.path.exists(path):  # False also for a name that is too long for one
        return LocalPath(path)
    for spelled in (str.lower, _folded):
        for directory in installed:
            if spelled(directory) == spelled(text):
                return InstalledName(directory)
    return None


def _installed_as(text: str, installed: Sequence[str], quantization: str | None) -> InstalledName | None:
    """The directory of an installed model of this name: in the quantization, else in the preferred one."""
    quantizations = {
        parts.quantization: directory
        for directory in installed
        if _own_name(text) in _own_names(parts := split_name(directory))
    }
    if quantization is not None:
        chosen = quantization.upper() if quantization.upper() in quantizations else None
    else:
        chosen = preferred_quantization(quantizations)
    return None if chosen is None else InstalledName(quantizations[chosen])


def _own_names(parts: NameParts) -> tuple[str, ...]:
    """What a directory's model may be called: with its owner in front or without, in lower case."""
    name = parts.model.lower()
    return (name, name.partition("--")[2]) if "--" in name else (name,)


def _own_name(text: str) -> str:
    """A name as the store writes it for a directory."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.").lower()


def _likely(text: str, quantization: str | None, catalogue: Catalogue, installed: Sequence[str]) -> Reference:
    """The only installed model or entry of the catalogue that begins so. Raises LeapModelNotFoundError."""
    directories = {
        directory
        for directory in installed
        if any(n.startswith(text.lower()) for n in _own_names(split_name(directory)))
    }
    models = {split_name(directory).model for directory in directories}
    if len(models) == 1 and not any(entry.name.lower().startswith(text.lower()) for entry in catalogue):
        likely = _installed_as(models.pop(), sorted(directories), quantization)
        if likely is not None:
            return likely
    try:
        tagged = with_quantization(f"x:{quantization}") if quantization else ("x", "")
        if tagged is None or tagged[0] != "x":  # a tag, as in name:3b
            return CatalogueName(catalogue.find(f"{text}:{quantization}"), None)
        return CatalogueName(catalogue.find(text), quantization)
    except LeapModelNotFoundError as error:
        if installed and error.hint is not None:
            names = ", ".join(sorted(directories or installed, key=str.lower)[:MOST_NAMED])
            raise LeapModelNotFoundError(error.message, hint=f"{error.hint}; installed: {names}") from None
        raise


def _looks_like_path(text: str) -> bool:
    starts = (".", "/", "~", "\\") if os.name == "nt" else (".", "/", "~")
    windows_drive = os.name == "nt" and re.match(r"[A-Za-z]:[\\/]", text) is not None
    return text.startswith(starts) or windows_drive or text.lower().endswith(MODEL_ENDINGS)


def _absolute(text: str, cwd: Path | None) -> Path:
    try:
        return Path(os.path.abspath((cwd or Path.cwd()) / Path(text).expanduser()))
    except FileNotFoundError:
        raise LeapModelNotFoundError(f"there is no file {text!r}: the working directory was removed") from None


def _local(text: str, cwd: Path | None, catalogue: Catalogue) -> LocalPath:
    if text.lower().endswith(".bundle"):
        raise bundle_refused(text, catalogue)
    try:
        return LocalPath(_absolute(text, cwd))
    except (RuntimeError, ValueError) as error:  # ~nobody, a null character
        raise LeapModelNotFoundError(f"there is no file {text!r}: {error}") from None


HUB_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
_HUB_FILE_ADDRESS = re.compile(rf"{REPOSITORY.pattern}/(?:resolve|blob)/[^/]+/.+")
_HUB_REPOSITORY_ADDRESS = re.compile(
    rf"(?P<repo>{REPOSITORY.pattern})(?P<quantization>:[^/]+)?(?:/tree/(?P<revision>[^/]+))?/?"
)


def _page(text: str, endpoint: str) -> str | None:
    """What follows the host in the address of a page of the hub, as a browser or another program shows it; None for
    all else."""
    address = text.partition("://")[2] if text.lower().startswith(("http://", "https://")) else text
    host, slash, rest = address.partition("/")
    is_hub = host.lower() in HUB_HOSTS or ("://" in text and host == urlsplit(endpoint).netloc)
    return re.split("[?#]", rest)[0] if slash and is_hub else None


def _hub_page(page: str, whole: str, quantization: str | None) -> Repository:
    match = _HUB_REPOSITORY_ADDRESS.fullmatch(page)
    if match is None:
        raise LeapModelNotFoundError(
            f"{whole!r} is no page of a model", hint="the address of a repository or of a .gguf file in it names one"
        )
    revision = None if match["revision"] == "main" else match["revision"]
    return Repository(match["repo"], quantization or (match["quantization"] or "").lstrip(":") or None, revision)


def _folded(name: str) -> str:
    """A name without its case, and with one sign for those that the names of files join their parts by."""
    return re.sub("[._ ]", "-", name).lower()


def _hub_file(text: str, whole: str, catalogue: Catalogue, quantization: str | None) -> Reference:
    name, colon, after = text.rpartition(":")
    if REPOSITORY.fullmatch(text):
        return Repository(text, quantization)
    if colon and REPOSITORY.fullmatch(name):
        return Repository(name, quantization or after)
    match = _HUB_FILE.fullmatch(text)
    if match is None:
        raise LeapModelNotFoundError(f"{whole!r} is not hf:owner/repo/file.gguf")
    if match["path"].lower().endswith(".bundle"):
        raise bundle_refused(match["path"], catalogue)
    if not match["path"].lower().endswith(MODEL_ENDINGS):
        raise LeapModelNotFoundError(f"{whole!r} names neither a .gguf file nor a .json manifest")
    return HubFile(match["repo"], match["path"], match["revision"])


def _url(text: str, scheme: str, endpoint: str) -> Reference:
    if scheme == "file":
        try:
            return LocalPath(Path(path_of_file_url(text)))
        except LeapSerializationError as error:
            raise LeapModelNotFoundError(error.message) from None
    if scheme not in ("http", "https"):
        raise LeapModelNotFoundError(f"{text!r} is neither a http(s) nor a file URL")
    parts = urlsplit(text)
    path = unquote(parts.path)
    if path.lower().endswith(".bundle"):
        raise bundle_refused(path, Catalogue.load())
    if not parts.netloc or not path.lower().endswith(MODEL_ENDINGS):
        raise LeapModelNotFoundError(f"the URL {text!r} ends neither in .gguf nor in .json")
    own = urlsplit(endpoint)
    page = _HUB_PAGE.fullmatch(path)
    if page is not None and (parts.scheme, parts.netloc) == (own.scheme, own.netloc):
        return HubFile(page["repo"], page["path"], None if page["revision"] == "main" else page["revision"])
    return Url(text)


def bundle_refused(name: str, catalogue: Catalogue) -> LeapModelLoadingError:
    """Why an ExecuTorch bundle does not run here, and the GGUF to use instead."""
    stem = re.split(r"[\\/]", name)[-1].lower().replace("_", "-")
    entries = [entry for entry in catalogue if stem.startswith(entry.name.lower().replace("_", "-"))]
    entry = max(entries, key=lambda entry: len(entry.name), default=None)
    instead = (
        f"use the GGUF instead: leap download {entry.name}"
        if entry
        else "use a GGUF of the same model instead; `leap models catalogue` lists Liquid's"
    )
    return LeapModelLoadingError(
        f"{name} is an ExecuTorch bundle of the former LEAP SDK, which llama.cpp cannot run", hint=instead
    )


def origin_of(model: InstalledModel) -> str | None:
    """The origin of an installed model; None where it came from a file, or by an address that may hold a secret."""
    origin = model.origin
    if origin is None:
        return None
    repo, _, revision = origin.partition("@")
    if REPOSITORY.fullmatch(repo):
        return json.dumps({"model": repo, "quantization": model.quantization or None, "revision": revision or None})
    if not origin.startswith("hf:"):
        address = urlsplit(origin)
        if address.scheme not in ("http", "https") or "@" in address.netloc or address.query:
            return None
    return json.dumps({"model": origin, "quantization": None, "revision": None})


def read_origin(origin: str) -> tuple[str, str | None, str | None]:
    """Reference, quantization and revision. Raises ValueError for what is no origin."""
    value = json.loads(origin)
    parts = [value.get(name) for name in ("model", "quantization", "revision")] if isinstance(value, dict) else []
    if not parts or not isinstance(parts[0], str) or not all(part is None or isinstance(part, str) for part in parts):
        raise ValueError(f"not an origin: {origin}")
    return parts[0], parts[1], parts[2]

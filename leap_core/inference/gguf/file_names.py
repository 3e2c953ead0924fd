"""What the name of a model file says, and which names from outside may become names on a disk.

Names are matched case-insensitively and with ``_`` equal to ``-``: Liquid's repositories themselves mix
``LFM2.5-VL-1.6B-Q4_0.gguf`` with ``mmproj-LFM2.5-VL-1.6b-Q8_0.gguf``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ...errors import LeapModelDownloadError

QUANTIZATION = r"(?:I?Q\d_[A-Z0-9]+(?:_[A-Z0-9]+)*|TQ\d_\d|F16|F32|BF16|MXFP4(?:_MOE)?|NVFP4|Q1_0)"
_STEM = re.compile(rf"^(?:(?P<model>.+?)[-_.])?(?P<quantization>{QUANTIZATION})$", re.IGNORECASE)
_SPLIT = re.compile(r"^(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})$")

PREFERRED = ("Q4_K_M", "Q4_0", "Q5_K_M", "Q8_0", "Q6_K", "Q4_K_S", "Q5_K_S", "F16", "BF16", "Q3_K_M", "Q2_K", "F32")
"""Which quantization is taken when none is asked for and the catalogue does not say."""
PREFERRED_PROJECTOR = ("Q8_0", "F16", "BF16", "F32")

PROJECTOR, AUDIO_DECODER, AUDIO_TOKENIZER = "multimodal_projector", "audio_decoder", "audio_tokenizer"
COMPANIONS = (PROJECTOR, AUDIO_DECODER, AUDIO_TOKENIZER)
"""The roles of a model's companion files, by their names in a manifest's load_time_parameters."""

Companions = dict[str, str]


class NameParts(NamedTuple):
    """``LFM2-1.2B-Q4_K_M`` is the model LFM2-1.2B in Q4_K_M; ``quantization`` is "" where the name has none."""

    model: str
    quantization: str


def names_in(metadata: Callable[[str], str | None]) -> tuple[str, ...]:
    """What a header calls its model: its name, base name with size and fine-tune, and architecture, with hyphens as in
    the names of files. ``metadata`` gives a text of the header, None where it has none."""
    base = metadata("general.basename")
    parts = (base, metadata("general.size_label"), metadata("general.finetune"))
    names = (metadata("general.name"), base and "-".join(filter(None, parts)), metadata("general.architecture"))
    return tuple(name.replace(" ", "-") for name in names if name)


def split_name(stem: str) -> NameParts:
    """The model and the quantization in a file's name without its ending."""
    match = _STEM.match(stem)
    if match is None:
        return NameParts(stem, "")
    return NameParts(match["model"] or "", match["quantization"].upper())


def base_name(file: str) -> str:
    """The last part of a path with slashes: repositories have a hundred thousand of them."""
    return file.rpartition("/")[2]


def folder_of(file: str) -> str:
    """All before the last part, empty for a bare name."""
    return file.rpartition("/")[0]


def name_of(file: str) -> NameParts:
    """``split_name`` of a file's path, without folders, ending and split number."""
    stem = base_name(file)
    for ending in (".gguf", ".json", ".safetensors", ".bin", ".bundle"):
        if stem.lower().endswith(ending):
            stem = stem[: -len(ending)]
            break
    split = _SPLIT.match(stem)
    return split_name(split["stem"] if split else stem)


def is_gguf(file: str) -> bool:
    return file.lower().endswith(".gguf")


def role_of(file: str) -> str | None:
    """The companion's role that a file's name claims, None for a model (or for something else)."""
    name = base_name(file).lower()
    if not name.endswith((".gguf", ".bin", ".safetensors")):
        return None
    if "mmproj" in name:
        return PROJECTOR
    audio = "audio" in name
    if name.startswith("vocoder") or (audio and "decoder" in name):
        return AUDIO_DECODER
    if name.startswith(("tokenizer-", "tokenizer_")) or (audio and "tokenizer" in name):
        return AUDIO_TOKENIZER
    return None


def model_files(files: Iterable[str]) -> list[str]:
    """The files that are models: GGUF, no companion, and of a split model the first part only."""
    return [file for file in files if is_gguf(file) and role_of(file) is None and _part_number(file) <= 1]


def first_part_of(file: str) -> str | None:
    """The first part of the split model that ``file`` is a further part of; None for any other file."""
    split = _SPLIT.match(file.removesuffix(".gguf"))
    if split is None or int(split["part"]) == 1:
        return None
    return f"{split['stem']}-00001-of-{split['parts']}.gguf"


def parts_of(file: str, files: Iterable[str]) -> list[str]:
    """All parts of a split model whose first part is ``file``; only ``file`` itself when it is whole."""
    split = _SPLIT.match(base_name(file).rpartition(".")[0])
    if split is None:
        return [file]
    start, count = file[: -len("00001-of-00001.gguf")], split["parts"]
    parts = {f"{start}{number:05d}-of-{count}.gguf" for number in range(1, int(count) + 1)}
    return [file, *sorted((parts - {file}) & set(files))]


def by_quantization(files: Iterable[str]) -> dict[str, str]:
    """The models among ``files`` by the quantization their names give, "" where they give none."""
    by_name: dict[str, str] = {}
    for file in sorted(model_files(files), key=lambda file: (file.count("/"), file)):
        by_name.setdefault(name_of(file).quantization, file)
    return by_name


def preferred_quantization(available: Iterable[str], first: str | None = None) -> str | None:
    """The one to take when none is named: ``first``, else the first of PREFERRED that there is, else any."""
    by_name = {name.upper(): name for name in available}
    for name in (first, *PREFERRED):
        if name and name.upper() in by_name:
            return by_name[name.upper()]
    return min(by_name.values(), default=None)


def companions_of(model: str, files: Iterable[str]) -> Companions:
    """The companion files of ``model`` among ``files``, by role.

    A companion belongs to the model whose name it carries. One that carries another name, or none, is taken only when
    no other model is there, and never from one of Liquid's models to another. A projector of a model that sees is
    preferred in Q8_0; an audio model takes all its companions in its own quantization where there is such a file.
    """
    files = list(files)
    models = {_plain(name_of(file).model) for file in model_files(files)} | {_plain(name_of(model).model)}
    own = {role: _carrying(model, _in_role(role, files), alone=len(models) == 1) for role in COMPANIONS}
    speaks = bool(own[AUDIO_DECODER] or own[AUDIO_TOKENIZER])
    quantization = name_of(model).quantization
    order = (quantization, *PREFERRED_PROJECTOR) if speaks else (*PREFERRED_PROJECTOR, quantization)
    return {role: _first_by_quantization(candidates, order) for role, candidates in own.items() if candidates}


def _in_role(role: str, files: Iterable[str]) -> list[str]:
    return sorted(file for file in files if role_of(file) == role)


def _carrying(model: str, companions: list[str], *, alone: bool) -> list[str]:
    core = _plain(name_of(model).model)
    exact = [file for file in companions if core and _companion_core(file) == core]
    if exact or not alone:
        return exact
    return [file for file in companions if not (core.startswith("lfm") and _companion_core(file).startswith("lfm"))]


def _companion_core(file: str) -> str:
    core = _plain(name_of(file).model)
    for prefix in ("mmproj-", "vocoder-", "tokenizer-", "audiodecoder-", "audio-decoder-", "audio-tokenizer-"):
        core = core.removeprefix(prefix)
    for suffix in ("-mmproj", "-audiodecoder", "-audio-decoder", "-audio-tokenizer"):
        core = core.removesuffix(suffix)
    return core


def _first_by_quantization(files: list[str], order: Iterable[str]) -> str:
    by_quantization_: Mapping[str, str] = {name_of(file).quantization: file for file in reversed(files)}
    return next((by_quantization_[name] for name in order if name in by_quantization_), files[0])


def _part_number(file: str) -> int:
    split = _SPLIT.match(base_name(file).rpartition(".")[0])
    return int(split["part"]) if split else 0


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


REPOSITORY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*/[A-Za-z0-9_][A-Za-z0-9._-]*")
"""owner/name, as the hub allows it."""

LONGEST_FILE_NAME = 200
"""Bytes. File systems allow 255, and a partial file's name is longer than the file's."""
RESERVED_ON_WINDOWS = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
OWN_ENDINGS = (".part", ".state", ".new", ".lock")
"""Files that leap itself puts beside a model's end so."""
UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]')


def safe_file_name(name: str, source: str) -> str:
    """``name`` if a file in the model's directory may be called so on every system.

    Raises LeapModelDownloadError, naming the ``source``, for one that leaves the directory or hides in it.
    """
    too_long = len(name.encode("utf-8", "surrogatepass")) > LONGEST_FILE_NAME
    if not name or UNSAFE.search(name) or name.startswith((".", "-")) or name.endswith((".", " ")) or too_long:
        raise LeapModelDownloadError(f"{source} names a file {name[:80]!r}, which cannot be a file's name here")
    if RESERVED_ON_WINDOWS.fullmatch(name) or not name.isprintable() or name.lower().endswith(OWN_ENDINGS):
        raise LeapModelDownloadError(f"{source} names a file {name!r}, which cannot be a file's name here")
    return name


def file_name_of_url(url: str) -> str:
    """The last part of a URL's path, checked by ``safe_file_name``."""
    return safe_file_name(unquote(urlsplit(url).path.rpartition("/")[2]), url)


def safe_repository_path(path: str, source: str) -> str:
    """``path`` if it is a plain relative path within a repository. Raises LeapModelDownloadError."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in path:
        raise LeapModelDownloadError(f"{source} names a file {path[:80]!r}, which leaves the repository")
    safe_file_name(parts[-1], source)
    return path


def directory_name(model: str, quantization: str) -> str:
    """The name of a model's directory in the store: ``<model>-<quantization>``."""
    name = f"{model}-{quantization}" if quantization else model
    return safe_file_name(re.sub(r"[^\w.+-]+", "-", name).strip("-."), "the model")

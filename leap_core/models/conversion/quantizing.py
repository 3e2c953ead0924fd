"""A model of this machine in other quantizations, and what they cost."""

from __future__ import annotations

import math
import os
import shutil
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import LeapError, LeapModelLoadingError, LeapOptionsError
from ...inference.gguf.file_names import directory_name, name_of
from ...inference.gguf.header import GGUFHeader, read_gguf_header
from ...inference.gguf.quantize_request import QuantizeRequest
from ...inference.trial.trial_child import Subject
from ...inference.trial.verdicts import error_of, problem_after_fetching, verdict_on
from ...schemas.json_values import JsonObject
from ...system.dataclass import dataclass
from ...system.directories import Directories
from ...system.files import place
from ..importing import files_of, record_files
from ..resolving import LocalModel, Registry, resolve_local
from ..store import Store
from .conversion_child import QUANTIZE, measure, run_in_child

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

WHOLE = ("F32", "F16", "BF16")
NEED_IMATRIX = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "Q2_K_S")
PLAIN = {*WHOLE, "F64", "I8", "I16", "I32", "I64"}


def check_source(header: GGUFHeader, request: QuantizeRequest) -> None:
    """Raises LeapModelLoadingError for a file that must not be quantized again, or not without an importance matrix."""
    quantized = next((tensor for tensor in header.tensors if tensor.type not in PLAIN), None)
    if quantized is not None and not request.requantize:
        raise LeapModelLoadingError(
            f"{header.path.name} is quantized already: {quantized.name} is {quantized.type}",
            hint="start from its F16 or BF16 file; --allow-requantize does it all the same, and loses more",
        )
    # with types of their own, the tensors that need one may have another
    if request.to in NEED_IMATRIX and request.imatrix is None and not request.tensor_types:
        raise no_importance(request.to)


def no_importance(to: str) -> LeapModelLoadingError:
    """The error for a type that needs an importance matrix."""
    return LeapModelLoadingError(
        f"{to} needs to know which weights count", hint="--imatrix FILE, which llama-imatrix writes"
    )


UNFINISHED = ".unfinished"
EXTRA_BYTES = 16 * 1024**2

Progress = Callable[[int, int, str], object]


@dataclass(frozen=True)
class Quantized:
    """A file that was made. ``before`` and ``after``: bytes of the model's files. ``fallbacks``: how many tensors are
    of another type than meant, since their rows are no multiple of its blocks. ``problem``: what the trial found."""

    path: Path
    name: str
    before: int
    after: int
    fallbacks: int = 0
    problem: str | None = None


@dataclass(frozen=True)
class Making:
    """How work is followed and given up: ``on_tensor`` is called with each tensor's number, their count and its
    name."""

    on_tensor: Progress = lambda done, total, name: None
    stop: threading.Event | None = None
    variables: Mapping[str, str] | None = None


def quantize_into_store(
    model: LocalModel, name: str, request: QuantizeRequest, store: Store, making: Making, *, replace: bool = False
) -> Quantized:
    """Make ``name`` in ``request.to`` of a model, companions included. Raises LeapError where such a model is, or the
    disk is too small, LeapModelLoadingError for what cannot be quantized, and Stopped; then nothing is left."""
    header = checked_source(model.path, request, making)
    directory = store.root / directory_name(name, request.to)
    if not replace:
        check_free(store, directory)
    companions = [(role, path) for role, path in files_of(model) if role not in ("model", "part")]
    with making_directory(store, directory, f"quantize {directory.name}") as unfinished:
        fallbacks = _quantize(model.path, unfinished / f"{directory.name}.gguf", request, making, header)
        problem = problem_after_fetching(min(unfinished.iterdir()), variables=making.variables, stop=making.stop)
        made = settle(unfinished, directory)
        for _, source in companions:
            place(source.resolve(), directory / source.name)
        roles = [("model", made[0]), *(("part", part) for part in made[1:]), *companions]
        record_files(directory, name, request.to, model, roles)
    before = size_of(model)
    after = sum(path.stat().st_size for path in made)
    return Quantized(made[0], directory.name, before, after, fallbacks, problem)


def check_free(store: Store, directory: Path) -> None:
    """Raises LeapError where a model is in this directory of the store."""
    if store.at(directory) is not None:
        raise LeapError(
            f"there is a model {directory.name} already", hint="choose another with --name, or use --replace"
        )


def check_target(target: Path, sources: Iterable[Path], *, replace: bool) -> None:
    """Raises LeapOptionsError where a result cannot become the file ``target``: it has no directory, or it is there
    and one of ``sources`` or not to be replaced."""
    if not target.parent.is_dir():
        raise LeapOptionsError("output", f"there is no directory {target.parent}")
    if not target.exists():
        return
    if any(source.exists() and source.samefile(target) for source in sources):
        raise LeapOptionsError("output", f"{target} is what the result is made from: choose another name")
    if not replace:
        raise LeapOptionsError("output", f"{target} exists; --replace takes its place")


def quantize_to_file(source: Path, target: Path, request: QuantizeRequest, making: Making) -> Quantized:
    """Make one GGUF of another, projectors included, as far as llama.cpp can."""
    header = checked_source(source, request, making)
    unfinished = target.with_name(f".{target.name}{UNFINISHED}")
    try:
        fallbacks = _quantize(source, unfinished, request, making, header)
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)
    return Quantized(target, str(target), source.stat().st_size, target.stat().st_size, fallbacks)


def checked_source(path: Path, request: QuantizeRequest, making: Making) -> GGUFHeader:
    """The header of a file that may be quantized and that llama.cpp survives. Raises LeapModelLoadingError."""
    header = read_gguf_header(path)
    check_source(header, request)
    if not header.is_projector:
        verdict = verdict_on(Subject(path), variables=making.variables, stop=making.stop)
        if verdict is not None and not verdict.is_sound:
            raise error_of(Subject(path), verdict)
    return header


def _quantize(source: Path, target: Path, request: QuantizeRequest, making: Making, header: GGUFHeader) -> int:
    """Quantize, if what it gives fits; how many tensors fell back to another type. Finding that out and doing it is one
    process's work: to start another takes longer than to quantize a small model."""
    # llama.cpp appends the parts' numbers by itself
    target = target.with_suffix("") if request.keep_split else target
    extra = header.data_start + EXTRA_BYTES
    asked = {"source": str(source), "target": str(target), "settings": request.to_json()}
    made = run_in_child(
        QUANTIZE,
        asked | {"room": shutil.disk_usage(target.parent).free - extra},
        on_progress=lambda step: making.on_tensor(*step),
        stop=making.stop,
        variables=making.variables,
    )
    if not made["fits"]:
        raise no_space(target.parent, made["bytes"] + extra)
    return len(made["fallbacks"])


def require_space(directory: Path, needed: int) -> None:
    """Raises LeapError where a disk has not so many bytes left."""
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise no_space(directory, needed)


def no_space(directory: Path, needed: int) -> LeapError:
    """The error for a disk without so many bytes left."""
    free = shutil.disk_usage(directory).free
    return LeapError(
        f"{directory} has {free / 1e9:.1f} GB left, and {needed / 1e9:.1f} GB are needed",
        hint="leap models list --sort size",
    )


@contextmanager
def making_directory(store: Store, directory: Path, intent: str) -> Iterator[Path]:
    """A fresh directory within a model's for what is not finished; whatever happens, nothing of it stays."""
    directory.mkdir(parents=True, exist_ok=True)
    unfinished = directory / UNFINISHED
    try:
        with store.writing(directory, intent):
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            yield unfinished
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        if store.at(directory) is None:
            shutil.rmtree(directory, ignore_errors=True)


def settle(unfinished: Path, directory: Path) -> list[Path]:
    """Move finished files to their place, the first part first."""
    moved = []
    for path in sorted(unfinished.iterdir()):
        os.replace(path, directory / path.name)
        moved.append(directory / path.name)
    return moved


def size_of(model: LocalModel) -> int:
    """Bytes of a model's own files, without companions."""
    return sum(path.stat().st_size for role, path in files_of(model) if role in ("model", "part"))


def own_name(model: LocalModel, store: Store) -> str:
    """What a model is called without its quantization."""
    installed = store.at(model.path.parent) if model.path.parent.parent == store.root else None
    if installed is not None:
        return installed.model
    return name_of(model.path.name).model or read_gguf_header(model.path).name or model.path.stem


OnStep = Callable[[str, str, int, int], object]
"""Called with what is made, of which unit, how many are done, and of how many."""
OnMade = Callable[[Quantized], object]
PATHS = ("cwd", "output", "text")


@dataclass(frozen=True)
class QuantizeWork:
    """``model``: a reference, from ``cwd`` on. The results are models of the store, ``name`` or the model's own with
    the type, or one file, ``output``. ``text``: a file to measure source and results with."""

    model: str
    requests: tuple[QuantizeRequest, ...]
    cwd: Path
    name: str | None = None
    output: Path | None = None
    replace: bool = False
    text: Path | None = None

    def to_json(self) -> JsonObject:
        paths = {name: None if value is None else str(value) for name, value in vars(self).items() if name in PATHS}
        return {**vars(self), **paths, "requests": [each.to_json() for each in self.requests]}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> QuantizeWork:
        paths = {name: Path(value[name]) for name in PATHS if value[name] is not None}
        requests = tuple(QuantizeRequest.from_json(each) for each in value["requests"])
        return QuantizeWork(**{**value, **paths, "requests": requests})

    def check(self, variables: Mapping[str, str]) -> None:
        """Raises LeapError for what a look at files and names refuses."""
        self._words()
        model = self._model(variables)
        header = read_gguf_header(self._source(model))
        if self.output is not None:
            sources = [header.path] if model is None else [path for _, path in files_of(model)]
            check_target(self.cwd / self.output, sources, replace=self.replace)
        for request in self.requests:
            check_source(header, request)
            if self.output is None and not self.replace:
                check_free(*self._place(model, request, variables))

    def anywhere(self, variables: Mapping[str, str]) -> QuantizeWork:
        """The same for a process in another directory."""
        path = Registry(variables, self.cwd).path_of(self.model)
        return QuantizeWork(
            **vars(self)
            | {"model": self.model if path is None else str(path.absolute()), "cwd": self.cwd.absolute()}
            | {"output": None if self.output is None else (self.cwd / self.output).absolute()}
        )

    def run(self, making: Making, on_step: OnStep, on_made: OnMade, *, again: bool = False) -> list[JsonObject]:
        """Make all, one after the other; a record of each. ``again``: an earlier attempt may have made some, which are
        not made again, unless ``replace``: what is there may be what was to be replaced. Raises LeapError, and Stopped;
        a type that is being made then leaves nothing."""
        variables = {} if making.variables is None else making.variables
        words, model = self._words(), self._model(variables)
        records = []
        for request in self.requests:
            step = partial(_without_name, partial(on_step, request.to, "tensors"))
            made = self._make(model, request, Making(step, making.stop, making.variables), again)
            records.append(_record(made, request))
            on_made(made)
        if words is not None:
            self._measure(self._source(model), words, records, making, partial(on_step, "measuring", "windows"))
        return records

    def _make(self, model: LocalModel | None, request: QuantizeRequest, making: Making, again: bool) -> Quantized:
        if self.output is not None:
            return quantize_to_file(self._source(model), self.output, request, making)
        assert model is not None
        store, directory = self._place(model, request, making.variables or {})
        there = store.at(directory)
        if again and not self.replace and there is not None and there.manifest is not None and there.path is not None:
            return Quantized(there.path, directory.name, size_of(model), there.path.stat().st_size)
        name = self._name(model, store)
        return quantize_into_store(model, name, request, store, making, replace=self.replace or again)

    def _words(self) -> str | None:
        """The text to measure with. Raises LeapError."""
        if self.text is None:
            return None
        try:
            return self.text.read_text("utf-8", errors="replace")
        except OSError as error:
            raise LeapError(f"cannot read {self.text}: {error.strerror}") from None

    def _model(self, variables: Mapping[str, str]) -> LocalModel | None:
        """The model, or None for a file that is not one of its own, such as a projector."""
        if self.output is not None and (self.cwd / self.model).is_file():
            return None
        return resolve_local(self.model, variables=variables, cwd=self.cwd)

    def _source(self, model: LocalModel | None) -> Path:
        return self.cwd / self.model if model is None else model.path

    def _name(self, model: LocalModel, store: Store) -> str:
        return self.name or own_name(model, store)

    def _place(
        self, model: LocalModel | None, request: QuantizeRequest, variables: Mapping[str, str]
    ) -> tuple[Store, Path]:
        """The store, and the result's directory in it."""
        assert model is not None
        store = Store.of(Directories.from_environment(variables))
        return store, store.root / directory_name(self._name(model, store), request.to)

    @staticmethod
    def _measure(
        source: Path, words: str, records: Sequence[JsonObject], making: Making, step: Callable[[int, int], object]
    ) -> None:
        """Add to each record what the quantization costs."""
        original, *others = measure(
            [source, *(Path(record["path"]) for record in records)],
            words,
            threads=2,
            on_window=step,
            stop=making.stop,
            variables=making.variables,
        )
        for record, each in zip(records, others, strict=True):
            record |= {
                "perplexity": round(each.perplexity, 4),
                "source_perplexity": round(original.perplexity, 4),
                "kl_divergence": round(each.kl_divergence, 6),
                "top1_agreement": round(each.top1_agreement, 4),
                "tokens": each.tokens,
            }


def _without_name(step: Callable[[int, int], object], done: int, total: int, _: str) -> None:
    step(done, total)


def _record(made: Quantized, request: QuantizeRequest) -> JsonObject:
    return {
        "name": made.name,
        "quantization": request.to,
        "before": made.before,
        "after": made.after,
        "fallbacks": made.fallbacks,
        "path": str(made.path),
    }


SUMS, COUNTS = ".in_sum2", ".counts"
LONGEST_NAME = 4096


def read_importance(path: Path) -> dict[str, NDArray[float32]]:
    """The mean of squares by tensor, experts one after the other. Raises LeapModelLoadingError for what is none."""
    try:
        with path.open("rb") as file:
            found = _of_gguf(path) if file.read(4) == b"GGUF" else _of_legacy(path)
    except OSError as error:
        raise LeapModelLoadingError(f"cannot read {path}: {error.strerror}") from None
    except struct.error:
        raise LeapModelLoadingError(f"{path} is no importance matrix, or is cut off") from None
    if not found:
        raise LeapModelLoadingError(f"{path} is no importance matrix")
    return found


def _of_gguf(path: Path) -> dict[str, NDArray[float32]]:
    import numpy as np

    tensors = {tensor.name: tensor for tensor in read_gguf_header(path).tensors}
    found = {}
    for name, tensor in tensors.items():
        if not name.endswith(SUMS):
            continue
        counts = tensors.get(name[: -len(SUMS)] + COUNTS)
        if counts is None or tensor.type != "F32" or counts.type != "F32" or tensor.elements % max(counts.elements, 1):
            raise LeapModelLoadingError(f"{path} is damaged: {name} has no counts that go with it")
        sums = np.fromfile(path, np.float32, tensor.elements, offset=tensor.offset).reshape(counts.elements, -1)
        count = np.fromfile(path, np.float32, counts.elements, offset=counts.offset)[:, None]
        means = np.where(count > 0, sums / np.where(count > 0, count, 1), np.float32(1))
        found[name[: -len(SUMS)]] = np.ascontiguousarray(means.ravel(), np.float32)
    return found


def _of_legacy(path: Path) -> dict[str, NDArray[float32]]:
    import numpy as np

    data = path.read_bytes()
    (entries,) = struct.unpack_from("<i", data)
    if not 0 < entries <= len(data) // 16:
        raise LeapModelLoadingError(f"{path} is no importance matrix")
    at, found = 4, {}
    for _ in range(entries):
        (length,) = struct.unpack_from("<i", data, at)
        if not 0 < length <= LONGEST_NAME:
            raise LeapModelLoadingError(f"{path} is no importance matrix")
        name = data[at + 4 : at + 4 + length].decode("utf-8", "replace")
        calls, count = struct.unpack_from("<ii", data, at + 4 + length)
        at += 12 + length
        if count < 1 or at + 4 * count > len(data):
            raise LeapModelLoadingError(f"{path} is damaged: {name[:80]!r} claims {count} values")
        values = np.frombuffer(data, "<f4", count, at).astype(np.float32)
        found[name] = values / np.float32(calls) if calls > 0 else values
        at += 4 * count
    return found if all(math.isfinite(float(each.sum())) for each in found.values()) else {}

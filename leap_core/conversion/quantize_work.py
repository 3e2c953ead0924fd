"""All that one ``leap models quantize`` asks for: a model in several types, and what they cost; as a command or a job
does it."""

from __future__ import annotations

from ..json_fields import JsonObject
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import LeapError
from ..models.gguf.header import read_gguf_header
from ..models.installed.model_store import Store
from ..models.maintenance.importing import files_of
from ..models.names.safe_names import directory_name
from ..models.references.resolving import LocalModel, resolve_local
from ..storage.directories import Directories
from .measuring import measure
from .quantize_request import QuantizeRequest, check_source
from .quantizing import (
    Making,
    Quantized,
    check_free,
    check_target,
    name_for,
    quantize_into_store,
    quantize_to_file,
    size_of,
)


OnStep = Callable[[str, str, int, int], object]
"""Hears what is made, of which unit, how many are done, and of how many."""
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
        """The model, or None for a file that is none of its own, such as a projector."""
        if self.output is not None and (self.cwd / self.model).is_file():
            return None
        return resolve_local(self.model, variables=variables, cwd=self.cwd)

    def _source(self, model: LocalModel | None) -> Path:
        return self.cwd / self.model if model is None else model.path

    def _name(self, model: LocalModel, store: Store) -> str:
        installed = store.at(model.path.parent) if model.path.parent.parent == store.root else None
        return self.name or name_for(model, installed)

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
